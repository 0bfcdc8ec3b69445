//! What a listener can rely on: cursors, takedowns, ends of feeds, long gaps.

use feedmill::store::AccountStatus;
use feedmill::store::batch::Item;
use reqwest::Method;
use serde_json::{Value, json};

use crate::app::App;
use crate::mill::Mill;
use crate::subscribe::{
    ANN, BEN, EVE, Socket, cursor, event, follow, is_entry, is_removal, listen, next, post, text,
};

/// A link at a second of one minute.
fn link(mill: &Mill, author: &str, rkey: &str, second: u32, set: &str) -> String {
    let time = format!("2026-03-05T10:00:{second:02}Z");
    let body = json!({"about": "thing", "set": set, "createdAt": time});
    mill.put(author, "link", rkey, &body)
}

fn stand(mill: &Mill, did: &str, status: AccountStatus, time_us: i64) {
    mill.apply(Item::Account {
        did: did.into(),
        status,
        time_us,
    });
}

async fn is_changed(socket: &mut Socket) {
    let message = next(socket).await;
    assert_eq!(message["type"], "changed", "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_cut_off_within_a_change_is_told_the_rest_of_it() {
    let mill = Mill::start(&text("")).await;
    follow(&mill, "1", "set:a");
    let mut socket = listen(&mill, "merged", None).await;
    assert_eq!(next(&mut socket).await["type"], "start");
    let one = link(&mill, ANN, "one", 30, "set:a");
    next(&mut socket).await;
    let zero = link(&mill, ANN, "zero", 10, "set:a");
    let removal = next(&mut socket).await;
    assert_eq!(removal["type"], "removal", "{removal}");
    let entry = next(&mut socket).await;
    assert_eq!(entry["activity"]["records"], json!([zero, one]), "{entry}");
    // Cut after the removal: the entry must come, after whatever is repeated.
    let mut cut = listen(&mill, "merged", Some(&cursor(&removal))).await;
    let mut message = next(&mut cut).await;
    while message["type"] == "removal" {
        message = next(&mut cut).await;
    }
    assert_eq!(message["activity"], entry["activity"], "{message}");
    assert_eq!(message["cursor"], entry["cursor"]);
    // Cut after the last of it: nothing is repeated.
    let mut cut = listen(&mill, "merged", Some(&cursor(&entry))).await;
    let other = mill.put(ANN, "link", "other", &json!({"about": "x", "set": "set:a"}));
    let message = next(&mut cut).await;
    assert_eq!(message["activity"]["records"], json!([other]), "{message}");
    mill.river.stop().await;
}

/// `name`: where an entry of the feed is.
#[tokio::test(flavor = "multi_thread")]
async fn an_edit_that_was_missed_and_moves_a_record_is_told_as_removal_and_entry() {
    let mill = Mill::start(&text("")).await;
    follow(&mill, "1", ANN);
    let mut socket = listen(&mill, "timeline", None).await;
    assert_eq!(next(&mut socket).await["type"], "start");
    let at = |time: &str| json!({"text": "one", "createdAt": time});
    let one = mill.put(ANN, "post", "one", &at("2026-03-05T10:00:30Z"));
    is_entry(&next(&mut socket).await, &one);
    mill.backfill(ANN, "post", "one", &at("2026-03-05T10:00:10Z"));
    is_removal(&next(&mut socket).await, &one);
    let message = next(&mut socket).await;
    is_entry(&message, &one);
    let time = &message["record"]["value"]["createdAt"];
    assert_eq!(time, "2026-03-05T10:00:10Z", "{message}");
    mill.river.stop().await;
}

async fn check_takedown(feed: &str, name: &str) {
    let links =
        "[feeds.links]\ntargets = [{ collection = \"link\", keys = [\"author\", \"set\"] }]\n";
    let mill = Mill::start(&text(links)).await;
    follow(&mill, "1", "set:a");
    link(&mill, ANN, "one", 10, "set:a");
    link(&mill, BEN, "one", 10, "set:b");
    let mut socket = listen(&mill, feed, None).await;
    let start = next(&mut socket).await;
    // Who stands in no followed set does not concern the reader.
    stand(&mill, BEN, AccountStatus::Takendown, 1);
    stand(&mill, BEN, AccountStatus::Active, 2);
    mill.put(ANN, "link", "two", &json!({"about": "x", "set": "set:a"}));
    let message = next(&mut socket).await;
    assert!(message[name].is_object(), "{message}");
    stand(&mill, ANN, AccountStatus::Takendown, 3);
    is_changed(&mut socket).await;
    stand(&mill, ANN, AccountStatus::Active, 4);
    is_changed(&mut socket).await;
    // And to who comes back.
    let mut again = listen(&mill, feed, Some(&cursor(&start))).await;
    let message = next(&mut again).await;
    assert!(message[name].is_object(), "{message}");
    is_changed(&mut again).await;
    is_changed(&mut again).await;
    // A reader who is hidden follows nothing, and is told so.
    stand(&mill, EVE, AccountStatus::Deactivated, 5);
    is_changed(&mut again).await;
    mill.put(ANN, "link", "three", &json!({"about": "y", "set": "set:a"}));
    stand(&mill, EVE, AccountStatus::Active, 6);
    is_changed(&mut again).await;
    mill.river.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_takedown_is_told_to_whoever_reaches_the_account_by_another_key() {
    check_takedown("links", "record").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_takedown_is_told_in_a_merged_feed_too() {
    check_takedown("merged", "activity").await;
}

/// The next event of a stream over HTTP.
struct Events {
    response: reqwest::Response,
    heard: String,
}

impl Events {
    async fn open(url: String, last: Option<&str>) -> Self {
        let request = reqwest::Client::new()
            .get(url)
            .header("accept", "text/event-stream");
        let request = match last {
            Some(last) => request.header("last-event-id", last),
            None => request,
        };
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        let heard = String::new();
        Self { response, heard }
    }

    async fn next(&mut self) -> Value {
        event(&mut self.response, &mut self.heard).await.2
    }
}

#[test]
fn a_reader_who_follows_nothing_yet_listens_and_is_told_of_its_first_follow() {
    let direct = "validate = false\ndirect = true\n";
    let app = App::start(&format!(
        "namespace = \"com.example\"\n\
         [collections.follow]\ncollection = \"com.example.follow\"\n{direct}\
         [collections.note]\ncollection = \"com.example.note\"\n{direct}\
         [feeds.home]\nfollow = \"follow\"\ntargets = [\"note\"]\n\
         [direct]\nopen = true\n"
    ));
    let actor = "did:local:c808";
    let url = format!(
        "{}/xrpc/com.example.subscribeFeed?feed=home&actor={actor}",
        app.address()
    );
    let (status, page) = app.get(&format!(
        "/xrpc/com.example.getFeed?feed=home&actor={actor}"
    ));
    assert_eq!((status, &page["records"]), (200, &json!([])));
    let mut events = app.wait(Events::open(url, None));
    assert_eq!(app.wait(events.next())["type"], "start");
    let follow = json!({"user": 808, "follows": 7});
    app.act(Method::POST, "/follow", follow);
    assert_eq!(app.wait(events.next())["type"], "changed");
    let note = json!({"user_id": 7, "text": "first"});
    let put = app.act(Method::PUT, "/records/note/n-1", note);
    is_entry(&app.wait(events.next()), put["uri"].as_str().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_of_any_length_is_told_whole_while_the_outbox_holds_it() {
    let mill = Mill::start(&text("[serve]\nlistener_events_max = 20\n")).await;
    follow(&mill, "1", ANN);
    let mut socket = listen(&mill, "timeline", None).await;
    let start = cursor(&next(&mut socket).await);
    drop(socket);
    // More than is drawn at once, and many times what may wait for one reader.
    let mut missed = Vec::new();
    for number in 0..1500 {
        missed.push(post(&mill, ANN, &number.to_string()));
    }
    let mut socket = listen(&mill, "timeline", Some(&start)).await;
    for (number, uri) in missed.iter().enumerate() {
        is_entry(&next(&mut socket).await, uri);
        if number % 500 == 250 {
            // It goes on from anywhere within, while more is written.
            post(&mill, BEN, &number.to_string());
        }
    }
    let last = post(&mill, ANN, "last");
    is_entry(&next(&mut socket).await, &last);
    mill.river.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_browser_says_it_is_counts_more_than_where_it_began() {
    let mill = Mill::start(&text("")).await;
    follow(&mill, "1", ANN);
    let mut socket = listen(&mill, "timeline", None).await;
    let start = cursor(&next(&mut socket).await);
    let one = post(&mill, ANN, "one");
    let url = format!(
        "http://{}/xrpc/com.example.subscribeFeed?feed=timeline&actor={EVE}&cursor={start}",
        mill.address()
    );
    let mut events = Events::open(url.clone(), None).await;
    let message = events.next().await;
    is_entry(&message, &one);
    drop(events);
    let two = post(&mill, ANN, "two");
    let mut events = Events::open(url, Some(&cursor(&message))).await;
    is_entry(&events.next().await, &two);
    mill.river.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feed_that_ends_tells_no_entry_beyond_its_end_and_says_when_it_moves() {
    let short = "[feeds.short]\ntargets = [\"post\"]\nmax_items = 2\nbeyond = \"end\"\n";
    let mill = Mill::start(&text(short)).await;
    follow(&mill, "1", ANN);
    let post = |rkey: &str, second: u32| {
        let time = format!("2026-03-05T10:00:{second:02}Z");
        mill.put(ANN, "post", rkey, &json!({"createdAt": time}))
    };
    let mut socket = listen(&mill, "short", None).await;
    assert_eq!(next(&mut socket).await["type"], "start");
    let one = post("one", 10);
    is_entry(&next(&mut socket).await, &one);
    let two = post("two", 20);
    is_entry(&next(&mut socket).await, &two);
    is_changed(&mut socket).await; // it is full from here on
    post("never", 5);
    let three = post("three", 30);
    let entry = next(&mut socket).await;
    is_entry(&entry, &three);
    is_changed(&mut socket).await;
    mill.delete(ANN, "post", "three");
    is_removal(&next(&mut socket).await, &three);
    is_changed(&mut socket).await;
    // Who is cut off between an entry and what it pushed out is told both again, as it is now.
    let four = post("four", 40);
    let entry = next(&mut socket).await;
    is_entry(&entry, &four);
    let mut cut = listen(&mill, "short", Some(&cursor(&entry))).await;
    is_entry(&next(&mut cut).await, &four);
    is_changed(&mut cut).await;
    mill.river.stop().await;
}
