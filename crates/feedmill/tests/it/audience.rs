//! Who is reached by what, once: the same steps on timelines in memory and on
//! the store alone, with the same answers after each.

use serde_json::{Value, json};

use crate::mill::Mill;

const ANN: &str = "did:web:ann.test";
const BEN: &str = "did:web:ben.test";
const EVE: &str = "did:web:eve.test";
const NOBODY: [&str; 0] = [];

fn text(memory_mib: u32) -> String {
    let plain = |short: &str| {
        format!("[collections.{short}]\ncollection = \"com.example.{short}\"\nvalidate = false\n")
    };
    let collections: String = ["follow", "friend", "mute", "block", "post", "note"]
        .map(plain)
        .concat();
    format!(
        "namespace = \"com.example\"\n{collections}\
         [feeds.timeline]\nhide = [\"mute\", \"block\"]\n\
         targets = [{{ collection = \"post\", keys = [\"author\", \"topic\"] }}]\n\
         [feeds.friends]\nfollow = \"friend\"\ntargets = [\"post\"]\n\
         [feeds.both]\nfollow = [\"follow\", \"friend\"]\ntargets = [\"post\"]\n\
         [feeds.self]\ntargets = [\"post\"]\ninclude_self = true\n\
         [feeds.mixed]\ntargets = [\"post\", \"note\"]\nmixed = true\n\
         [feeds.ends]\nbeyond = \"end\"\nmax_items = 3\ntargets = [\"post\", {{ collection = \"note\", max_items = 1 }}]\n\
         [feeds.small]\nmax_items = 2\ntargets = [\"post\"]\n\
         [timelines]\nmemory_mib = {memory_mib}\n[store]\nurl = \"sqlite::memory:\"\n"
    )
}

struct Pair {
    memory: Mill,
    store: Mill,
}

impl Pair {
    async fn start() -> Self {
        Self {
            memory: Mill::start(&text(64)).await,
            store: Mill::start(&text(0)).await,
        }
    }

    fn put(&self, did: &str, short: &str, rkey: &str, body: &Value) {
        self.memory.put(did, short, rkey, body);
        self.store.put(did, short, rkey, body);
    }

    fn delete(&self, did: &str, short: &str, rkey: &str) {
        self.memory.delete(did, short, rkey);
        self.store.delete(did, short, rkey);
    }

    fn follow(&self, rkey: &str, subject: &str) {
        self.put(EVE, "follow", rkey, &json!({"subject": subject}));
    }

    fn post(&self, did: &str, short: &str, rkey: &str, second: u32) {
        let time = format!("2026-01-01T00:00:{second:02}Z");
        self.put(
            did,
            short,
            rkey,
            &json!({"createdAt": time, "topic": format!("of:{did}")}),
        );
    }

    /// The feed of Eve, paged by two, from both: the record keys.
    #[track_caller]
    fn shows(&self, feed: &str, expected: &[&str]) -> impl Future<Output = ()> {
        let place = std::panic::Location::caller();
        let expected: Vec<String> = expected.iter().map(|key| (*key).to_owned()).collect();
        let feed = feed.to_owned();
        async move {
            assert_eq!(
                whole(&self.store, &feed).await,
                expected,
                "{place}: the store, {feed}"
            );
            let begun = std::time::Instant::now();
            // Read twice at the least: once cold, and again when the reader is active.
            for _ in 0..2 {
                loop {
                    let found = whole(&self.memory, &feed).await;
                    if found == expected {
                        break;
                    }
                    assert!(
                        begun.elapsed().as_secs() < 60,
                        "{place}: memory, {feed}: {found:?}, not {expected:?}"
                    );
                    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                }
                tokio::time::sleep(std::time::Duration::from_millis(40)).await;
            }
        }
    }

    async fn stop(self) {
        self.memory.river.stop().await;
        self.store.river.stop().await;
    }
}

async fn whole(mill: &Mill, feed: &str) -> Vec<String> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("/xrpc/com.example.getFeed?feed={feed}&actor={EVE}&limit=2{cursor}");
        let (status, page) = mill.get(&path).await;
        assert_eq!(status, 200, "{page}");
        let records = page["records"].as_array().unwrap();
        all.extend(
            records
                .iter()
                .map(|record| record["rkey"].as_str().unwrap().to_owned()),
        );
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_follow_records_for_one_key_count_once_and_one_of_them_may_go() {
    let pair = Pair::start().await;
    pair.post(ANN, "post", "a", 1);
    pair.follow("1", ANN);
    pair.follow("2", ANN);
    pair.shows("timeline", &["a"]).await;
    pair.delete(EVE, "follow", "1");
    pair.post(ANN, "post", "b", 2);
    pair.shows("timeline", &["b", "a"]).await;
    pair.delete(EVE, "follow", "2");
    pair.shows("timeline", &NOBODY).await;
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_reached_by_two_keys_is_shown_once_and_stays_while_one_is_followed() {
    let pair = Pair::start().await;
    pair.follow("1", ANN);
    pair.follow("2", &format!("of:{ANN}"));
    pair.post(ANN, "post", "a", 1);
    pair.shows("timeline", &["a"]).await;
    pair.delete(EVE, "follow", "1");
    pair.shows("timeline", &["a"]).await;
    pair.delete(EVE, "follow", "2");
    pair.shows("timeline", &NOBODY).await;
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mutes_and_blocks_hide_an_author_and_a_key_and_end_with_their_record() {
    let pair = Pair::start().await;
    for (rkey, who) in [("1", ANN), ("2", BEN)] {
        pair.follow(rkey, who);
    }
    pair.post(ANN, "post", "a", 1);
    pair.post(BEN, "post", "b", 2);
    pair.shows("timeline", &["b", "a"]).await;
    pair.put(EVE, "mute", "1", &json!({"subject": BEN}));
    pair.put(EVE, "block", "1", &json!({"subject": BEN}));
    pair.shows("timeline", &["a"]).await;
    // Another feed of the same reader hides nobody.
    pair.shows("both", &["b", "a"]).await;
    pair.delete(EVE, "mute", "1");
    pair.shows("timeline", &["a"]).await;
    pair.delete(EVE, "block", "1");
    pair.shows("timeline", &["b", "a"]).await;
    // A hidden key reaches nobody, though it is followed; the author's own key still does.
    pair.follow("3", &format!("of:{ANN}"));
    pair.put(EVE, "mute", "2", &json!({"subject": format!("of:{ANN}")}));
    pair.shows("timeline", &["b", "a"]).await;
    pair.delete(EVE, "follow", "1");
    pair.shows("timeline", &["b"]).await;
    pair.delete(EVE, "mute", "2");
    pair.shows("timeline", &["b", "a"]).await;
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn own_records_are_shown_by_a_follow_of_oneself_or_where_the_feed_says_so() {
    let pair = Pair::start().await;
    pair.post(EVE, "post", "mine", 1);
    pair.shows("timeline", &NOBODY).await;
    pair.shows("self", &["mine"]).await;
    pair.follow("1", EVE);
    pair.shows("timeline", &["mine"]).await;
    pair.shows("self", &["mine"]).await;
    pair.delete(EVE, "follow", "1");
    pair.shows("timeline", &NOBODY).await;
    pair.shows("self", &["mine"]).await;
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn feeds_do_not_leak_into_each_other() {
    let pair = Pair::start().await;
    pair.follow("1", ANN);
    pair.put(EVE, "friend", "1", &json!({"subject": BEN}));
    pair.post(ANN, "post", "a", 1);
    pair.post(BEN, "post", "b", 2);
    pair.post(ANN, "note", "n", 3);
    pair.shows("timeline", &["a"]).await;
    pair.shows("friends", &["b"]).await;
    pair.shows("both", &["b", "a"]).await;
    pair.shows("mixed", &["n", "a"]).await;
    // Unfollowed in one, still followed in the other.
    pair.follow("2", BEN);
    pair.shows("timeline", &["b", "a"]).await;
    pair.delete(EVE, "friend", "1");
    pair.shows("friends", &NOBODY).await;
    pair.shows("timeline", &["b", "a"]).await;
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn caps_are_per_feed_and_target_and_end_a_feed_only_where_it_says_so() {
    let pair = Pair::start().await;
    pair.follow("1", ANN);
    for second in 1..=6 {
        pair.post(ANN, "post", &format!("p{second}"), second);
        pair.post(ANN, "note", &format!("n{second}"), second);
    }
    pair.shows("small", &["p6", "p5", "p4", "p3", "p2", "p1"])
        .await;
    pair.shows("ends", &["p6", "p5", "p4"]).await;
    pair.shows("ends&collection=note", &["n6"]).await;
    // The newest visible: what is deleted makes room for what is older.
    pair.delete(ANN, "post", "p5");
    pair.delete(ANN, "note", "n6");
    pair.shows("ends", &["p6", "p4", "p3"]).await;
    pair.shows("ends&collection=note", &["n5"]).await;
    pair.shows("small", &["p6", "p4", "p3", "p2", "p1"]).await;
    pair.stop().await;
}

async fn tag(mill: &Mill) -> String {
    let address = mill.river.address.unwrap();
    let path = format!("xrpc/com.example.getFeed?feed=timeline&actor={EVE}&limit=2");
    let answer = reqwest::get(format!("http://{address}/{path}"))
        .await
        .unwrap();
    answer.headers()["etag"].to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_has_one_tag_whoever_answers_it() {
    let pair = Pair::start().await;
    pair.follow("1", ANN);
    for (number, rkey) in ["a", "b", "c"].into_iter().enumerate() {
        pair.post(ANN, "post", rkey, number as u32);
    }
    pair.shows("timeline", &["c", "b", "a"]).await;
    let (first, again) = (tag(&pair.memory).await, tag(&pair.memory).await);
    assert_eq!(first, tag(&pair.store).await);
    assert_eq!(first, again);
    pair.post(ANN, "post", "d", 9);
    pair.shows("timeline", &["d", "c", "b", "a"]).await;
    assert_ne!(first, tag(&pair.memory).await);
    assert_eq!(tag(&pair.memory).await, tag(&pair.store).await);
    pair.stop().await;
}
