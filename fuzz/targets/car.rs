//! Archives: what is read can be written and is then the same; a block that is
//! accepted with its hash is what its name says.

#![no_main]

use libfuzzer_sys::fuzz_target;
use record::car::{Car, CarLimits, write};
use record::commit::Commit;

fuzz_target!(|bytes: &[u8]| {
    let believed = Car::read(bytes, CarLimits::COMMIT, false);
    let proved = Car::read(bytes, CarLimits::COMMIT, true);
    if let Ok(archive) = &proved {
        for block in archive.blocks() {
            assert!(block.cid.names(block.data));
            assert!(archive.get(&block.cid).is_some());
        }
        assert!(believed.is_ok());
    }
    let Ok(archive) = believed else { return };
    let blocks = archive.blocks().iter();
    let written = write(
        archive.roots(),
        blocks.map(|block| (block.cid, block.data)),
    );
    let again = Car::read(&written, CarLimits::COMMIT, false).expect("what we write we read");
    assert_eq!(again.blocks().len(), archive.blocks().len());
    assert_eq!(again.roots(), archive.roots());
    let Some(root) = archive.root() else { return };
    if let Some(Ok(commit)) = archive.get(&root).map(Commit::parse) {
        for entry in record::mst::walk(&archive, commit.data, 1000).take(1000) {
            let Ok((path, _)) = entry else { return };
            assert!(record::mst::is_path(path.as_bytes()));
        }
    }
});
