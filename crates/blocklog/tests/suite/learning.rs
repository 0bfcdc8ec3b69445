//! What a store of a replica promises besides.

use super::*;

pub fn pages_join_up_whatever_their_size(store: Store<'_>) {
    replica(store);
    let authority_blocks: Vec<Held> = (1..=23)
        .map(|number| theirs("f", "z", number, number))
        .collect();
    adopt(store, 0, 20, &authority_blocks[..20]);
    for number in 0..7 {
        write(store, ["f", "g"][number % 2], "a", &number.to_string());
    }
    acknowledge(store, &[("f", "a", 21, 25)]);
    let whole = all(store);
    assert_eq!(whole.len(), 27);
    for size in 1..30 {
        let (mut start, mut joined) = (everything(), Vec::new());
        loop {
            let page = page(
                store,
                &Selection::Space,
                &start,
                PageMax {
                    blocks: size,
                    bytes: 1 << 20,
                },
            );
            joined.extend(seen(&page.blocks));
            start = page.next;
            if !page.has_more {
                break;
            }
        }
        assert_eq!(joined, whole, "pages of {size}");
        assert_eq!(
            start,
            Start {
                after: 20,
                pending: PendingStart::All
            }
        );
    }
}

/// The helpers acknowledge at 8000 and pull at 9000.
pub fn what_was_acknowledged_is_kept_for_as_long_as_what_was_pulled(store: Store<'_>) {
    replica(store);
    write(store, "f", "a", "mine");
    acknowledge(store, &[("f", "a", 1, 1)]);
    let both = [theirs_of(store, "f", "a", 1, 1), theirs("f", "z", 2, 2)];
    adopt(store, 0, 2, &both);
    assert_eq!(store.evict(SPACE, "f", Keep::Since(8000), 9).unwrap(), 0);
    assert_eq!(store.evict(SPACE, "f", Keep::Since(8001), 9).unwrap(), 1);
    assert_eq!(all(store), ["2:z2"]);
}

pub fn unpositioned_blocks_come_last_in_lamport_order(store: Store<'_>) {
    replica(store);
    adopt(store, 0, 3, &[theirs("f", "z", 9, 3)]);
    let batch = [("b", 2), ("a", 2), ("c", 0), ("b", 1), ("a", 0)]
        .map(|(actor, sequence)| block("f", actor, sequence, ""));
    assert_eq!(append(store, &batch).unwrap(), [None; 5]);
    assert_eq!(all(store), ["3:z9", "-:a0", "-:c0", "-:b1", "-:a2", "-:b2"]);
    assert_eq!(
        seen(&page(store, &Selection::Space, &final_after(0), MUCH).blocks),
        ["3:z9"]
    );
    assert_eq!(
        seen(&store.pending(SPACE, None, &[], MUCH).unwrap()),
        ["-:a0", "-:c0", "-:b1", "-:a2", "-:b2"]
    );
}

pub fn a_known_position_ahead_of_the_pull_is_provisional(store: Store<'_>) {
    replica(store);
    adopt(store, 0, 40, &[theirs("f", "z", 1, 40)]);
    write(store, "f", "a", "mine");
    acknowledge(store, &[("f", "a", 2, 45)]);
    let finals = page(store, &Selection::Space, &final_after(0), MUCH);
    assert_eq!(
        (seen(&finals.blocks), finals.next.after),
        (vec!["40:z1".to_owned()], 40)
    );
    assert_eq!(all(store), ["40:z1", "45:a2"], "but whoever asks sees it");
    adopt(
        store,
        40,
        50,
        &[theirs("f", "z", 3, 41), theirs_of(store, "f", "a", 2, 45)],
    );
    let finals = page(store, &Selection::Space, &final_after(40), MUCH);
    assert_eq!(
        (seen(&finals.blocks), finals.next.after),
        (vec!["41:z3".to_owned(), "45:a2".to_owned()], 50)
    );
}

pub fn a_pulled_page_repairs_a_lost_acknowledgement(store: Store<'_>) {
    replica(store);
    write(store, "f", "a", "mine");
    let again = theirs_of(store, "f", "a", 1, 7);
    let report = adopt(store, 0, 7, std::slice::from_ref(&again));
    assert_eq!((report.placed, report.added), (1, 0));
    assert_eq!(all(store), ["7:a1"]);
    assert_eq!(store.pending(SPACE, None, &[], MUCH).unwrap(), []);
    assert_eq!(
        adopt(store, 0, 7, &[again]),
        blocklog::replica::Adopted::default(),
        "again is the same"
    );
}

pub fn a_pulled_range_takes_back_positions_it_lacks(store: Store<'_>) {
    replica(store);
    let apart = Target::Feed("apart".into());
    let three = [
        theirs("f", "z", 1, 1),
        theirs("f", "z", 2, 2),
        theirs("apart", "z", 3, 3),
    ];
    adopt(store, 0, 3, &three);
    store.set_lane(SPACE, &apart, Some(Mode::From(0))).unwrap();
    let report = adopt(store, 0, 3, &three[..1]);
    assert_eq!(report.unplaced, 1);
    assert_eq!(
        all(store),
        ["1:z1", "3:z3", "-:z2"],
        "another lane's feed is left alone"
    );
    assert_eq!(
        seen(&store.pending(SPACE, None, &[], MUCH).unwrap()),
        ["-:z2"]
    );
}

/// The page forgets up to 2.
pub fn only_what_may_be_evicted_and_forgotten_is_not_taken_for_lost(store: Store<'_>) {
    replica(store);
    let four = [
        theirs("f", "z", 1, 1),
        theirs("g", "z", 2, 2),
        theirs("f", "z", 3, 3),
        theirs("g", "z", 4, 4),
    ];
    adopt(store, 0, 4, &four);
    let evicted = [("f".to_owned(), 3), ("g".to_owned(), 1)];
    let report = adopt_evicted(store, 0, 4, &four[3..], &evicted);
    assert_eq!(report.unplaced, 2);
    assert_eq!(all(store), ["1:z1", "4:z4", "-:z2", "-:z3"]);
}

pub fn a_taken_position_sends_its_holder_back_to_wait(store: Store<'_>) {
    replica(store);
    write(store, "f", "a", "1");
    write(store, "f", "a", "2");
    assert_eq!(acknowledge(store, &[("f", "a", 1, 5)]).placed, 1);
    let report = acknowledge(store, &[("f", "a", 2, 5), ("f", "a", 99, 6)]);
    assert_eq!((report.placed, report.unplaced), (1, 1));
    assert_eq!(all(store), ["5:a2", "-:a1"]);
    let report = adopt(
        store,
        0,
        6,
        &[
            theirs_of(store, "f", "a", 1, 5),
            theirs_of(store, "f", "a", 2, 6),
        ],
    );
    assert_eq!(report.added, 0);
    assert_eq!(
        all(store),
        ["5:a1", "6:a2"],
        "two may change places in one page"
    );
}

pub fn a_signed_block_that_loses_its_key_is_kept_and_listed(store: Store<'_>) {
    replica(store);
    let author = Author::keyed(&[9; 32]);
    let ours = write_as(store, "f", &author, "ours");
    let mut winner = theirs("f", author.actor(), 1, 4);
    winner.block.signature = Some([1; 64]);
    let report = adopt(store, 0, 4, std::slice::from_ref(&winner));
    assert_eq!((report.conflicts, report.reissued), (1, 0));
    assert_eq!(all(store).len(), 1);
    let key = winner.block.key();
    let held = store.block(SPACE, &key).unwrap().unwrap();
    assert_eq!(held.hash, winner.hash);
    assert_eq!(asides(store), [(ours.hash, "conflict".to_owned())]);
    // The next block stands on the one that is held.
    let next = write_as(store, "f", &author, "next");
    assert_eq!(
        next.block.predecessor.unwrap().hash,
        Some(winner.hash),
        "not on the one that lost"
    );
}

pub fn a_block_that_loses_its_key_is_written_again_with_what_follows_it(store: Store<'_>) {
    replica(store);
    for text in ["one", "two", "three"] {
        write(store, "f", "z", text);
    }
    let before: Vec<Held> = store.pending(SPACE, None, &[], MUCH).unwrap();
    let report = adopt(store, 0, 4, &[theirs("f", "z", 1, 4)]);
    assert_eq!((report.conflicts, report.reissued), (0, 3));
    assert_eq!(all(store), ["4:z1", "-:z4", "-:z5", "-:z6"]);
    let again = store.pending(SPACE, None, &[], MUCH).unwrap();
    let payloads = |blocks: &[Held]| -> Vec<_> {
        let blocks = blocks.iter();
        blocks.map(|held| held.block.payload.clone()).collect()
    };
    assert_eq!(payloads(&again), payloads(&before));
    let first = again[0].block.predecessor.clone().unwrap();
    assert_eq!((first.sequence, first.actor.as_str()), (1, "z"));
    assert_eq!(first.hash, Some(theirs("f", "z", 1, 4).hash));
    assert_eq!(store.conflicts(SPACE, 9).unwrap(), []);
    write(store, "f", "z", "four");
    assert_eq!(all(store).last().unwrap(), "-:z7");
}

/// It was not written here, so its author writes it again.
pub fn a_pulled_block_that_loses_its_key_is_kept_and_listed(store: Store<'_>) {
    replica(store);
    let pulled = theirs("f", "z", 1, 4);
    adopt(store, 0, 4, std::slice::from_ref(&pulled));
    let another = block("f", "z", 1, "another");
    let winner = Held {
        hash: another.hash,
        block: another.block,
        position: Some(4),
        namespace: None,
    };
    let report = adopt(store, 0, 4, &[winner]);
    assert_eq!((report.conflicts, report.reissued), (1, 0));
    assert_eq!(asides(store), [(pulled.hash, "conflict".to_owned())]);
}

pub fn refused_blocks_are_written_again_behind_the_authoritys_newest(store: Store<'_>) {
    replica(store);
    adopt(store, 0, 1, &[theirs("g", "z", 1, 1)]);
    for text in ["one", "two", "three"] {
        write(store, "f", "z", text);
    }
    write_as(store, "f", &Author::keyed(&[9; 32]), "signed");
    assert_eq!(store.lost_feed(SPACE).unwrap(), None);
    let refused = [
        (key("f", "z", 1), "conflict"),
        (key("f", "z", 2), "predecessor"),
    ];
    store.set_aside(SPACE, &refused).unwrap();
    assert_eq!(store.lost_feed(SPACE).unwrap().as_deref(), Some("f"));
    let newest = blocklog::chain::Tip {
        sequence: 40,
        actor: "y".into(),
        hash: Hash::of(b"newest"),
    };
    assert_eq!(store.reissue(SPACE, "f", Some(&newest)).unwrap(), 3);
    assert_eq!(store.lost_feed(SPACE).unwrap(), None);
    let waiting = store.pending(SPACE, None, &[], MUCH).unwrap();
    assert_eq!(
        seen(&waiting)[1..],
        ["-:z41", "-:z42", "-:z43"],
        "the signed one stays"
    );
    let first = waiting[1].block.predecessor.clone().unwrap();
    assert_eq!((first.sequence, first.hash), (40, Some(newest.hash)));
    assert_eq!(store.reissue(SPACE, "f", Some(&newest)).unwrap(), 0);
}

/// Everything that is kept aside, with its reason.
fn asides(store: Store<'_>) -> Vec<(Hash, String)> {
    let asides = store.conflicts(SPACE, 100).unwrap().into_iter();
    asides
        .map(|aside| (aside.held.hash, aside.reason))
        .collect()
}

pub fn what_the_authority_refuses_is_not_pushed_again(store: Store<'_>) {
    replica(store);
    write(store, "f", "a", "1");
    write(store, "f", "a", "2");
    store
        .set_aside(SPACE, &[(key("f", "a", 1), "notAllowed")])
        .unwrap();
    assert_eq!(
        seen(&store.pending(SPACE, None, &[], MUCH).unwrap()),
        ["-:a2"]
    );
    assert_eq!(all(store), ["-:a1", "-:a2"], "it can still be read");
    let listed: Vec<String> = asides(store).into_iter().map(|(_, why)| why).collect();
    assert_eq!(listed, ["notAllowed"], "and is listed with its reason");
}

pub fn pending_honours_the_feeds_it_is_asked_for(store: Store<'_>) {
    replica(store);
    for feed in ["f", "g", "h", "f"] {
        write(store, feed, feed, "");
    }
    let pending = |only: Option<&[&str]>, apart: &[&str], blocks| {
        let strings = |names: &[&str]| {
            names
                .iter()
                .map(|&name| name.to_owned())
                .collect::<Vec<String>>()
        };
        let only = only.map(strings);
        seen(
            &store
                .pending(
                    SPACE,
                    only.as_deref(),
                    &strings(apart),
                    PageMax {
                        blocks,
                        bytes: 1000,
                    },
                )
                .unwrap(),
        )
    };
    assert_eq!(pending(None, &[], 9), ["-:f1", "-:g1", "-:h1", "-:f2"]);
    assert_eq!(pending(None, &["g"], 2), ["-:f1", "-:h1"]);
    assert_eq!(pending(Some(&["h", "f"]), &[], 9), ["-:f1", "-:h1", "-:f2"]);
    assert_eq!(pending(Some(&[]), &[], 9), [""; 0]);
}

pub fn what_would_never_be_sent_is_not_written(store: Store<'_>) {
    store.open(SPACE, Role::Replica, epoch(2)).unwrap();
    write(
        store,
        "before",
        "a",
        "a replica without a setting may be given any",
    );
    let set = |feed: &str, mode| {
        let target = Target::Feed(feed.into());
        store.set_lane(SPACE, &target, Some(mode)).unwrap();
    };
    set("wanted", Mode::Tail);
    let try_both = |feed: &str| {
        let name = FeedName {
            feed,
            namespace: None,
        };
        let draft = Draft {
            timestamp_ms: 7,
            data: b"x".to_vec(),
        };
        let written = store.write(SPACE, &name, &Author::named("a"), &[draft], 1);
        assert_eq!(
            refusals(written.map(|_| Vec::new())),
            [(0, Refusal::NotReplicated)]
        );
        let batch = [block("wanted", "b", 1, ""), block(feed, "b", 1, "")];
        assert_eq!(
            refusals(append(store, &batch)),
            [(1, Refusal::NotReplicated)]
        );
    };
    try_both("other");
    try_both("before");
    store
        .set_lane(SPACE, &Target::Space, Some(Mode::From(0)))
        .unwrap();
    set("apart", Mode::None);
    try_both("apart");
    write(store, "wanted", "a", "sent");
    append(store, &[block("other", "b", 1, "")]).unwrap();
    assert_eq!(all(store).len(), 3);
}

pub fn lanes_are_kept_and_start_over_when_healing(store: Store<'_>) {
    replica(store);
    let feed = Target::Feed("f".into());
    store.set_lane(SPACE, &feed, Some(Mode::Tail)).unwrap();
    store
        .set_lane(SPACE, &Target::Feed("g".into()), Some(Mode::Since(77)))
        .unwrap();
    store
        .set_lane(SPACE, &Target::Feed("h".into()), Some(Mode::None))
        .unwrap();
    adopt(
        store,
        0,
        3,
        &[theirs("x", "z", 1, 2), theirs("x", "z", 2, 3)],
    );
    let modes: Vec<Mode> = store
        .lanes(SPACE)
        .unwrap()
        .iter()
        .map(|lane| lane.mode)
        .collect();
    assert_eq!(
        modes,
        [Mode::Tail, Mode::Since(77), Mode::None, Mode::From(0)]
    );
    let space = store.lanes(SPACE).unwrap().pop().unwrap();
    assert_eq!((space.after, space.cursor.as_deref()), (3, Some("cursor")));
    assert_eq!(store.upstream(SPACE).unwrap().epoch, Some(epoch(1)));

    let before = store.space(SPACE).unwrap().unwrap().epoch;
    store.begin_healing(SPACE, epoch(4)).unwrap();
    let space = store.lanes(SPACE).unwrap().pop().unwrap();
    assert_eq!((space.after, space.cursor, space.resolved), (0, None, true));
    let tail = &store.lanes(SPACE).unwrap()[0];
    assert_eq!(
        (tail.mode, tail.after, tail.resolved),
        (Mode::Tail, 0, true)
    );
    let since = (Target::Feed("i".into()), Some(Mode::Since(9)));
    store.set_lane(SPACE, &since.0, since.1).unwrap();
    let lanes = store.lanes(SPACE).unwrap();
    let set = lanes.iter().find(|lane| lane.target == since.0).unwrap();
    assert!(set.resolved, "a lane set meanwhile walks everything too");
    let upstream = store.upstream(SPACE).unwrap();
    assert_eq!((upstream.epoch, upstream.healing), (Some(epoch(4)), true));
    assert_eq!(store.end_healing(SPACE, 2).unwrap(), 1);
    assert!(!store.upstream(SPACE).unwrap().healing);
    assert_ne!(
        store.space(SPACE).unwrap().unwrap().epoch,
        before,
        "readers of this replica are told"
    );
    assert_eq!(all(store), ["2:z1", "-:z2"]);
    store.set_lane(SPACE, &feed, None).unwrap();
    assert_eq!(store.lanes(SPACE).unwrap().len(), 4);
}

pub fn a_lane_that_was_set_meanwhile_is_not_moved_by_a_page_asked_before(store: Store<'_>) {
    replica(store);
    adopt(store, 0, 2, &[theirs("f", "z", 1, 2)]);
    let asked = store.lanes(SPACE).unwrap();
    let page = |apart: &[String], covered| {
        let block = theirs("f", "z", covered, covered);
        let pulled = Pulled {
            start: None,
            lanes: &asked,
            apart,
            after: 2,
            covered,
            cursor: "later",
            epoch: epoch(1),
            blocks: &[block],
            evicted: &[],
            forgotten: 0,
        };
        store.adopt(SPACE, &pulled, 9000).unwrap();
        store.lanes(SPACE).unwrap().pop().unwrap().after
    };
    let feed = Target::Feed("g".into());
    store.set_lane(SPACE, &feed, Some(Mode::None)).unwrap();
    assert_eq!(page(&[], 5), 2, "what is left to the space changed");
    assert_eq!(all(store), ["2:z1", "5:z5"], "but what it brought is true");
    let space = Some(Mode::From(0));
    store.set_lane(SPACE, &Target::Space, space).unwrap();
    assert_eq!(page(&["g".into()], 6), 0, "the lane itself changed");
}

pub fn a_healing_leaves_no_position_that_nobody_answered_for(store: Store<'_>) {
    replica(store);
    let three = [
        theirs("f", "z", 1, 1),
        theirs("g", "z", 2, 2),
        theirs("f", "z", 3, 3),
    ];
    adopt(store, 0, 3, &three);
    let left_alone = Target::Feed("g".into());
    store
        .set_lane(SPACE, &left_alone, Some(Mode::None))
        .unwrap();
    store.begin_healing(SPACE, epoch(4)).unwrap();
    assert_eq!(store.end_healing(SPACE, 2).unwrap(), 2);
    assert_eq!(all(store), ["1:z1", "-:z2", "-:z3"]);
}
