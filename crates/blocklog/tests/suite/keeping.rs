//! What every store promises.

use super::*;

pub fn positions_count_from_one_over_all_feeds(store: Store<'_>) {
    authority(store);
    let batch = [
        block("f", "a", 100, "x"),
        block("g", "b", 1, "y"),
        block("f", "b", 101, "z"),
    ];
    assert_eq!(append(store, &batch).unwrap(), [Some(1), Some(2), Some(3)]);
    assert_eq!(store.space(SPACE).unwrap().unwrap().position_max, 3);
    assert_eq!(all(store), ["1:a100", "2:b1", "3:b101"]);
}

pub fn the_same_block_again_keeps_its_position(store: Store<'_>) {
    authority(store);
    let (one, two) = (block("f", "a", 1, "x"), block("f", "a", 2, "y"));
    append(store, &[one.clone(), one.clone()]).unwrap();
    assert_eq!(
        append(store, &[two.clone(), one.clone(), two]).unwrap(),
        [Some(2), Some(1), Some(2)]
    );
    assert_eq!(all(store).len(), 2);
}

pub fn other_bytes_under_a_known_key_write_nothing(store: Store<'_>) {
    authority(store);
    let first = block("f", "a", 1, "x");
    append(store, std::slice::from_ref(&first)).unwrap();
    let other = block("f", "a", 1, "y");
    let conflict = Refusal::Conflict { held: first.hash };
    assert_eq!(
        refusals(append(store, &[block("f", "a", 2, "z"), other])),
        [(1, conflict)]
    );
    assert_eq!(
        store.block(SPACE, &key("f", "a", 1)).unwrap().unwrap().hash,
        first.hash
    );
    assert_eq!(store.block(SPACE, &key("f", "a", 2)).unwrap(), None);
    assert_eq!(store.space(SPACE).unwrap().unwrap().position_max, 1);
}

pub fn one_bad_block_keeps_the_whole_batch_out(store: Store<'_>) {
    authority(store);
    let batch = [
        block("new", "a", 1, "x"),
        block("new", "a", 1, "y"),
        block("new", "a", 1, "z"),
    ];
    let held = batch[0].hash;
    let expected = [
        (1, Refusal::Conflict { held }),
        (2, Refusal::Conflict { held }),
    ];
    assert_eq!(refusals(append(store, &batch)), expected);
    assert_eq!(store.feed(SPACE, "new").unwrap(), None);
    assert_eq!(
        append(store, &[block("f", "a", 1, "x")]).unwrap(),
        [Some(1)],
        "the counter did not move"
    );
}

pub fn a_false_predecessor_is_refused_within_a_batch_too(store: Store<'_>) {
    authority(store);
    let first = block("f", "a", 1, "x");
    let mut second = block("f", "a", 2, "y");
    second.block.predecessor = Some(blocklog::block::Predecessor {
        sequence: 1,
        actor: "a".into(),
        hash: Some(Hash::of(b"forged")),
    });
    let second = Sealed::new(SPACE, second.block);
    assert_eq!(
        refusals(append(store, &[first.clone(), second.clone()])),
        [(1, Refusal::Predecessor)]
    );
    append(store, &[first]).unwrap();
    assert_eq!(
        refusals(append(store, &[second])),
        [(0, Refusal::Predecessor)]
    );
}

pub fn a_feed_keeps_the_namespace_of_its_first_block(store: Store<'_>) {
    authority(store);
    let limits = Limits::default();
    let put = |namespace, sequence| {
        store.append(
            SPACE,
            namespace,
            &[block("f", "a", sequence, "x")],
            1,
            &limits,
        )
    };
    put(Some("data"), 1).unwrap();
    put(None, 2).unwrap();
    assert_eq!(refusals(put(Some("trace"), 3)), [(0, Refusal::Namespace)]);
    let feed = store.feed(SPACE, "f").unwrap().unwrap();
    assert_eq!(feed.namespace.as_deref(), Some("data"));
    let data = Selection::Namespace("data".into());
    assert_eq!(
        seen(&page(store, &data, &final_after(0), MUCH).blocks),
        ["1:a1", "2:a2"]
    );
}

pub fn a_full_space_takes_no_more_feeds(store: Store<'_>) {
    authority(store);
    let limits = Limits {
        space_feeds_max: 2,
        ..Limits::default()
    };
    let put = |blocks: &[Sealed]| store.append(SPACE, None, blocks, 1, &limits);
    let batch = [
        block("f", "a", 1, ""),
        block("g", "a", 1, ""),
        block("h", "a", 1, ""),
    ];
    assert_eq!(refusals(put(&batch)), [(2, Refusal::SpaceFull)]);
    put(&batch[..2]).unwrap();
    assert_eq!(refusals(put(&batch[2..])), [(0, Refusal::SpaceFull)]);
    put(&[block("f", "a", 2, "")]).unwrap();
}

pub fn a_space_takes_no_more_bytes_than_its_quota(store: Store<'_>) {
    authority(store);
    let max = 2 * (BLOCK_BYTES + 3);
    let limits = Limits {
        space_bytes_max: max,
        ..Limits::default()
    };
    let put = |blocks: &[Sealed]| store.append(SPACE, None, blocks, 1, &limits);
    let batch = [
        block("f", "a", 1, "one"),
        block("f", "a", 2, "two"),
        block("g", "a", 1, ""),
    ];
    assert_eq!(refusals(put(&batch)), [(2, Refusal::SpaceBytes { max })]);
    put(&batch[..2]).unwrap();
    put(&batch[..2]).expect("what is held needs no room");
    assert_eq!(
        refusals(put(&batch[2..])),
        [(0, Refusal::SpaceBytes { max })]
    );
    store.purge(SPACE, &batch[0].block.key()).unwrap();
    assert_eq!(
        refusals(put(&batch[2..])),
        [(0, Refusal::SpaceBytes { max })]
    );
    store.evict(SPACE, "f", Keep::Newest(1), 9).unwrap();
    put(&batch[2..]).expect("there is room for one again");
}

pub fn sequences_go_up_to_the_largest_integer(store: Store<'_>) {
    authority(store);
    append(store, &[block("f", "a", INTEGER_MAX - 1, "")]).unwrap();
    assert_eq!(write(store, "f", "b", "").block.sequence, INTEGER_MAX);
    let name = FeedName {
        feed: "f",
        namespace: None,
    };
    let draft = Draft {
        timestamp_ms: 1,
        data: Vec::new(),
    };
    let written = store.write(SPACE, &name, &Author::named("b"), &[draft], 1);
    let none = written.map(|_| Vec::new());
    assert_eq!(refusals(none), [(0, Refusal::Exhausted)]);
    append(store, &[block("f", "a", 7, "")]).expect("lower ones are still free");
}

pub fn concurrent_writers_lose_nothing(store: Store<'_>) {
    authority(store);
    std::thread::scope(|scope| {
        for writer in 0..4 {
            scope.spawn(move || {
                for number in 0..25 {
                    write(store, "f", "same", &format!("{writer}.{number}"));
                }
            });
        }
    });
    let blocks = page(store, &Selection::Space, &final_after(0), MUCH).blocks;
    let mut contents: Vec<Payload> = blocks
        .iter()
        .map(|held| held.block.payload.clone())
        .collect();
    contents.sort_by_key(Payload::hash);
    contents.dedup();
    assert_eq!(contents.len(), 100, "every write is there");
    let sequences: Vec<u64> = blocks.iter().map(|held| held.block.sequence).collect();
    assert_eq!(sequences, (1..=100).collect::<Vec<u64>>());
}

pub fn eviction_gives_no_position_or_sequence_back(store: Store<'_>) {
    authority(store);
    for number in 0..5 {
        write(store, "f", "a", &number.to_string());
    }
    assert_eq!(
        store.evict(SPACE, "f", Keep::Newest(2), 2).unwrap(),
        2,
        "in slices"
    );
    assert_eq!(store.evict(SPACE, "f", Keep::Newest(2), 100).unwrap(), 1);
    assert_eq!(store.evict(SPACE, "f", Keep::Newest(0), 100).unwrap(), 2);
    let feed = store.feed(SPACE, "f").unwrap().unwrap();
    assert_eq!((feed.position_max, feed.evicted_through), (5, 5));
    let next = write(store, "f", "a", "again");
    assert_eq!((next.position, next.block.sequence), (Some(6), 6));
    assert_eq!(next.block.predecessor.unwrap().sequence, 5);
    assert_eq!(
        page(store, &Selection::Space, &final_after(2), MUCH).evicted,
        [("f".to_owned(), 5)]
    );
    assert_eq!(
        page(store, &Selection::Space, &final_after(5), MUCH).evicted,
        []
    );
}

pub fn an_evicted_block_that_comes_again_stays_gone(store: Store<'_>) {
    authority(store);
    let old = [block("f", "a", 1, ""), block("f", "b", 1, "")];
    append(store, &old).unwrap();
    append(store, &[block("f", "a", 2, "")]).unwrap();
    store.evict(SPACE, "f", Keep::Newest(1), 9).unwrap();
    let late = block("f", "c", 1, "");
    let batch = [old[1].clone(), late, old[0].clone()];
    assert_eq!(append(store, &batch).unwrap(), [Some(2), Some(4), Some(1)]);
    assert_eq!(all(store), ["3:a2", "4:c1"]);
    // A key is never given to other bytes, also after its block has gone.
    let other = [block("f", "a", 1, "other")];
    assert!(matches!(
        append(store, &other),
        Err(AppendError::Refused(_))
    ));
    assert_eq!(all(store), ["3:a2", "4:c1"]);
    let after = page(store, &Selection::Space, &final_after(0), MUCH);
    assert_eq!((after.evicted, after.forgotten), (vec![("f".into(), 2)], 0));
}

pub fn eviction_by_time_keeps_what_was_placed_since(store: Store<'_>) {
    authority(store);
    let limits = Limits::default();
    for (sequence, now_ms) in [(1, 100), (2, 200), (3, 150), (4, 300)] {
        store
            .append(
                SPACE,
                None,
                &[block("f", "a", sequence, "")],
                now_ms,
                &limits,
            )
            .unwrap();
    }
    assert_eq!(
        store.evict(SPACE, "f", Keep::Since(200), 100).unwrap(),
        1,
        "a clock that went back changes nothing"
    );
    assert_eq!(store.evict(SPACE, "f", Keep::All, 100).unwrap(), 0);
    assert_eq!(all(store), ["2:a2", "3:a3", "4:a4"]);
}

pub fn a_page_is_bounded_by_bytes_and_never_empty(store: Store<'_>) {
    authority(store);
    for _ in 0..4 {
        write(store, "f", "a", "ten bytes.");
    }
    let of = |bytes| {
        let page = page(
            store,
            &Selection::Space,
            &final_after(0),
            PageMax { blocks: 100, bytes },
        );
        (page.blocks.len(), page.has_more, page.next.after)
    };
    assert_eq!(of(25), (2, true, 2));
    assert_eq!(of(1), (1, true, 1));
    assert_eq!(of(40), (4, false, 4));
}

pub fn a_selection_sees_its_feeds_only(store: Store<'_>) {
    authority(store);
    let limits = Limits::default();
    for (feed, namespace, sequence) in [
        ("f", "data", 1),
        ("g", "trace", 1),
        ("h", "data", 1),
        ("f", "data", 2),
        ("g", "trace", 2),
    ] {
        store
            .append(
                SPACE,
                Some(namespace),
                &[block(feed, feed, sequence, "")],
                1,
                &limits,
            )
            .unwrap();
    }
    let of = |selection: Selection, after| {
        seen(&page(store, &selection, &final_after(after), MUCH).blocks)
    };
    let feeds =
        |names: &[&str]| Selection::Feeds(names.iter().map(|&name| name.to_owned()).collect());
    assert_eq!(of(feeds(&["f"]), 0), ["1:f1", "4:f2"]);
    assert_eq!(
        of(feeds(&["g", "h", "unknown"]), 1),
        ["2:g1", "3:h1", "5:g2"]
    );
    assert_eq!(of(feeds(&[]), 0), [""; 0]);
    assert_eq!(
        of(Selection::Namespace("data".into()), 0),
        ["1:f1", "3:h1", "4:f2"]
    );
    assert_eq!(of(Selection::Namespace("none".into()), 0), [""; 0]);
    assert_eq!(of(Selection::Space, 3), ["4:f2", "5:g2"]);
}

pub fn a_covered_point_moves_to_the_end_of_the_log(store: Store<'_>) {
    authority(store);
    write(store, "f", "a", "1");
    write(store, "g", "a", "2");
    let only_f = Selection::Feeds(vec!["f".into()]);
    let page_of_f = page(store, &only_f, &final_after(0), MUCH);
    assert_eq!((page_of_f.next.after, page_of_f.position_max), (2, 2));
    assert_eq!(Some(page_of_f.head), store.head(SPACE, 2).unwrap());
    let beyond = page(store, &only_f, &final_after(9), MUCH);
    assert_eq!(
        (beyond.blocks.len(), beyond.next.after, beyond.position_max),
        (0, 9, 2)
    );
}

pub fn heads_tell_histories_apart(store: Store<'_>) {
    authority(store);
    assert_eq!(store.head(SPACE, 0).unwrap(), Some(Head::default()));
    let (a, b) = (block("f", "a", 1, ""), block("f", "b", 1, ""));
    append(store, &[a.clone(), b.clone()]).unwrap();
    let expected = Head::default().then(&a.hash);
    assert_eq!(store.head(SPACE, 1).unwrap(), Some(expected));
    assert_eq!(store.head(SPACE, 2).unwrap(), Some(expected.then(&b.hash)));
    assert_eq!(
        store.space(SPACE).unwrap().unwrap().head,
        expected.then(&b.hash)
    );
    assert_eq!(store.head(SPACE, 3).unwrap(), None);
    store.evict(SPACE, "f", Keep::Newest(1), 9).unwrap();
    let remembered = store.head(SPACE, 1).unwrap();
    assert_eq!(remembered, Some(expected), "also of what was evicted");
}

pub fn time_finds_a_position(store: Store<'_>) {
    authority(store);
    let limits = Limits::default();
    for (sequence, now_ms) in [(1, 100), (2, 200), (3, 200), (4, 300)] {
        store
            .append(
                SPACE,
                None,
                &[block("f", "a", sequence, "")],
                now_ms,
                &limits,
            )
            .unwrap();
    }
    let found: Vec<u64> = [0, 100, 101, 200, 201, 300, 9999]
        .iter()
        .map(|&time| store.position_before(SPACE, time).unwrap())
        .collect();
    assert_eq!(found, [0, 0, 1, 1, 3, 3, 4]);
}

pub fn a_purged_block_keeps_its_place_and_hash(store: Store<'_>) {
    authority(store);
    let before = write(store, "f", "a", "secret");
    assert!(store.purge(SPACE, &before.block.key()).unwrap());
    assert!(!store.purge(SPACE, &key("f", "a", 99)).unwrap());
    let after = store.block(SPACE, &before.block.key()).unwrap().unwrap();
    assert_eq!((after.position, after.hash), (before.position, before.hash));
    assert_eq!(after.block.payload, before.block.payload.purged());
    assert_eq!(after.block.hash(SPACE), after.hash);
    let sealed = Sealed::new(SPACE, before.block);
    assert_eq!(
        append(store, &[sealed]).unwrap(),
        [Some(1)],
        "pushing it again does not bring it back"
    );
    assert_eq!(
        store
            .block(SPACE, &after.block.key())
            .unwrap()
            .unwrap()
            .block
            .payload
            .size(),
        0
    );
}

pub fn subscriptions_are_renewed_counted_and_forgotten(store: Store<'_>) {
    authority(store);
    let subscription = |id: &str, expires_ms| Subscription {
        id: id.into(),
        expires_ms,
        selection: Selection::Feeds(vec!["not yet known".into(), "f".into()]),
    };
    let max = SubscriptionsMax {
        count: 2,
        bytes: 1 << 20,
    };
    let put = |id, expires_ms, now_ms| {
        let wanted = subscription(id, expires_ms);
        store.subscribe(SPACE, &wanted, now_ms, max).unwrap()
    };
    assert_eq!((put("one", 100, 0), put("two", 200, 0)), (None, None));
    let full = Some(Crowded::Count);
    assert_eq!(put("three", 100, 0), full, "two is the limit");
    assert_eq!(put("one", 150, 0), None, "renewing is not adding");
    assert_eq!(
        store.subscription(SPACE, "one").unwrap(),
        Some(subscription("one", 150))
    );
    assert_eq!(put("three", 300, 150), None, "an expired one makes room");
    assert_eq!(store.subscription(SPACE, "one").unwrap(), None);
    for selection in [Selection::Space, Selection::Namespace("n".into())] {
        let other = Subscription {
            selection,
            ..subscription("two", 400)
        };
        assert_eq!(store.subscribe(SPACE, &other, 0, max).unwrap(), None);
        assert_eq!(store.subscription(SPACE, "two").unwrap(), Some(other));
    }
}

pub fn subscriptions_have_no_more_bytes_than_their_space_has_left(store: Store<'_>) {
    authority(store);
    let max = SubscriptionsMax {
        count: 1000,
        bytes: 10_000,
    };
    let put = |id: &str, bytes: usize| {
        let wanted = Subscription {
            id: id.into(),
            expires_ms: 100,
            selection: Selection::Feeds(vec!["f".repeat(bytes)]),
        };
        store.subscribe(SPACE, &wanted, 0, max).unwrap()
    };
    let full = Some(Crowded::Bytes);
    assert_eq!((put("one", 5000), put("two", 5000)), (None, full));
    assert_eq!(put("one", 9000), None, "renewing replaces");
    assert_eq!(put("two", 1000), full);
    assert_eq!(put("one", 1000), None);
    assert_eq!(put("two", 5000), None);
    // What is appended counts beside them.
    let large = "x".repeat(9000);
    let limits = Limits {
        space_bytes_max: 10_000,
        ..Limits::default()
    };
    let written = store.append(SPACE, None, &[block("f", "a", 1, &large)], 0, &limits);
    assert!(written.is_ok(), "they do not stop who writes");
    assert_eq!(put("three", 100), full);
}

pub fn feeds_are_listed_by_id_in_pages(store: Store<'_>) {
    authority(store);
    let limits = Limits::default();
    for (feed, namespace) in [("c", Some("data")), ("a", None), ("b", Some("data"))] {
        store
            .append(SPACE, namespace, &[block(feed, "x", 1, "")], 1, &limits)
            .unwrap();
    }
    let list = |namespace, after, limit| -> Vec<String> {
        store
            .feeds(SPACE, namespace, after, limit)
            .unwrap()
            .into_iter()
            .map(|feed| feed.feed)
            .collect()
    };
    assert_eq!(list(None, None, 9), ["a", "b", "c"]);
    assert_eq!(list(None, Some("a"), 1), ["b"]);
    assert_eq!(list(Some("data"), None, 9), ["b", "c"]);
    assert_eq!(store.feed(SPACE, "c").unwrap().unwrap().position_max, 1);
}

pub fn spaces_do_not_see_each_other(store: Store<'_>) {
    authority(store);
    store.open("other", Role::Authority, epoch(9)).unwrap();
    assert_eq!(
        store.open("other", Role::Replica, epoch(8)).unwrap().epoch,
        epoch(9),
        "opening again changes nothing"
    );
    write(store, "f", "a", "here");
    let name = FeedName {
        feed: "f",
        namespace: None,
    };
    let draft = Draft {
        timestamp_ms: 1,
        data: vec![],
    };
    let there = store
        .write("other", &name, &Author::named("a"), &[draft], 1)
        .unwrap();
    assert_eq!((there[0].position, there[0].block.sequence), (Some(1), 1));
    assert_eq!(all(store), ["1:a1"]);
    assert_eq!(store.spaces().unwrap(), ["other", SPACE]);
    assert!(store.space("third").unwrap().is_none());
    assert!(store.head("third", 1).is_err());
}
