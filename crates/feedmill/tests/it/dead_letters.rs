//! Dead letters are true: under their event's own number, one for the same
//! bytes, gone with what they are about, bounded in age and bytes.

use std::sync::Arc;

use feedmill::dead;
use feedmill::dead::job::{Job, State};
use feedmill::decode::jetstream::JetstreamDecoder;
use feedmill::decode::{Decoder, Opener};
use feedmill::intake::Intake;
use feedmill::source::{Arrival, Rewind};
use feedmill::status::Status;
use feedmill::store::batch::{DeadLetter, Item, Op, Snapshot, Verdict};
use feedmill::store::{AccountStatus, Closed, Fate, LetterQuery};
use feedmill::tend::Tend;

use super::desk::{ALICE, BOB, Desk};

const DAY_S: i64 = 24 * 3600;

fn collections(more: &str) -> String {
    format!(
        "[collections.note]\ncollection = \"com.example.note\"\nvalidate = false\n\
         [[collections.note.rule]]\nname = \"small\"\nexpect = \"record.size <= 5\"\nmessage = \"too large\"\npath = \"size\"\n\
         [collections.reply]\ncollection = \"com.example.reply\"\nvalidate = false\nrequires = [\"parent\"]\n\
         {more}"
    )
}

fn desk() -> Desk {
    Desk::new(&collections(""))
}

fn all() -> LetterQuery {
    LetterQuery::default()
}

fn intake(desk: &Desk) -> Intake {
    let decoder = Decoder::new(Arc::clone(&desk.checker), &desk.config.intake);
    Intake::new(
        "test".into(),
        Opener::Jetstream(JetstreamDecoder::new(decoder)),
        desk.store.clone(),
        Arc::new(Rewind::default()),
        Arc::new(Status::default()),
    )
}

fn arrivals(messages: &[String]) -> Vec<Arrival> {
    let arrival = |message: &String| Arrival {
        frame: message.clone().into_bytes().into(),
        row: "test".into(),
        ..Arrival::default()
    };
    messages.iter().map(arrival).collect()
}

/// A message of a Jetstream: a note of this size at this number.
fn message(seq: i64, rkey: &str, size: u32) -> String {
    let rev = record::tid::Tid::new(seq.unsigned_abs(), 0);
    format!(
        "{{\"did\":\"{ALICE}\",\"time_us\":{seq},\"kind\":\"commit\",\"commit\":{{\"rev\":\"{rev}\",\"operation\":\"create\",\
         \"collection\":\"com.example.note\",\"rkey\":\"{rkey}\",\"record\":{{\"size\":{size}}}}}}}"
    )
}

#[test]
fn a_dead_letter_carries_the_number_of_its_own_event() {
    let desk = desk();
    let lacking = format!("{{\"did\":\"{ALICE}\",\"time_us\":1002,\"kind\":\"commit\"}}");
    let messages = [
        message(1001, "a", 9),
        lacking,
        message(1003, "b", 9),
        message(1004, "c", 1),
    ];
    intake(&desk)
        .step(desk.now_us(), &arrivals(&messages))
        .unwrap();
    let numbers: Vec<_> = desk.letters().iter().map(|letter| letter.cursor).collect();
    assert_eq!(numbers, [1003, 1002, 1001]);
    assert_eq!(desk.store.cursor("test").unwrap(), Some(1004));
}

#[test]
fn what_waited_in_a_queue_is_dead_under_the_number_of_its_own_event() {
    let desk = Desk::new(
        "[queues.slow]\nconcurrency = 1\n[intake]\nbatch_max = 2\n[collections.note]\ncollection = \"com.example.note\"\n\
         validate = false\nqueue = \"slow\"\n[[collections.note.rule]]\nname = \"small\"\n\
         expect = \"record.size <= 5\"\nmessage = \"too large\"\n",
    );
    let messages: Vec<String> = (0..9)
        .map(|n| message(2001 + n, &n.to_string(), 9))
        .collect();
    intake(&desk)
        .step(desk.now_us(), &arrivals(&messages))
        .unwrap();
    while desk.store.waiting().unwrap().pending > 0 {
        desk.store.turn(desk.now_us()).unwrap();
    }
    let mut numbers: Vec<_> = desk.letters().iter().map(|letter| letter.cursor).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (2001..2010).collect::<Vec<i64>>());
}

#[test]
fn the_same_bytes_are_one_dead_letter_however_often_they_arrive() {
    let desk = desk();
    for _ in 0..3 {
        desk.apply(Item::Unopened(DeadLetter {
            did: BOB.into(),
            stage: "frame".into(),
            raw: "AAAA".into(),
            ..DeadLetter::default()
        }));
        desk.put(ALICE, "note", "1", "{\"size\":9}");
    }
    let letters = desk.letters();
    assert_eq!(letters.len(), 2, "{letters:?}");
    assert!(letters.iter().all(|letter| letter.arrivals == 3));
    let accounting = desk.accounting();
    assert_eq!((accounting.dead, accounting.repeated), (2, 4));
    // The account is fetched because of the frame's first arrival, not of each.
    let broken = desk.apply(Item::Unopened(DeadLetter {
        did: BOB.into(),
        stage: "frame".into(),
        raw: "AAAA".into(),
        ..DeadLetter::default()
    }));
    assert!(broken.broken.is_empty());
}

#[test]
fn another_version_that_is_refused_takes_the_place_of_the_one_before() {
    let desk = desk();
    desk.put(ALICE, "note", "1", "{\"size\":9}");
    let before = desk.letter().id;
    desk.put(ALICE, "note", "1", "{\"size\":8}");
    let letter = desk.letter();
    assert!(
        letter.id != before && letter.raw.contains('8'),
        "{letter:?}"
    );
    assert_eq!(desk.accounting().dead, 1);
}

#[test]
fn a_dead_letter_is_closed_when_its_record_is_deleted_or_replaced() {
    let desk = desk();
    desk.put(ALICE, "note", "1", "{\"size\":9}");
    desk.put(ALICE, "note", "2", "{\"size\":9}");
    let deleted = desk.delete(ALICE, "note", "1");
    assert_eq!(deleted.closed, [(Closed::Deleted, 1)]);
    assert_eq!(desk.letter().rkey, "2");
    let replaced = desk.put(ALICE, "note", "2", "{\"size\":1}");
    assert_eq!(replaced.closed, [(Closed::Newer, 1)]);
    assert!(desk.letters().is_empty());
    let accounting = desk.accounting();
    assert_eq!((accounting.dead, accounting.superseded), (0, 2));
}

#[test]
fn a_dead_letter_that_waits_is_closed_with_its_record() {
    let desk = desk();
    let lacking = format!("{{\"parent\":\"{}\"}}", desk.uri(BOB, "note", "1"));
    desk.put(ALICE, "reply", "1", &lacking);
    for pause in [1, 4, 16] {
        desk.pass(pause);
    }
    assert_eq!(desk.letter().stage, "dependency");
    desk.delete(ALICE, "reply", "1");
    assert!(desk.letters().is_empty());
    // What it lacked comes, and brings nothing back.
    desk.put(BOB, "note", "1", "{\"size\":1}");
    assert!(!desk.has(ALICE, "reply", "1"));
}

#[test]
fn an_account_that_goes_takes_its_dead_letters_and_what_they_hold_with_it() {
    let desk = desk();
    desk.put(ALICE, "note", "1", "{\"size\":9}");
    desk.put(BOB, "note", "1", "{\"size\":9}");
    desk.apply(Item::Unopened(DeadLetter {
        did: ALICE.into(),
        stage: "frame".into(),
        raw: "AAAA".into(),
        ..DeadLetter::default()
    }));
    let gone = desk.apply(Item::Account {
        did: ALICE.into(),
        status: AccountStatus::Deleted,
        time_us: desk.now_us(),
    });
    assert_eq!(gone.closed, [(Closed::Account, 2)]);
    assert_eq!(desk.letter().did, BOB);
    assert_eq!(desk.accounting().dead, 1);
}

#[test]
fn a_repository_fetched_whole_closes_what_it_no_longer_holds_and_what_could_not_be_believed() {
    let desk = desk();
    for rkey in ["1", "2"] {
        desk.put(ALICE, "note", rkey, "{\"size\":9}");
    }
    desk.apply(Item::Unopened(DeadLetter {
        did: ALICE.into(),
        collection: "com.example.note".into(),
        rkey: "3".into(),
        stage: "verify".into(),
        raw: "{}".into(),
        ..DeadLetter::default()
    }));
    let rev = desk.next_rev();
    let op = |rkey: &str, body: &str| Op {
        collection: "com.example.note".into(),
        rkey: rkey.into(),
        verdict: desk.check(ALICE, "note", rkey, rev, body),
    };
    // One is as it was, one is gone, and the third can be believed now.
    desk.apply(Item::Snapshot(Snapshot {
        did: ALICE.into(),
        rev,
        data: None,
        ops: vec![op("1", "{\"size\":9}"), op("3", "{\"size\":1}")],
        held: 0,
    }));
    let letter = desk.letter();
    assert_eq!((letter.rkey.as_str(), letter.rev), ("1", rev));
    assert!(matches!(
        op("1", "{\"size\":9}").verdict,
        Verdict::Refused(_)
    ));
    assert!(desk.has(ALICE, "note", "3"));
}

#[test]
fn a_dead_letter_is_kept_for_so_many_days() {
    let desk = Desk::new(&collections("[settle]\ndead_days = 2\n"));
    let mut tend = Tend::new(desk.store.clone(), desk.config.settle.clone());
    desk.put(ALICE, "note", "1", "{\"size\":9}");
    desk.pass(DAY_S);
    desk.put(ALICE, "note", "2", "{\"size\":9}");
    desk.pass(DAY_S);
    tend.step(desk.now_us()).unwrap();
    assert_eq!(desk.letters().len(), 2, "two days are not over yet");
    desk.pass(1);
    tend.step(desk.now_us()).unwrap();
    assert_eq!(desk.letter().rkey, "2");
    // What was forgotten stays counted as dead: that is what became of it.
    assert_eq!(desk.accounting().dead, 2);
}

#[test]
fn no_more_bytes_of_dead_letters_are_kept_than_may_be() {
    let bytes_max = 20_000;
    let desk = Desk::new(&collections(&format!(
        "[settle]\ndead_bytes_max = {bytes_max}\n"
    )));
    let padding = "x".repeat(1000);
    for number in 0..100 {
        let body = format!("{{\"size\":9,\"padding\":\"{padding}\"}}");
        desk.put(ALICE, "note", &number.to_string(), &body);
        let waiting = desk.store.waiting().unwrap();
        assert!(waiting.dead_bytes <= bytes_max, "{waiting:?}");
    }
    let letters = desk.letters();
    assert!((10..20).contains(&letters.len()), "{}", letters.len());
    assert_eq!(letters[0].rkey, "99", "the oldest go first");
}

#[test]
fn a_replay_keeps_the_number_and_gives_todays_reason() {
    let folder = tempfile::tempdir().unwrap();
    let text = |expect: &str, message: &str| {
        format!(
            "namespace = \"com.example\"\n[collections.note]\ncollection = \"com.example.note\"\nvalidate = false\n\
             [[collections.note.rule]]\nname = \"r\"\nexpect = \"{expect}\"\nmessage = \"{message}\"\n\
             [store]\nurl = \"sqlite://{}/s.db\"\n",
            folder.path().display()
        )
    };
    let open =
        |text: String| Desk::of(feedmill::config::Config::parse(&text).expect("a configuration"));
    let desk = open(text("record.size <= 5", "too large"));
    desk.put(ALICE, "note", "1", "{\"size\":9}");
    let id = desk.letter().id;
    drop(desk);
    let desk = open(text("record.size > 10", "too small"));
    let done = dead::replay(&*desk.store, &desk.checker, desk.now_us(), id).unwrap();
    let letter = done.letter.unwrap();
    assert_eq!((done.fate, letter.id), (Fate::Buried, id));
    assert_eq!(letter.message, "too small");
    assert_eq!(letter.replayed_us, Some(desk.now_us()));
    assert_eq!(letter.arrivals, 1, "a replay is no arrival");
    assert_eq!(desk.accounting().dead, 1);
}

#[test]
fn a_replayed_record_that_waits_in_vain_is_dead_under_its_number_again() {
    let desk = desk();
    let lacking = format!("{{\"parent\":\"{}\"}}", desk.uri(BOB, "note", "1"));
    desk.put(ALICE, "reply", "1", &lacking);
    let wait = || [1, 4, 16].map(|pause| desk.pass(pause));
    wait();
    let id = desk.letter().id;
    let done = dead::replay(&*desk.store, &desk.checker, desk.now_us(), id).unwrap();
    assert_eq!(done.fate, Fate::Parked);
    assert!(desk.letters().is_empty());
    wait();
    assert_eq!(desk.letter().id, id);
    desk.put(BOB, "note", "1", "{\"size\":1}");
    assert!(desk.has(ALICE, "reply", "1"), "it wakes all the same");
    assert!(desk.letters().is_empty());
}

#[test]
fn a_replay_of_many_shows_how_far_it_is_and_can_be_stopped() {
    let desk = desk();
    for number in 0..250 {
        desk.put(ALICE, "note", &number.to_string(), "{\"size\":9}");
    }
    let clock = feedmill::clock::Clock::at(desk.now_us());
    let job = Job::new(&clock);
    let ended = job.run(
        &*desk.store,
        &desk.checker,
        &clock,
        &all(),
        &mut |progress| {
            assert_eq!((progress.total, &progress.state), (250, &State::Running));
            if progress.done == 120 {
                job.stop();
            }
        },
    );
    assert_eq!((ended.state, ended.done), (State::Stopped, 120));
    let tried = |letter: &DeadLetter| letter.replayed_us.is_some();
    let letters = desk
        .store
        .letters(&LetterQuery {
            limit: 999,
            ..all()
        })
        .unwrap();
    assert_eq!(letters.iter().filter(|letter| tried(letter)).count(), 120);
    let whole = Job::new(&clock);
    let ended = whole.run(&*desk.store, &desk.checker, &clock, &all(), &mut |_| {});
    assert_eq!((ended.state, ended.buried), (State::Done, 250));
}

#[test]
fn totals_follow_the_filter() {
    let desk = desk();
    for number in 0..5 {
        desk.put(ALICE, "note", &number.to_string(), "{\"size\":9}");
    }
    desk.put(BOB, "note", "1", "{\"size\":9}");
    let count = |query: LetterQuery| desk.store.count_dead(&query).unwrap();
    assert_eq!(count(all()), 6);
    assert_eq!(
        count(LetterQuery {
            did: Some(BOB.into()),
            ..all()
        }),
        1
    );
    assert_eq!(
        count(LetterQuery {
            stage: Some("lexicon".into()),
            ..all()
        }),
        0
    );
    let since_us = Some(desk.now_us() + 1);
    assert_eq!(count(LetterQuery { since_us, ..all() }), 0);
    let page = LetterQuery {
        limit: 2,
        before: Some(3),
        ..all()
    };
    assert_eq!(count(page), 6, "a page does not change the total");
}

#[test]
fn thresholds_are_by_stage_collection_and_rate() {
    let desk = Desk::new(&collections(
        "[settle]\ndead_alert = 0\n[[settle.alert]]\nstage = \"rule\"\ncollection = \"com.example.note\"\nabove = 2\n\
         [[settle.alert]]\nstage = \"frame\"\nabove = 0\n[[settle.alert]]\nper_hour = 3\n",
    ));
    let mut tend = Tend::new(desk.store.clone(), desk.config.settle.clone());
    let mut raised = |now_us| -> Vec<_> {
        let alerts = tend.step(now_us).unwrap();
        let name = |alert: &feedmill::tend::Alert| (alert.alert.clone(), alert.stage.clone());
        alerts.iter().map(name).collect()
    };
    let refuse = |rkey: &str| desk.put(ALICE, "note", rkey, "{\"size\":9}");
    refuse("1");
    refuse("2");
    assert_eq!(raised(desk.now_us()), []);
    refuse("3");
    let kept = || (String::from("dead_letters"), Some(String::from("rule")));
    assert_eq!(raised(desk.now_us()), [kept()]);
    refuse("4");
    desk.pass(60);
    let rate = || (String::from("dead_letters_per_hour"), None);
    assert_eq!(raised(desk.now_us()), [rate()]);
    // An hour later the rate is low again, and the rest is still too many.
    desk.pass(3600);
    assert_eq!(raised(desk.now_us()), [kept()]);
    for rkey in ["1", "2", "3", "4"] {
        desk.delete(ALICE, "note", rkey);
    }
    assert_eq!(raised(desk.now_us() + 7_200_000_000), []);
}

#[test]
fn a_threshold_that_makes_no_sense_is_refused_with_its_key() {
    let refused = |text: &str| {
        let text = format!("namespace = \"com.example\"\n{}{text}", collections(""));
        feedmill::config::Config::parse(&text)
            .unwrap_err()
            .to_string()
    };
    let error = refused("[[settle.alert]]\nstage = \"rule\"\n");
    assert!(error.contains("settle.alert.0: says no number"), "{error}");
    let error = refused("[[settle.alert]]\nstage = \"rules\"\nabove = 1\n");
    assert!(
        error.contains("settle.alert.0.stage: \"rules\" is not one of frame"),
        "{error}"
    );
    let error = refused("[[settle.alert]]\ncollection = \"note\"\nabove = 1\n");
    assert!(
        error.contains("settle.alert.0.collection: \"note\""),
        "{error}"
    );
}
