//! TIDs and CIDs as text.

use proptest::prelude::*;
use record::cid::Cid;
use record::tid::Tid;

use crate::values;

#[test]
fn a_tid_consists_of_a_time_and_a_clock_id() {
    let tid = Tid::new(1_700_000_000_123_456, 1023);
    assert_eq!((tid.micros(), tid.clock()), (1_700_000_000_123_456, 1023));
    assert_eq!(tid.to_string().len(), 13);
    assert_eq!(Tid::from_bits(0).to_string(), "2222222222222");
    assert_eq!(Tid::from_bits(u64::MAX).to_string(), "jzzzzzzzzzzzz");
    assert!(Tid::parse("k222222222222").is_err(), "a 65th bit");
}

#[test]
fn a_cid_of_another_kind_or_spelling_is_refused() {
    let good = Cid::of_raw(b"x");
    let text = good.to_string();
    // 58 digits carry two bits more than 36 bytes; they must be zero.
    let last = text.as_bytes()[58] + 1;
    let loose = format!("{}{}", &text[..58], char::from(last));
    let upper = text.to_uppercase();
    let longer = format!("{text}a");
    for text in [&loose, &upper, &longer, &text[1..], "", "b", "z", "é"] {
        assert!(Cid::parse(text).is_err(), "{text}");
    }
    for (at, value) in [(0, 0), (1, 0x70), (2, 0x13), (3, 0x1f)] {
        let mut bytes = *good.as_bytes();
        bytes[at] = value;
        assert!(Cid::from_bytes(&bytes).is_err(), "byte {at}");
    }
    assert!(Cid::from_bytes(&good.as_bytes()[..35]).is_err());
    assert!(!good.is_cbor() && Cid::of_cbor(b"x").is_cbor());
}

proptest! {
    #[test]
    fn the_order_of_tids_is_the_order_of_their_text(a in any::<u64>(), b in any::<u64>()) {
        let (a, b) = (Tid::from_bits(a), Tid::from_bits(b));
        prop_assert_eq!(a.cmp(&b), a.to_string().cmp(&b.to_string()));
        prop_assert_eq!(Tid::parse(&a.to_string()), Ok(a));
    }

    #[test]
    fn a_cid_survives_its_text_and_its_bytes(cid in values::cid()) {
        prop_assert_eq!(Cid::parse(&cid.to_string()), Ok(cid));
        prop_assert_eq!(Cid::from_bytes(cid.as_bytes()), Ok(cid));
    }

    #[test]
    fn hostile_text_is_refused_without_a_panic(text in any::<String>()) {
        prop_assert!(Tid::parse(&text).is_err());
        prop_assert!(Cid::parse(&text).is_err());
    }
}
