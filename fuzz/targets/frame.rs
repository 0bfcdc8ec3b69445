//! Frames: what is parsed can be written and parsed again, and a peek never
//! says anything else than the whole reading.

#![no_main]

use libfuzzer_sys::fuzz_target;
use record::car::{Car, CarLimits};
use record::commit::Commit;
use record::event::{Frame, peek};
use record::mst::{self, Op};

fuzz_target!(|bytes: &[u8]| {
    let peeked = peek(bytes);
    if let Ok(peeked) = &peeked {
        peeked.paths().for_each(drop);
    }
    let Ok(frame) = Frame::parse(bytes) else {
        return;
    };
    let peeked = peeked.expect("what can be read can be peeked at");
    assert_eq!(peeked.seq, frame.seq());
    assert_eq!(peeked.did, frame.did());
    let written = frame.to_bytes();
    let again = Frame::parse(&written).expect("what we write we read");
    assert_eq!(again.to_bytes(), written);
    if let Frame::Commit(event) = &frame {
        let paths: Vec<_> = peeked.paths().collect();
        assert_eq!(paths.len(), event.ops.len());
        let Ok(archive) = Car::read(event.blocks, CarLimits::COMMIT, false) else {
            return;
        };
        let Some(commit) = archive.get(&event.commit) else {
            return;
        };
        let Ok(commit) = Commit::parse(commit) else {
            return;
        };
        let ops: Vec<Op<'_>> = event
            .ops
            .iter()
            .map(|op| Op {
                path: op.path,
                cid: op.cid,
                prev: op.prev,
            })
            .collect();
        mst::invert(&archive, commit.data, &ops).ok();
        mst::walk(&archive, commit.data, 1000).take(1000).for_each(drop);
    }
});
