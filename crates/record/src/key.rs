//! Signing keys of accounts.
//!
//! In:    a key as `did:key`, as Multikey, or as a verification method of a
//!        DID document, in its present or its legacy form; 32 secret bytes.
//! Out:   a [`PublicKey`] that verifies, a [`SigningKey`] that signs.
//! Never: a curve other than K-256 and P-256; a signature in DER or with a
//!        high S accepted, since a second signature of the same commit would
//!        give it a second CID; arithmetic of our own.

use std::fmt;

use p256::ecdsa::signature::hazmat::{PrehashSigner, PrehashVerifier};
use sha2::{Digest, Sha256};

/// Why a key or a signature is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not a key of a type that the network uses.
    #[error("not a key: {0}")]
    Malformed(&'static str),

    /// The signature does not belong to this message and key.
    #[error("signature does not match")]
    WrongSignature,
}

/// A public key of one of the two curves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PublicKey {
    K256(secp256k1::PublicKey),
    P256(p256::ecdsa::VerifyingKey),
}

/// Multicodec prefixes as varints: 0xe7 and 0x1200.
const K256_CODEC: [u8; 2] = [0xe7, 0x01];
const P256_CODEC: [u8; 2] = [0x80, 0x24];

/// Longest multibase text that is read; an uncompressed key has 89 characters.
/// Reading base58 takes time that is quadratic in its length.
const MULTIBASE_BYTES_MAX: usize = 128;

impl PublicKey {
    /// Reads `did:key:z…`.
    pub fn from_did_key(text: &str) -> Result<Self, KeyError> {
        let multibase = text
            .strip_prefix("did:key:")
            .ok_or(KeyError::Malformed("no did:key"))?;
        Self::from_multikey(multibase)
    }

    /// Reads the `publicKeyMultibase` of a `Multikey`: multicodec and compressed point.
    pub fn from_multikey(multibase: &str) -> Result<Self, KeyError> {
        let bytes = decode_multibase(multibase)?;
        let (codec, point) = bytes
            .split_first_chunk::<2>()
            .ok_or(KeyError::Malformed("too short"))?;
        if point.len() != 33 {
            return Err(KeyError::Malformed("not a compressed point"));
        }
        match *codec {
            K256_CODEC => Self::k256(point),
            P256_CODEC => Self::p256(point),
            _ => Err(KeyError::Malformed("neither k256 nor p256")),
        }
    }

    /// Reads a verification method of a DID document by its `type` and its
    /// `publicKeyMultibase`. The legacy types contain only the point, compressed
    /// or not.
    pub fn from_verification_method(kind: &str, multibase: &str) -> Result<Self, KeyError> {
        match kind {
            "Multikey" => Self::from_multikey(multibase),
            "EcdsaSecp256k1VerificationKey2019" => Self::k256(&decode_multibase(multibase)?),
            "EcdsaSecp256r1VerificationKey2019" => Self::p256(&decode_multibase(multibase)?),
            _ => Err(KeyError::Malformed("unknown verification method")),
        }
    }

    fn k256(point: &[u8]) -> Result<Self, KeyError> {
        secp256k1::PublicKey::from_slice(point)
            .map(Self::K256)
            .map_err(|_| KeyError::Malformed("not a point of k256"))
    }

    fn p256(point: &[u8]) -> Result<Self, KeyError> {
        p256::ecdsa::VerifyingKey::from_sec1_bytes(point)
            .map(Self::P256)
            .map_err(|_| KeyError::Malformed("not a point of p256"))
    }

    /// Checks the 64-byte signature of `message`, which this function hashes.
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), KeyError> {
        let digest: [u8; 32] = Sha256::digest(message).into();
        match self {
            Self::K256(key) => {
                let signature = secp256k1::ecdsa::Signature::from_compact(signature)
                    .map_err(|_| KeyError::WrongSignature)?;
                // libsecp256k1 refuses a high S itself; a test checks that.
                secp256k1::ecdsa::verify(&signature, secp256k1::Message::from_digest(digest), key)
                    .map_err(|_| KeyError::WrongSignature)
            }
            Self::P256(key) => {
                let signature = p256::ecdsa::Signature::from_slice(signature)
                    .map_err(|_| KeyError::WrongSignature)?;
                if signature.normalize_s() != signature {
                    return Err(KeyError::WrongSignature);
                }
                key.verify_prehash(&digest, &signature)
                    .map_err(|_| KeyError::WrongSignature)
            }
        }
    }

    /// The `publicKeyMultibase` of a `Multikey`.
    pub fn to_multikey(&self) -> String {
        let mut bytes = Vec::with_capacity(35);
        match self {
            Self::K256(key) => {
                bytes.extend(K256_CODEC);
                bytes.extend(key.serialize());
            }
            Self::P256(key) => {
                bytes.extend(P256_CODEC);
                bytes.extend_from_slice(key.to_sec1_point(true).as_bytes());
            }
        }
        format!("z{}", bs58::encode(&bytes).into_string())
    }

    /// The key as a DID.
    pub fn to_did_key(&self) -> String {
        format!("did:key:{}", self.to_multikey())
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_did_key())
    }
}

fn decode_multibase(multibase: &str) -> Result<Vec<u8>, KeyError> {
    if multibase.len() > MULTIBASE_BYTES_MAX {
        return Err(KeyError::Malformed("too long"));
    }
    multibase
        .strip_prefix('z')
        .and_then(|digits| bs58::decode(digits).into_vec().ok())
        .ok_or(KeyError::Malformed("not base58btc multibase"))
}

/// A secret key. Its `Debug` shows the public key only.
#[derive(Clone)]
pub enum SigningKey {
    K256(secp256k1::SecretKey),
    P256(p256::ecdsa::SigningKey),
}

impl SigningKey {
    /// A K-256 key; fails for zero and for a number not below the order of the curve.
    pub fn k256(secret: [u8; 32]) -> Result<Self, KeyError> {
        secp256k1::SecretKey::from_secret_bytes(secret)
            .map(Self::K256)
            .map_err(|_| KeyError::Malformed("not a secret of k256"))
    }

    /// A P-256 key; fails for zero and for a number not below the order of the curve.
    pub fn p256(secret: [u8; 32]) -> Result<Self, KeyError> {
        p256::ecdsa::SigningKey::from_slice(&secret)
            .map(Self::P256)
            .map_err(|_| KeyError::Malformed("not a secret of p256"))
    }

    /// Signs the SHA-256 of `message`: the same message gives the same
    /// signature (RFC 6979), always with a low S.
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        let digest: [u8; 32] = Sha256::digest(message).into();
        match self {
            Self::K256(key) => secp256k1::ecdsa::sign(secp256k1::Message::from_digest(digest), key)
                .serialize_compact(),
            Self::P256(key) => {
                let signature: p256::ecdsa::Signature = key
                    .sign_prehash(&digest)
                    .expect("a digest of 32 bytes is long enough for p256");
                signature.normalize_s().to_bytes().into()
            }
        }
    }

    /// The public key.
    pub fn public(&self) -> PublicKey {
        match self {
            Self::K256(key) => PublicKey::K256(key.public_key()),
            Self::P256(key) => PublicKey::P256(*key.verifying_key()),
        }
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey of {:?}", self.public())
    }
}
