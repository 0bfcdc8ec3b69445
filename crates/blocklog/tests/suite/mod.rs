//! The promises of a store, as tests. Every store runs all of them.
//!
//! In:    a fresh, empty store.
//! Out:   a panic with the broken promise, or nothing.
//! Never: a test that knows which store it runs against.

use blocklog::block::{Block, BlockKey, Hash, Head, Held, Payload};
use blocklog::chain::{Draft, Refusal, Sealed};
use blocklog::cursor::Epoch;
use blocklog::limits::{BLOCK_BYTES, INTEGER_MAX, Limits};
use blocklog::page::{Page, PageMax, PendingStart, Selection, Start};
use blocklog::replica::{Lane, Mode, Pulled, Target};
use blocklog::signature::Author;
use blocklog::store::{
    AppendError, Crowded, FeedName, Keep, ReplicaStore, Role, Subscription, SubscriptionsMax,
};

pub mod keeping;
pub mod learning;

/// Run every promise against the stores `$make` makes.
macro_rules! promises {
    ($make:expr) => {
        promises!(@each $make;
            keeping {
                positions_count_from_one_over_all_feeds,
                the_same_block_again_keeps_its_position,
                other_bytes_under_a_known_key_write_nothing,
                one_bad_block_keeps_the_whole_batch_out,
                a_false_predecessor_is_refused_within_a_batch_too,
                a_feed_keeps_the_namespace_of_its_first_block,
                a_full_space_takes_no_more_feeds,
                a_space_takes_no_more_bytes_than_its_quota,
                sequences_go_up_to_the_largest_integer,
                concurrent_writers_lose_nothing,
                eviction_gives_no_position_or_sequence_back,
                an_evicted_block_that_comes_again_stays_gone,
                eviction_by_time_keeps_what_was_placed_since,
                a_page_is_bounded_by_bytes_and_never_empty,
                a_selection_sees_its_feeds_only,
                a_covered_point_moves_to_the_end_of_the_log,
                heads_tell_histories_apart,
                time_finds_a_position,
                a_purged_block_keeps_its_place_and_hash,
                subscriptions_are_renewed_counted_and_forgotten,
                subscriptions_have_no_more_bytes_than_their_space_has_left,
                feeds_are_listed_by_id_in_pages,
                spaces_do_not_see_each_other,
            }
            learning {
                pages_join_up_whatever_their_size,
                what_was_acknowledged_is_kept_for_as_long_as_what_was_pulled,
                unpositioned_blocks_come_last_in_lamport_order,
                a_known_position_ahead_of_the_pull_is_provisional,
                a_pulled_page_repairs_a_lost_acknowledgement,
                a_pulled_range_takes_back_positions_it_lacks,
                only_what_may_be_evicted_and_forgotten_is_not_taken_for_lost,
                a_taken_position_sends_its_holder_back_to_wait,
                a_signed_block_that_loses_its_key_is_kept_and_listed,
                a_block_that_loses_its_key_is_written_again_with_what_follows_it,
                a_pulled_block_that_loses_its_key_is_kept_and_listed,
                refused_blocks_are_written_again_behind_the_authoritys_newest,
                what_the_authority_refuses_is_not_pushed_again,
                pending_honours_the_feeds_it_is_asked_for,
                what_would_never_be_sent_is_not_written,
                lanes_are_kept_and_start_over_when_healing,
                a_lane_that_was_set_meanwhile_is_not_moved_by_a_page_asked_before,
                a_healing_leaves_no_position_that_nobody_answered_for,
            }
        );
    };
    (@each $make:expr; $($group:ident { $($name:ident,)* })*) => {
        $($(#[test]
        fn $name() {
            suite::$group::$name(&$make);
        })*)*
    };
}
pub(crate) use promises;

const SPACE: &str = "space";

type Store<'a> = &'a dyn ReplicaStore;

fn epoch(number: u8) -> Epoch {
    Epoch([number; 16])
}

fn authority(store: Store<'_>) {
    store.open(SPACE, Role::Authority, epoch(1)).unwrap();
}

fn replica(store: Store<'_>) {
    store.open(SPACE, Role::Replica, epoch(2)).unwrap();
    store
        .set_lane(SPACE, &Target::Space, Some(Mode::From(0)))
        .unwrap();
}

fn block(feed: &str, actor: &str, sequence: u64, data: &str) -> Sealed {
    let block = Block {
        feed: feed.into(),
        actor: actor.into(),
        sequence,
        predecessor: None,
        timestamp_ms: 1000 + sequence,
        payload: Payload::Bytes(data.into()),
        signature: None,
    };
    Sealed::new(SPACE, block)
}

fn key(feed: &str, actor: &str, sequence: u64) -> BlockKey {
    block(feed, actor, sequence, "").block.key()
}

fn append(store: Store<'_>, blocks: &[Sealed]) -> Result<Vec<Option<u64>>, AppendError> {
    store.append(SPACE, None, blocks, 5000, &Limits::default())
}

fn write(store: Store<'_>, feed: &str, actor: &str, data: &str) -> Held {
    write_as(store, feed, &Author::named(actor), data)
}

fn write_as(store: Store<'_>, feed: &str, author: &Author, data: &str) -> Held {
    let draft = Draft {
        timestamp_ms: 7,
        data: data.into(),
    };
    let name = FeedName {
        feed,
        namespace: None,
    };
    let mut written = store.write(SPACE, &name, author, &[draft], 5000).unwrap();
    written.pop().unwrap()
}

#[track_caller]
fn refusals(result: Result<Vec<Option<u64>>, AppendError>) -> Vec<(usize, Refusal)> {
    match result {
        Err(AppendError::Refused(refused)) => refused
            .into_iter()
            .map(|one| (one.index, one.refusal))
            .collect(),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

const MUCH: PageMax = PageMax {
    blocks: 10_000,
    bytes: 1 << 30,
};

fn final_after(after: u64) -> Start {
    Start {
        after,
        pending: PendingStart::Excluded,
    }
}

fn everything() -> Start {
    Start {
        after: 0,
        pending: PendingStart::All,
    }
}

fn page(store: Store<'_>, selection: &Selection, start: &Start, max: PageMax) -> Page {
    store.page(SPACE, selection, start, max).unwrap()
}

/// What a reader sees, as "position:actor+sequence".
fn seen(blocks: &[Held]) -> Vec<String> {
    let one = |held: &Held| {
        let position = held
            .position
            .map_or("-".to_owned(), |position| position.to_string());
        format!("{position}:{}{}", held.block.actor, held.block.sequence)
    };
    blocks.iter().map(one).collect()
}

fn all(store: Store<'_>) -> Vec<String> {
    seen(&page(store, &Selection::Space, &everything(), MUCH).blocks)
}

/// A block as the authority would send it.
fn theirs(feed: &str, actor: &str, sequence: u64, position: u64) -> Held {
    let sealed = block(feed, actor, sequence, "theirs");
    Held {
        block: sealed.block,
        hash: sealed.hash,
        position: Some(position),
        namespace: None,
    }
}

/// A block of ours, as the authority would send it back.
fn theirs_of(store: Store<'_>, feed: &str, actor: &str, sequence: u64, position: u64) -> Held {
    let ours = store
        .block(SPACE, &key(feed, actor, sequence))
        .unwrap()
        .unwrap();
    Held {
        position: Some(position),
        ..ours
    }
}

/// A page of the space's lane.
fn adopt_evicted(
    store: Store<'_>,
    after: u64,
    covered: u64,
    blocks: &[Held],
    evicted: &[(String, u64)],
) -> blocklog::replica::Adopted {
    let lanes = store.lanes(SPACE).unwrap().into_iter();
    let (asked, own): (Vec<Lane>, Vec<Lane>) = lanes.partition(|lane| lane.target == Target::Space);
    let feeds = own.iter().filter_map(|lane| lane.target.feed());
    let apart: Vec<String> = feeds.map(str::to_owned).collect();
    let pulled = Pulled {
        start: None,
        lanes: &asked,
        apart: &apart,
        after,
        covered,
        cursor: "cursor",
        epoch: epoch(1),
        blocks,
        evicted,
        forgotten: 2,
    };
    store.adopt(SPACE, &pulled, 9000).unwrap()
}

fn adopt(
    store: Store<'_>,
    after: u64,
    covered: u64,
    blocks: &[Held],
) -> blocklog::replica::Adopted {
    adopt_evicted(store, after, covered, blocks, &[])
}

fn acknowledge(
    store: Store<'_>,
    positions: &[(&str, &str, u64, u64)],
) -> blocklog::replica::Acknowledged {
    let positions: Vec<(BlockKey, u64)> = positions
        .iter()
        .map(|&(feed, actor, sequence, position)| (key(feed, actor, sequence), position))
        .collect();
    store.acknowledge(SPACE, &positions, 8000).unwrap()
}
