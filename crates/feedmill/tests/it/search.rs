//! The index of words: whatever it missed, lost or never saw, what is found
//! is what the records say.

use std::sync::Arc;

use feedmill::branch::{self, Branch as _, Step};
use feedmill::config::Config;
use feedmill::search::{SearchBranch, SearchIndex};
use feedmill::store::filter::Filter;
use feedmill::store::search::Search;
use feedmill::store::{Lens, ListQuery, Position};

use super::desk::{ALICE, BOB, Desk};

const POST: &str = "com.example.post";

fn config(url: &str, outbox_max: u64, fields: &str) -> Config {
    let text = format!(
        "namespace = \"com.example\"\n[collections.post]\ncollection = \"{POST}\"\nvalidate = false\n\
         searchable = [{fields}]\n[store]\nurl = \"{url}\"\noutbox_max = {outbox_max}\n"
    );
    Config::parse(&text).unwrap()
}

struct Bench {
    desk: Desk,
    index: Arc<SearchIndex>,
    branch: SearchBranch,
    fields: Vec<String>,
}

impl Bench {
    fn new(config: Config) -> Self {
        let index = SearchIndex::open(&config).unwrap().unwrap();
        let fields = config.collections["post"].searchable.clone();
        Self {
            branch: SearchBranch::new(Arc::clone(&index)),
            index,
            desk: Desk::of(config),
            fields,
        }
    }

    fn draw(&mut self) {
        while branch::step(&mut self.branch, &*self.desk.store).unwrap() == Step::More {}
    }

    fn post(&self, did: &str, rkey: &str, text: &str, minute: u32) {
        let body = format!(
            "{{\"text\":\"{text}\",\"title\":\"{rkey}\",\"createdAt\":\"2026-01-01T00:{minute:02}:00Z\"}}"
        );
        self.desk.put(did, "post", rkey, &body);
    }

    /// The keys of all that is found, page by page; with how many pages it took.
    fn find(&self, text: &str, limit: usize, scan_max: usize) -> (Vec<String>, usize) {
        let search = Search::parse(text, &self.fields).unwrap();
        let (mut found, mut pages, mut before) = (Vec::new(), 0, None::<Position>);
        loop {
            let among = self
                .index
                .candidates(POST, &search, before.as_ref())
                .unwrap();
            let query = ListQuery {
                lane: self.desk.store.plan().listing(POST).unwrap(),
                did: None,
                before,
                limit,
                lens: Lens {
                    filters: vec![Filter::Search(search.clone())],
                    among,
                    ..Lens::default()
                },
                scan_max,
            };
            let page = self.desk.store.list(&query).unwrap();
            pages += 1;
            found.extend(page.rows.into_iter().map(|row| row.rkey));
            match page.next {
                Some(next) => before = Some(next),
                None => return (found, pages),
            }
        }
    }

    #[track_caller]
    fn check(&self, text: &str, expected: &[&str]) {
        for limit in [1, 2, 100] {
            assert_eq!(
                self.find(text, limit, 100_000).0,
                expected,
                "{text} by {limit}"
            );
        }
    }
}

#[test]
fn what_is_found_is_what_the_records_say_before_and_after_the_index_has_drawn_them() {
    let mut bench = Bench::new(config("sqlite::memory:", 1_000_000, "\"text\""));
    bench.draw();
    bench.post(ALICE, "a", "the mill turns", 1);
    bench.post(BOB, "b", "a river mill", 2);
    bench.post(ALICE, "c", "River, stone", 2);
    for drawn in [false, true] {
        if drawn {
            bench.draw();
        }
        bench.check("mill", &["b", "a"]);
        bench.check("river", &["b", "c"]);
        bench.check("river mill", &["b"]);
        bench.check("\"mill river\"", &[]);
        bench.check("\"river mill\"", &["b"]);
        bench.check("nothing", &[]);
    }
    // Edited, moved and deleted, and the index has not heard of it.
    bench.post(ALICE, "a", "no more", 1);
    bench.post(ALICE, "c", "mill at last", 3);
    bench.desk.delete(BOB, "post", "b");
    for _ in 0..2 {
        bench.check("mill", &["c"]);
        bench.check("river", &[]);
        bench.check("more", &["a"]);
        bench.draw();
    }
}

#[test]
fn an_index_that_lost_its_place_is_made_anew_from_the_records() {
    let mut bench = Bench::new(config("sqlite::memory:", 5, "\"text\""));
    bench.post(ALICE, "a", "mill", 1);
    bench.draw();
    for number in 0..30 {
        bench.post(BOB, &format!("b{number:02}"), "stone", 2);
    }
    bench.desk.delete(ALICE, "post", "a");
    bench.check("mill", &[]);
    bench.draw();
    bench.check("mill", &[]);
    assert_eq!(bench.find("stone", 7, 100_000).0.len(), 30);
}

#[test]
fn other_fields_make_another_index() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("store.db").display());
    let mut bench = Bench::new(config(&url, 1_000_000, "\"text\""));
    bench.post(ALICE, "a", "mill", 1);
    bench.draw();
    bench.check("mill", &["a"]);
    drop(bench);
    let mut bench = Bench::new(config(&url, 1_000_000, "\"title\""));
    assert_eq!(bench.branch.position().unwrap(), None);
    bench.check("a", &["a"]);
    bench.draw();
    bench.check("a", &["a"]);
    bench.check("mill", &[]);
}

#[test]
fn more_records_of_one_moment_than_it_has_room_for_are_all_found_in_order() {
    let mut bench = Bench::new(config("sqlite::memory:", 1_000_000, "\"text\""));
    // Names in no order, one moment, and neighbours just above and below it.
    let mut expected = Vec::new();
    for number in 0..2500u32 {
        let name = format!("k{:05}", (number * 7919) % 10007);
        bench.post(ALICE, &name, "stone", 5);
        expected.push(name);
    }
    bench.post(ALICE, "above", "stone", 6);
    bench.post(ALICE, "below", "stone", 4);
    expected.sort();
    expected.push("above".into());
    expected.insert(0, "below".into());
    expected.reverse();
    bench.draw();
    for limit in [100, 1000] {
        assert_eq!(
            bench.find("stone", limit, 100_000).0,
            expected,
            "by {limit}"
        );
    }
}

#[test]
fn a_search_that_finds_little_ends_its_page_at_the_bound_and_goes_on() {
    let mut bench = Bench::new(config("sqlite::memory:", 1_000_000, "\"text\""));
    bench.post(ALICE, "old", "mill river", 0);
    for number in 0..9000u32 {
        let text = if number % 2 == 0 { "mill" } else { "river" };
        bench.post(ALICE, &format!("k{number:05}"), text, 1 + number % 50);
    }
    bench.draw();
    let (found, pages) = bench.find("mill river", 10, 300);
    assert_eq!(found, ["old"]);
    assert!(pages > 1, "a bound of 300 was not kept");
}
