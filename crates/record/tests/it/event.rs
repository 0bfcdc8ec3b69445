//! Events: round trips, limits, unknown types, and broken frames.

use proptest::prelude::*;
use record::cbor::{Writer, encode};
use record::cid::Cid;
use record::event::{
    AccountEvent, Action, CommitEvent, Frame, FrameError, FrameLimits, IdentityEvent, InfoEvent,
    Kind, OPS_MAX, RepoOp, SyncEvent, peek,
};
use record::tid::Tid;

use crate::values;

const DID: &str = "did:plc:ewvi7nxzyoun6zhxrhs64oiz";
const TIME: &str = "2026-07-04T14:38:00.123Z";

fn commit<'a>(ops: Vec<RepoOp<'a>>, blocks: &'a [u8]) -> CommitEvent<'a> {
    CommitEvent {
        seq: 31_527_000_001,
        repo: DID,
        commit: Cid::of_cbor(b"commit"),
        rev: Tid::new(1_700_000_000_000_000, 3),
        since: Some(Tid::new(1_600_000_000_000_000, 3)),
        blocks,
        ops,
        prev_data: Some(Cid::of_cbor(b"before")),
        time: TIME,
        too_big: false,
        rebase: false,
    }
}

fn three_ops() -> Vec<RepoOp<'static>> {
    let (new, old) = (Some(Cid::of_cbor(b"new")), Some(Cid::of_cbor(b"old")));
    let op = |action, path, cid, prev| RepoOp {
        action,
        path,
        cid,
        prev,
    };
    vec![
        op(
            Action::Create,
            "app.bsky.feed.post/3laaaaaaaaaa2",
            new,
            None,
        ),
        op(Action::Update, "app.bsky.actor.profile/self", new, old),
        op(
            Action::Delete,
            "app.bsky.feed.like/3laaaaaaaaaa3",
            None,
            old,
        ),
    ]
}

fn every_kind() -> Vec<Frame<'static>> {
    let account = |active, status| AccountEvent {
        seq: 6,
        did: DID,
        active,
        status,
        time: TIME,
    };
    let identity = |handle| IdentityEvent {
        seq: 7,
        did: DID,
        handle,
        time: TIME,
    };
    vec![
        Frame::Commit(commit(three_ops(), b"blocks")),
        Frame::Commit(CommitEvent {
            since: None,
            prev_data: None,
            too_big: true,
            rebase: true,
            ..commit(vec![], b"")
        }),
        Frame::Sync(SyncEvent {
            seq: 5,
            did: DID,
            rev: Tid::new(9, 9),
            blocks: b"blocks",
            time: TIME,
        }),
        Frame::Identity(identity(Some("alice.test"))),
        Frame::Identity(identity(None)),
        Frame::Account(account(true, None)),
        Frame::Account(account(false, Some("takendown"))),
        Frame::Info(InfoEvent {
            name: "OutdatedCursor",
            message: Some("too old"),
        }),
        Frame::Error {
            error: "FutureCursor",
            message: None,
        },
        Frame::Error {
            error: "ConsumerTooSlow",
            message: Some("hurry"),
        },
        Frame::Unknown { kind: "#tombstone" },
    ]
}

#[test]
fn every_event_survives_its_bytes() {
    for frame in every_kind() {
        let bytes = frame.to_bytes();
        assert_eq!(Frame::parse(&bytes).as_ref(), Ok(&frame));
        // A frame is two canonical values; the general decoder agrees.
        let (header, rest) = record::cbor::decode_first(&bytes).unwrap();
        let payload = record::cbor::decode(rest).unwrap();
        assert_eq!([encode(&header), encode(&payload)].concat(), bytes);
    }
}

#[test]
fn a_peek_returns_the_same_fields_as_parsing() {
    for frame in every_kind() {
        let bytes = frame.to_bytes();
        let seen = peek(&bytes).unwrap();
        assert_eq!((seen.seq, seen.did), (frame.seq(), frame.did()));
        let paths: Vec<&str> = seen.paths().collect::<Result<_, _>>().unwrap();
        match &frame {
            Frame::Commit(event) => {
                assert_eq!((seen.kind, seen.rev), (Kind::Commit, Some(event.rev)));
                let expected: Vec<&str> = event.ops.iter().map(|op| op.path).collect();
                assert_eq!(paths, expected);
            }
            Frame::Sync(event) => {
                assert_eq!((seen.kind, seen.rev), (Kind::Sync, Some(event.rev)));
            }
            _ => assert!(paths.is_empty()),
        }
    }
}

#[test]
fn a_peek_does_not_read_the_blocks() {
    let bytes = Frame::Commit(commit(three_ops(), &[7; 10_000])).to_bytes();
    let seen = peek(&bytes[..1000]).unwrap();
    assert_eq!((seen.seq, seen.did), (Some(31_527_000_001), Some(DID)));
    assert_eq!(seen.paths().count(), 3);
}

#[test]
fn an_unknown_op_or_type_is_no_error_but_a_missing_one_is() {
    let framed = |header: &[(&str, Result<i64, &str>)]| {
        let mut writer = Writer::default();
        writer.map(header.len());
        for (key, value) in header {
            match value {
                Ok(int) => writer.text(key).int(*int),
                Err(text) => writer.text(key).text(text),
            };
        }
        writer.map(0);
        writer.into_bytes()
    };
    let unknown = framed(&[("op", Ok(2))]);
    assert_eq!(Frame::parse(&unknown), Ok(Frame::Unknown { kind: "" }));
    assert_eq!(peek(&unknown).unwrap().kind, Kind::Unknown);
    let future = framed(&[("t", Err("#new")), ("op", Ok(1))]);
    assert_eq!(Frame::parse(&future), Ok(Frame::Unknown { kind: "#new" }));
    let extended = framed(&[("t", Err("#new")), ("op", Ok(1)), ("zzz", Ok(1))]);
    assert_eq!(Frame::parse(&extended), Ok(Frame::Unknown { kind: "#new" }));
    for broken in [
        framed(&[]),
        framed(&[("op", Ok(1))]),
        framed(&[("t", Err("#commit"))]),
    ] {
        assert!(matches!(
            Frame::parse(&broken),
            Err(FrameError::Malformed(_))
        ));
        assert!(matches!(peek(&broken), Err(FrameError::Malformed(_))));
    }
}

#[test]
fn bytes_after_an_event_are_refused() {
    for frame in every_kind() {
        let more = [frame.to_bytes(), vec![0xa0]].concat();
        let why = FrameError::Malformed("bytes after the payload");
        assert_eq!(Frame::parse(&more), Err(why));
    }
}

#[test]
fn unknown_fields_are_skipped() {
    let bytes = every_kind()[5].to_bytes();
    // {t, op} and then a map whose last and longest key is new.
    let at = bytes.iter().position(|&byte| byte == 0xa4).unwrap();
    let mut more = [&bytes[..], b"\x69something\x82\x01\xa1\x61x\xf6"].concat();
    more[at] += 1;
    assert_eq!(Frame::parse(&more).as_ref(), Ok(&every_kind()[5]));
}

#[test]
fn limits_hold_exactly_and_may_be_raised() {
    let many = |count: usize| {
        let op = three_ops()[0];
        Frame::Commit(commit(vec![op; count], b"")).to_bytes()
    };
    assert!(Frame::parse(&many(OPS_MAX)).is_ok());
    let over = many(OPS_MAX + 1);
    assert_eq!(Frame::parse(&over), Err(FrameError::TooBig("ops_max")));
    let raised = FrameLimits {
        ops_max: 1000,
        ..FrameLimits::default()
    };
    assert!(Frame::parse_with(&over, &raised).is_ok());

    let sized = |bytes: usize| Frame::Commit(commit(vec![], &vec![0; bytes])).to_bytes();
    assert!(Frame::parse(&sized(2_000_000)).is_ok());
    assert_eq!(
        Frame::parse(&sized(2_000_001)),
        Err(FrameError::TooBig("blocks_bytes_max"))
    );
    assert_eq!(
        Frame::parse(&sized(5_000_000)),
        Err(FrameError::TooBig("frame_bytes_max"))
    );
    let sync = |bytes: usize| {
        Frame::Sync(SyncEvent {
            seq: 1,
            did: DID,
            rev: Tid::new(1, 1),
            blocks: &vec![0; bytes],
            time: TIME,
        })
        .to_bytes()
    };
    assert!(Frame::parse(&sync(10_000)).is_ok());
    assert_eq!(
        Frame::parse(&sync(10_001)),
        Err(FrameError::TooBig("sync_blocks_bytes_max"))
    );
}

#[test]
fn an_operation_that_contradicts_itself_is_refused() {
    let cid = Some(Cid::of_cbor(b"x"));
    for (action, cid, prev) in [
        (Action::Create, None, None),
        (Action::Update, None, cid),
        (Action::Delete, cid, cid),
        (Action::Create, cid, cid),
    ] {
        let op = RepoOp {
            action,
            path: "a/b",
            cid,
            prev,
        };
        let bytes = Frame::Commit(commit(vec![op], b"")).to_bytes();
        let parsed = Frame::parse(&bytes);
        assert!(matches!(parsed, Err(FrameError::Malformed(_))), "{op:?}");
    }
}

proptest! {
    #[test]
    fn broken_frames_never_panic(
        which in any::<prop::sample::Index>(), cut in any::<prop::sample::Index>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
    ) {
        let kinds = every_kind();
        let mut bytes = kinds[which.index(kinds.len())].to_bytes();
        if flips.is_empty() {
            bytes.truncate(cut.index(bytes.len()));
            prop_assert!(Frame::parse(&bytes).is_err());
        }
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let parsed = Frame::parse(&bytes);
        let seen = peek(&bytes);
        if let Ok(frame) = &parsed {
            // The filter must never lose an event that can be read.
            let seen = seen.unwrap();
            prop_assert_eq!((seen.seq, seen.did), (frame.seq(), frame.did()));
        } else if let Ok(seen) = seen {
            let _ = seen.paths().count();
        }
    }

    #[test]
    fn random_frames_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200), value in values::value(),
    ) {
        prop_assert!(Frame::parse(&bytes).is_err() || peek(&bytes).is_ok());
        // A good header with any payload.
        let header = b"\xa2\x61t\x67#commit\x62op\x01";
        let framed = [&header[..], &encode(&value)].concat();
        prop_assert!(Frame::parse(&framed).is_err());
        prop_assert!(peek(&framed).is_err());
    }
}
