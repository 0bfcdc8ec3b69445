//! Archives: round trips, limits, forged blocks and broken bytes.

use proptest::prelude::*;
use record::car::{self, Car, CarError, CarLimits, Reader};
use record::cid::Cid;

fn archive(blocks: &[Vec<u8>]) -> (Vec<Cid>, Vec<u8>) {
    let cids: Vec<Cid> = blocks.iter().map(|data| Cid::of_cbor(data)).collect();
    let pairs = cids.iter().copied().zip(blocks.iter().map(Vec::as_slice));
    let bytes = car::write(&cids[..1], pairs);
    (cids, bytes)
}

fn numbered(count: u32) -> Vec<Vec<u8>> {
    (0..count).map(|n| n.to_be_bytes().to_vec()).collect()
}

#[test]
fn every_block_is_found_in_small_and_large_archives() {
    for count in [1, 2, 24, 25, 26, 1000] {
        let blocks = numbered(count);
        let (cids, bytes) = archive(&blocks);
        let car = Car::read(&bytes, CarLimits::REPO, true).unwrap();
        assert_eq!(car.root(), Some(cids[0]));
        assert_eq!(car.blocks().len(), blocks.len());
        for (cid, block) in cids.iter().zip(&blocks) {
            assert_eq!(car.get(cid), Some(block.as_slice()));
        }
        assert_eq!(car.get(&Cid::of_cbor(b"absent")), None);
        assert_eq!(
            Reader::new(&bytes, CarLimits::REPO).unwrap().count(),
            blocks.len()
        );
    }
}

#[test]
fn a_forged_block_is_found_when_hashes_are_verified() {
    let (_, mut bytes) = archive(&numbered(3));
    *bytes.last_mut().unwrap() ^= 1;
    let read = Car::read(&bytes, CarLimits::COMMIT, true);
    assert!(matches!(read, Err(CarError::Forged(_))));
    assert!(Car::read(&bytes, CarLimits::COMMIT, false).is_ok());
}

#[test]
fn limits_hold_exactly() {
    let (_, bytes) = archive(&numbered(3));
    let read = |blocks_max, block_bytes_max| {
        let limits = CarLimits {
            blocks_max,
            block_bytes_max,
        };
        Car::read(&bytes, limits, true).map(|car| car.blocks().len())
    };
    assert_eq!(read(3, 4), Ok(3));
    assert_eq!(read(2, 4), Err(CarError::TooBig("blocks_max")));
    assert_eq!(read(3, 3), Err(CarError::TooBig("block_bytes_max")));
}

#[test]
fn other_versions_and_padded_varints_are_refused() {
    let refused = |bytes: &[u8]| Car::read(bytes, CarLimits::COMMIT, true).unwrap_err();
    let header = |version: u8| [b"\xa2eroots\x80gversion".as_slice(), &[version]].concat();
    let framed = |length: &[u8], version| [length, &header(version)].concat();
    let good = framed(b"\x11", 1);
    assert!(
        Car::read(&good, CarLimits::COMMIT, true)
            .unwrap()
            .root()
            .is_none()
    );
    assert_eq!(
        refused(&framed(b"\x11", 2)),
        CarError::Malformed("another version than 1")
    );
    assert_eq!(
        refused(&framed(b"\x91\x00", 1)),
        CarError::Malformed("a padded varint")
    );
    assert_eq!(
        refused(&[0xff; 12]),
        CarError::Malformed("a varint over 63 bits")
    );
    assert_eq!(refused(&good[..9]), CarError::Truncated);
    assert_eq!(refused(b""), CarError::Truncated);
    assert_eq!(
        refused(&[good.as_slice(), &[3, 1, 2, 3]].concat()),
        CarError::Malformed("a section shorter than its cid")
    );
    assert_eq!(
        refused(&[good.as_slice(), &[200]].concat()),
        CarError::Truncated
    );
}

proptest! {
    #[test]
    fn broken_archives_never_panic_nor_yield_a_false_block(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let (_, mut bytes) = archive(&numbered(30));
        bytes.truncate(cut.index(bytes.len()) + 1);
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(car) = Car::read(&bytes, CarLimits::COMMIT, true) {
            for block in car.blocks() {
                prop_assert!(block.cid.names(block.data));
            }
        }
        let strict = Car::read(&bytes, CarLimits::COMMIT, true);
        prop_assert!(strict.is_err() || Car::read(&bytes, CarLimits::COMMIT, false).is_ok());
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        // Random bytes have no valid header.
        prop_assert!(Car::read(&bytes, CarLimits::COMMIT, false).is_err());
    }
}
