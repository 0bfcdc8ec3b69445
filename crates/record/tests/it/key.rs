//! Keys, signatures and signed commits against vectors, and broken ones.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use proptest::prelude::*;
use record::cid::Cid;
use record::commit::{Commit, CommitError};
use record::key::{KeyError, PublicKey, SigningKey};
use record::tid::Tid;
use serde_json::Value as Json;

use crate::published;
use crate::vectors::{self, unhex};

/// The secret key of a vector.
fn secret(case: &Json) -> SigningKey {
    let secret = unhex(&case["secret"]).try_into().unwrap();
    match case["curve"].as_str() {
        Some("k256") => SigningKey::k256(secret).unwrap(),
        Some("p256") => SigningKey::p256(secret).unwrap(),
        _ => panic!("{case} is of no curve"),
    }
}

#[test]
fn secrets_have_their_public_key_in_every_form() {
    for case in vectors::cases("keys") {
        let text = |name: &str| case[name].as_str().unwrap();
        let key = secret(&case).public();
        assert_eq!(key.to_did_key(), text("did"));
        assert_eq!(PublicKey::from_did_key(text("did")), Ok(key));
        for form in ["compressed", "uncompressed"] {
            let read = PublicKey::from_verification_method(text("legacyType"), text(form));
            assert_eq!(read, Ok(key), "{form}");
        }
    }
}

#[test]
fn a_message_has_one_signature_and_every_other_is_refused() {
    for case in vectors::cases("keys") {
        let message = case["message"].as_str().unwrap().as_bytes();
        let signature = unhex(&case["signature"]);
        let key = secret(&case);
        assert_eq!(key.sign(message)[..], signature, "{case}");
        assert_eq!(key.public().verify(message, &signature), Ok(()));
        for (fault, signature) in case["refused"].as_object().unwrap() {
            let verified = key.public().verify(message, &unhex(signature));
            assert_eq!(verified, Err(KeyError::WrongSignature), "{fault}");
        }
    }
}

#[test]
fn a_signed_commit_has_the_bytes_of_the_vectors() {
    for case in vectors::cases("commits") {
        let block = unhex(&case["block"]);
        let commit = Commit::parse(&block).unwrap();
        assert_eq!(*commit.did, *case["did"].as_str().unwrap());
        assert_eq!(commit.rev.to_string(), case["rev"]);
        assert_eq!(commit.data.to_string(), case["data"]);
        assert_eq!(Cid::of_cbor(&block).to_string(), case["cid"]);
        let key = PublicKey::from_did_key(case["key"].as_str().unwrap()).unwrap();
        assert_eq!(commit.verify(&key), Ok(()));
        let signed = Commit::sign(&*commit.did, commit.rev, commit.data, &secret(&case));
        assert_eq!(signed.to_block(), block);
    }
}

#[test]
fn published_signatures_verify_or_fail_as_they_must() {
    for case in published::cases("interop/crypto/signature-fixtures.json") {
        let text = |name: &str| case[name].as_str().unwrap();
        let message = STANDARD_NO_PAD.decode(text("messageBase64")).unwrap();
        let signature = STANDARD_NO_PAD.decode(text("signatureBase64")).unwrap();
        let key = PublicKey::from_did_key(text("publicKeyDid")).unwrap();
        let suite = text("didDocSuite");
        let legacy = PublicKey::from_verification_method(suite, text("publicKeyMultibase"));
        assert_eq!(legacy, Ok(key));
        assert_eq!(key.to_did_key(), text("publicKeyDid"));
        let verified = key.verify(&message, &signature).is_ok();
        assert_eq!(verified, case["validSignature"], "{}", text("comment"));
    }
}

#[test]
fn published_secrets_have_their_did_keys() {
    for case in published::cases("interop/crypto/w3c_didkey_K256.json") {
        let secret = unhex(&case["privateKeyBytesHex"]).try_into().unwrap();
        let key = SigningKey::k256(secret).unwrap();
        assert_eq!(key.public().to_did_key(), case["publicDidKey"]);
    }
    for case in published::cases("interop/crypto/w3c_didkey_P256.json") {
        let secret = slow_unbase58(case["privateKeyBytesBase58"].as_str().unwrap());
        let key = SigningKey::p256(secret.try_into().unwrap()).unwrap();
        assert_eq!(key.public().to_did_key(), case["publicDidKey"]);
        let did = case["publicDidKey"].as_str().unwrap();
        assert_eq!(PublicKey::from_did_key(did), Ok(key.public()));
    }
}

#[test]
fn an_uncompressed_legacy_key_is_the_compressed_one() {
    // The points of the secret 7 on both curves, uncompressed, in base58.
    for key in keys() {
        let (kind, point) = match key.public() {
            PublicKey::K256(key) => (
                "EcdsaSecp256k1VerificationKey2019",
                key.serialize_uncompressed().to_vec(),
            ),
            PublicKey::P256(key) => (
                "EcdsaSecp256r1VerificationKey2019",
                key.to_sec1_point(false).as_bytes().to_vec(),
            ),
        };
        let multibase = format!("z{}", slow_base58(&point));
        let read = PublicKey::from_verification_method(kind, &multibase);
        assert_eq!(read, Ok(key.public()));
        let codec = match key {
            SigningKey::K256(_) => [0xe7, 0x01],
            SigningKey::P256(_) => [0x80, 0x24],
        };
        let with_codec = format!("z{}", slow_base58(&[&codec[..], &point].concat()));
        for multikey in [multibase, with_codec] {
            let read = PublicKey::from_verification_method("Multikey", &multikey);
            assert!(read.is_err(), "a Multikey is compressed and has its codec");
        }
    }
}

const BASE58: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/// The 32 bytes of a base58 text without leading zeros.
fn slow_unbase58(text: &str) -> Vec<u8> {
    let mut number = vec![0u8; 32];
    for letter in text.bytes() {
        let mut carry = BASE58.iter().position(|&known| known == letter).unwrap();
        for byte in number.iter_mut().rev() {
            carry += usize::from(*byte) * 58;
            *byte = carry as u8;
            carry >>= 8;
        }
    }
    number
}

/// Base58 by long division, sharing nothing with the crate's.
fn slow_base58(bytes: &[u8]) -> String {
    let mut number = bytes.to_vec();
    let mut text = Vec::new();
    while number.iter().any(|&digit| digit != 0) {
        let mut rest = 0u32;
        for digit in &mut number {
            let value = rest * 256 + u32::from(*digit);
            *digit = (value / 58) as u8;
            rest = value % 58;
        }
        text.push(char::from(BASE58[rest as usize]));
    }
    text.extend(bytes.iter().take_while(|&&byte| byte == 0).map(|_| '1'));
    text.iter().rev().collect()
}

fn keys() -> [SigningKey; 2] {
    [
        SigningKey::k256([7; 32]).unwrap(),
        SigningKey::p256([7; 32]).unwrap(),
    ]
}

#[test]
fn hostile_keys_are_refused() {
    for text in [
        "",
        "did:key:",
        "did:key:z",
        "did:key:z0",
        "did:web:a",
        "did:key:zQ3sh",
    ] {
        assert!(PublicKey::from_did_key(text).is_err(), "{text}");
    }
    let long = format!("did:key:z{}", "Q".repeat(10_000_000));
    assert_eq!(
        PublicKey::from_did_key(&long),
        Err(KeyError::Malformed("too long"))
    );
    assert!(SigningKey::k256([0; 32]).is_err());
    assert!(SigningKey::p256([0xff; 32]).is_err());
}

#[test]
fn debug_output_never_contains_the_secret() {
    for key in keys() {
        assert!(!format!("{key:?}").contains("0707"));
        assert!(format!("{key:?}").contains("did:key:"));
    }
}

#[test]
fn a_commit_is_verified_by_its_key_and_no_other() {
    let [k256, p256] = keys();
    let data = Cid::of_cbor(b"tree");
    for (key, other) in [(&k256, &p256), (&p256, &k256)] {
        let commit = Commit::sign("did:plc:abc", Tid::new(5, 6), data, key);
        assert_eq!(
            commit,
            Commit::sign("did:plc:abc", Tid::new(5, 6), data, key)
        );
        let block = commit.to_block();
        let read = Commit::parse(&block).unwrap();
        assert_eq!(read, commit);
        assert_eq!(read.verify(&key.public()), Ok(()));
        assert_eq!(read.verify(&other.public()), Err(KeyError::WrongSignature));
        let forged = Commit {
            rev: Tid::new(5, 7),
            ..read
        };
        assert_eq!(forged.verify(&key.public()), Err(KeyError::WrongSignature));
    }
}

#[test]
fn a_commit_with_a_commit_before_it_keeps_it() {
    let [key, _] = keys();
    let commit = Commit {
        prev: Some(Cid::of_cbor(b"before")),
        ..Commit::sign("did:plc:abc", Tid::new(5, 6), Cid::of_cbor(b""), &key)
    };
    let block = commit.to_block();
    assert_eq!(Commit::parse(&block), Ok(commit.clone().into_owned()));
    assert!(
        commit.verify(&key.public()).is_err(),
        "it was signed without"
    );
}

#[test]
fn a_commit_of_another_version_or_with_another_field_is_refused() {
    let [key, _] = keys();
    let commit = Commit::sign("did:plc:abc", Tid::new(5, 6), Cid::of_cbor(b""), &key);
    let good = commit.to_block();
    let mut other_version = good.clone();
    *other_version.last_mut().unwrap() = 2;
    assert_eq!(
        Commit::parse(&other_version),
        Err(CommitError::Malformed("another version"))
    );
    let mut more = [&good[..], b"\x68versionx\x01"].concat();
    more[0] += 1;
    assert_eq!(
        Commit::parse(&more),
        Err(CommitError::Malformed("an unknown field"))
    );
    let mut fewer = good[..good.len() - 9].to_vec();
    fewer[0] -= 1;
    assert!(Commit::parse(&fewer).is_err());
    let trailing = [&good[..], &[0]].concat();
    assert!(Commit::parse(&trailing).is_err());
}

proptest! {
    #[test]
    fn a_signature_verifies_and_a_changed_one_does_not(
        secret in any::<[u8; 32]>(), message in prop::collection::vec(any::<u8>(), 0..80),
        at in 0usize..64, bit in 0u8..8,
    ) {
        for key in [SigningKey::k256(secret), SigningKey::p256(secret)].into_iter().flatten() {
            let mut signature = key.sign(&message);
            prop_assert_eq!(key.public().verify(&message, &signature), Ok(()));
            signature[at] ^= 1 << bit;
            prop_assert!(key.public().verify(&message, &signature).is_err());
            prop_assert!(key.public().verify(&message, &signature[..63]).is_err());
        }
    }

    #[test]
    fn a_changed_commit_is_refused_or_unsigned(at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let [key, _] = keys();
        let mut block = Commit::sign("did:plc:abc", Tid::new(5, 6), Cid::of_cbor(b""), &key).to_block();
        let at = at.index(block.len());
        block[at] ^= 1 << bit;
        if let Ok(commit) = Commit::parse(&block) {
            prop_assert_eq!(commit.to_block(), block.clone());
            prop_assert!(commit.verify(&key.public()).is_err());
        }
    }
}
