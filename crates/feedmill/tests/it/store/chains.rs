//! Chains of commits, on every store: where they stand, and what their break holds up.

use feedmill::store::batch::{Chain, Snapshot};

use super::*;

fn chained(bench: &Bench, did: &str, since: Option<u64>, rev: u64, text: &str) -> Item {
    let Item::Commit(commit) = bench.commit(
        did,
        rev,
        POST,
        &format!("r{rev}"),
        bench.post(did, text, NOW - 1),
    ) else {
        unreachable!()
    };
    Item::Commit(Commit {
        chain: Some(Chain {
            since,
            prev_data: None,
            data: None,
        }),
        frame: rev.to_le_bytes().to_vec().into(),
        ..commit
    })
}

/// How far a chain has come is written at the end of a transaction, and known before.
#[test]
fn a_chain_that_moved_and_broke_in_one_transaction_is_known_where_it_stands() {
    on_each(|bench| {
        let did = "did:web:a.test";
        let told = bench.apply(vec![
            chained(bench, did, None, 1, "one"),
            chained(bench, did, Some(2), 3, "three"),
            Item::Sync {
                did: did.into(),
                rev: 1,
                data: None,
            },
        ]);
        let counted = told.accounting;
        assert_eq!((counted.applied, counted.held, counted.repeated), (1, 1, 1));
        assert_eq!(bench.store.account(did).unwrap().unwrap().rev, 1);
    });
}

#[test]
fn a_broken_chain_holds_that_account_and_nobody_else_until_the_snapshot() {
    on_each(|bench| {
        let (did, other) = ("did:web:a.test", "did:web:b.test");
        bench.apply(vec![
            chained(bench, did, None, 1, "one"),
            chained(bench, other, None, 1, "one"),
        ]);
        let broken = bench.apply(vec![
            chained(bench, did, Some(2), 3, "three"),
            chained(bench, other, Some(1), 2, "two"),
        ]);
        assert_eq!((broken.accounting.held, broken.accounting.applied), (1, 1));
        assert_eq!(broken.broken, [did]);
        assert_eq!(bench.store.broken_accounts(9).unwrap(), [did]);
        assert_eq!(
            bench.store.held(did).unwrap(),
            [3u64.to_le_bytes().to_vec()]
        );
        let Item::Commit(again) = chained(bench, did, Some(2), 3, "three") else {
            unreachable!()
        };
        let post = |rkey: &str, text: &str| Op {
            collection: POST.into(),
            rkey: rkey.into(),
            verdict: bench.post(did, text, NOW - 1),
        };
        let snapshot = |held| {
            Item::Snapshot(Snapshot {
                did: did.into(),
                rev: 2,
                data: None,
                ops: vec![post("r2", "two")],
                held,
            })
        };
        let stale = bench.store.commit(Batch {
            source: "test".into(),
            cursor: None,
            now_us: NOW,
            items: vec![snapshot(0)],
        });
        assert!(
            stale.is_err(),
            "a snapshot made before the last held frame is refused"
        );
        bench.apply(vec![
            snapshot(1),
            Item::Commit(Commit {
                seq: 0,
                was_held: true,
                ..again
            }),
        ]);
        let mut live: Vec<String> = bench
            .list()
            .into_iter()
            .map(|(uri, _)| uri)
            .filter(|uri| uri.contains(did))
            .collect();
        live.sort();
        let expected: Vec<String> = ["r2", "r3"]
            .iter()
            .map(|rkey| format!("at://{did}/{POST}/{rkey}"))
            .collect();
        assert_eq!(live, expected, "r1 is not in the snapshot, so it is gone");
        let total = bench.store.accounting(None).unwrap();
        assert!(total.adds_up() && total.held == 0, "{total:?}");
        assert!(bench.store.broken_accounts(9).unwrap().is_empty());
    });
}
