//! Pages below memory, where the store walks, seeks, or first one and then the other.

use std::collections::BTreeSet;

use feedmill::store::{FeedQuery, Lens};
use sim::rng::Rng;

use crate::desk::Desk;

const CONFIG: &str = "[collections.follow]\ncollection = \"com.example.follow\"\nvalidate = false\n\
    [collections.post]\ncollection = \"com.example.post\"\nvalidate = false\n\
    [feeds.timeline]\ntargets = [\"post\"]\n";
const READER: &str = "did:web:reader.test";

fn author(number: u64) -> String {
    format!("did:web:a{number}.test")
}

/// A reader of `follows` among `authors`, posts of all of them, some deleted; every page size.
fn check(follows: u64, authors: u64) {
    let desk = Desk::new(CONFIG);
    for number in 0..follows {
        let body = format!("{{\"subject\":\"{}\"}}", author(number));
        desk.put(READER, "follow", &format!("f{number}"), &body);
    }
    let mut rng = Rng::new(follows * 1000 + authors);
    let mut expected: BTreeSet<(String, String)> = BTreeSet::new();
    for post in 0..400 {
        let number = rng.below(authors);
        // Few moments, so that many share one.
        let time = format!("2026-01-01T00:00:{:02}.000Z", rng.below(20));
        let rkey = format!("p{post:03}");
        let body = format!("{{\"createdAt\":\"{time}\"}}");
        desk.put(&author(number), "post", &rkey, &body);
        if rng.chance(0.1) {
            desk.delete(&author(number), "post", &rkey);
        } else if number < follows {
            expected.insert((time, desk.uri(&author(number), "post", &rkey)));
        }
    }
    let expected: Vec<String> = expected.into_iter().rev().map(|(_, uri)| uri).collect();
    let plan = desk.store.plan().feed("timeline").unwrap();
    for limit in [1, 7, 50, 500] {
        let mut query = FeedQuery {
            lens: Lens::default(),
            reader: READER.into(),
            lanes: plan
                .targets
                .iter()
                .map(|target| (target.lane, None))
                .collect(),
            follows: plan.follows.clone(),
            hides: Vec::new(),
            include_self: false,
            before: None,
            limit,
            scan_max: 2_000,
        };
        let mut found = Vec::new();
        loop {
            let page = desk.store.feed(&query).unwrap();
            found.extend(page.rows.into_iter().map(|row| row.uri));
            match page.next {
                Some(next) => query.before = Some(next),
                None => break,
            }
        }
        assert_eq!(found, expected, "{follows} of {authors} by {limit}");
    }
}

#[test]
fn pages_are_the_same_where_few_or_most_of_what_is_written_is_followed() {
    check(8, 10); // sought
    check(40, 44); // walked
    check(40, 400); // a walk in vain, then sought
    check(40, 4_000); // nearly nothing is followed
}
