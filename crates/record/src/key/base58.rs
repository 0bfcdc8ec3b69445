//! Base58 in Bitcoin's alphabet, as multibase `z` carries it.
//!
//! Quadratic in the length, so callers bound it; a key has 35 to 65 bytes.

const ALPHABET: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/// The text of `bytes`.
pub(super) fn encode(bytes: &[u8]) -> String {
    let digits = rebase(bytes.iter().copied(), 256, 58);
    let zeros = bytes.iter().take_while(|&&byte| byte == 0).count();
    std::iter::repeat_n(0, zeros)
        .chain(digits.into_iter().rev())
        .filter_map(|digit| ALPHABET.get(usize::from(digit)))
        .map(|&letter| char::from(letter))
        .collect()
}

/// The bytes of `text`; `None` if a character is not of the alphabet.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text
        .bytes()
        .map(|letter| {
            let at = ALPHABET.iter().position(|&known| known == letter)?;
            u8::try_from(at).ok()
        })
        .collect::<Option<_>>()?;
    let zeros = digits.iter().take_while(|&&digit| digit == 0).count();
    let bytes = rebase(digits.into_iter(), 58, 256);
    Some(
        std::iter::repeat_n(0, zeros)
            .chain(bytes.into_iter().rev())
            .collect(),
    )
}

/// Digits of a number in another base, least significant first, without
/// leading zeros.
fn rebase(digits: impl Iterator<Item = u8>, from: u32, to: u32) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::with_capacity(96);
    for digit in digits {
        let mut carry = u32::from(digit);
        for place in &mut out {
            carry += u32::from(*place) * from;
            *place = (carry % to) as u8;
            carry /= to;
        }
        while carry > 0 {
            out.push((carry % to) as u8);
            carry /= to;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_texts_and_leading_zeros_survive() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"\0\0\0", "111"),
            (b"Hello World!", "2NEpo7TZRRrLZSi2U"),
            (b"\0\x28\x7f\xb4\xcd", "1233QC4"),
        ] {
            assert_eq!(encode(bytes), text);
            assert_eq!(decode(text).as_deref(), Some(bytes));
        }
        assert_eq!(decode("0OIl"), None);
    }
}
