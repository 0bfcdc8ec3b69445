//! `examples/semble.toml` end to end, on Semble's own lexicons: people and
//! collections are followed, and what is done at once is one activity.

use serde_json::{Value, json};

use crate::desk::fixtures;
use crate::mill::Mill;

const ANN: &str = "did:plc:annannannannannannannann";
const BEN: &str = "did:plc:benbenbenbenbenbenbenben";
const READER: &str = "did:plc:eveeveeveeveeveeveeveeve";
const CID: &str = "bafyreie5cvv4h45feadgeuwhbcutmh6t2ceseocckahdoe6uat64zmz454";
const FEED: &str = "/xrpc/network.cosmik.feed.getFollowingFeed";

/// The example with the lexicons of the fixtures and without the network.
fn example() -> Option<String> {
    let folder = fixtures("lexicons/semble")?;
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/semble.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let lexicons = format!("lexicons = [{:?}]", folder.display().to_string());
    let text = text
        .replacen("lexicons = []", &lexicons, 1)
        .replace("validate = false\n", "")
        .replace("[[source]]\nfirehose = \"wss://bsky.network\"\n", "")
        .replace("sqlite://semble.db", "sqlite::memory:");
    assert!(text.contains(&lexicons) && !text.contains("bsky.network"));
    Some(text)
}

/// A record key of Semble's kind from a short name: letters and the digits 2 to 7, thirteen of them.
fn tid(name: &str) -> String {
    let lawful = name.replace('0', "y").replace('1', "z");
    format!("{lawful:a<13}")
}

fn time(second: u32) -> String {
    format!("2026-03-05T10:{:02}:{:02}.000Z", second / 60, second % 60)
}

struct Semble(Mill);

impl Semble {
    async fn start() -> Option<Self> {
        let mill = Mill::start(&example()?).await;
        for (owner, rkey) in [(ANN, "3kset1"), (BEN, "3kset2")] {
            let body = json!({"name": rkey, "accessType": "OPEN", "createdAt": time(0)});
            mill.put(owner, "collection", &tid(rkey), &body);
        }
        Some(Self(mill))
    }

    fn card(
        &self,
        author: &str,
        rkey: &str,
        second: u32,
        kind: &str,
        source: Option<&str>,
    ) -> String {
        let mut body = json!({
            "type": "URL",
            "url": "https://example.com/",
            "content": {"$type": "network.cosmik.card#urlContent", "url": "https://example.com/", "metadata": {"type": kind, "title": rkey}},
            "createdAt": time(second),
        });
        if let Some(source) = source {
            body["source"] = json!(source);
        }
        self.0.put(author, "card", &tid(rkey), &body)
    }

    fn link(&self, author: &str, rkey: &str, second: u32, card: &str, collection: &str) -> String {
        let body = json!({
            "card": {"uri": card, "cid": CID}, "collection": {"uri": collection, "cid": CID},
            "addedBy": author, "addedAt": time(second),
        });
        self.0.put(author, "collectionLink", &tid(rkey), &body)
    }

    fn follow(&self, rkey: &str, subject: &str) {
        let body = json!({"subject": subject, "createdAt": time(0)});
        self.0.put(READER, "follow", &tid(rkey), &body);
    }

    /// Waits until the feed shows these activities: the last steps of their members' URIs.
    #[track_caller]
    fn shows(&self, query: &str, expected: &[&[&str]]) -> impl Future<Output = Value> {
        let path = format!("{FEED}?actor={READER}{query}");
        let expected: Vec<Vec<String>> = expected
            .iter()
            .map(|keys| keys.iter().map(|key| tid(key)).collect())
            .collect();
        let place = std::panic::Location::caller();
        async move {
            let told = std::time::Instant::now();
            loop {
                let (status, page) = self.0.get(&path).await;
                assert_eq!(status, 200, "{place}: {page}");
                if keys(&page) == expected {
                    return page;
                }
                assert!(told.elapsed().as_secs() < 60, "{place}: {page:#}");
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        }
    }
}

fn keys(page: &Value) -> Vec<Vec<String>> {
    let activities = page["activities"].as_array().unwrap();
    let members = |activity: &Value| {
        let records = activity["records"].as_array().unwrap();
        let key = |uri: &Value| uri.as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        records.iter().map(key).collect()
    };
    activities.iter().map(members).collect()
}

fn set(owner: &str, rkey: &str) -> String {
    format!("at://{owner}/network.cosmik.collection/{}", tid(rkey))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_and_its_collections_are_one_activity_for_followers_of_any_of_them_once() {
    let Some(semble) = Semble::start().await else {
        return;
    };
    let (one, two) = (set(ANN, "3kset1"), set(BEN, "3kset2"));
    semble.follow("3kf1", &one);
    let card = semble.card(ANN, "3kc1", 0, "article", None);
    semble.shows("", &[]).await; // only the author is told of a card alone
    semble.link(ANN, "3kl1", 5, &card, &one);
    let page = semble.shows("", &[&["3kc1", "3kl1"]]).await;
    let activity = &page["activities"][0];
    assert_eq!(activity["activityType"], "CARD_COLLECTED");
    assert_eq!(activity["createdAt"], time(0));
    assert_eq!(activity["user"]["id"], ANN);
    assert_eq!(activity["card"]["uri"], card);
    assert_eq!(
        activity["card"]["value"]["content"]["metadata"]["title"],
        "3kc1"
    );
    assert_eq!(activity["collections"][0]["value"]["name"], "3kset1");
    assert_eq!(
        (&activity["urlType"], &activity["source"]),
        (&json!("article"), &json!("semble"))
    );
    assert_eq!(
        (&page["hasMore"], page.get("nextCursor")),
        (&json!(false), None)
    );
    // The author and both collections followed: still once, with the union in the order first seen.
    semble.follow("3kf2", ANN);
    semble.follow("3kf3", &two);
    semble.link(ANN, "3kl2", 60, &card, &two);
    let page = semble.shows("", &[&["3kc1", "3kl1", "3kl2"]]).await;
    let names: Vec<&Value> = page["activities"][0]["collections"]
        .as_array()
        .unwrap()
        .iter()
        .map(|set| &set["uri"])
        .collect();
    assert_eq!(names, [&json!(one), &json!(two)]);
    // Beyond the window a new one begins; without a member it shrinks; without its first it begins later.
    semble.link(ANN, "3kl3", 121, &card, &one);
    semble
        .shows("", &[&["3kl3"], &["3kc1", "3kl1", "3kl2"]])
        .await;
    semble.0.delete(ANN, "collectionLink", &tid("3kl2"));
    semble.shows("", &[&["3kl3"], &["3kc1", "3kl1"]]).await;
    semble.0.delete(ANN, "card", &tid("3kc1"));
    let page = semble.shows("", &[&["3kl1", "3kl3"]]).await;
    assert_eq!(
        page["activities"][0]["card"],
        json!({"uri": card, "exists": false, "value": null})
    );
    semble.0.river.stop().await;
}

/// Eight cards and a connection of Ben's, every other a video, every third from elsewhere.
fn fill(semble: &Semble) {
    semble.follow("3kf1", BEN);
    let elsewhere = semble.card(ANN, "3kc0", 0, "video", None);
    semble.link(BEN, "3kl0", 1, &elsewhere, &set(ANN, "3kset1"));
    for number in 1..8u32 {
        let kind = ["article", "video"][number as usize % 2];
        let source = (number % 3 == 0).then_some("margin");
        semble.card(BEN, &format!("3kc{number}"), number * 200, kind, source);
    }
    let connection =
        json!({"source": "https://a.test/", "target": "https://b.test/", "createdAt": time(3000)});
    semble.0.put(BEN, "connection", &tid("3kn1"), &connection);
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_read_through_the_card_and_pages_agree_with_the_count() {
    let Some(semble) = Semble::start().await else {
        return;
    };
    fill(&semble);
    let videos: &[&[&str]] = &[&["3kc7"], &["3kc5"], &["3kc3"], &["3kc1"], &["3kl0"]];
    let page = semble.shows("&urlType=video&count=true", videos).await;
    assert_eq!(page["totalCount"], 5);
    semble
        .shows("&source=margin", &[&["3kc6"], &["3kc3"]])
        .await;
    semble
        .shows("&source=semble&urlType=article", &[&["3kc4"], &["3kc2"]])
        .await;
    // A connection's `source` is an address, and no app that it came from.
    let connections = "&activityTypes=CONNECTION_CREATED&source=semble";
    let page = semble.shows(connections, &[&["3kn1"]]).await;
    assert_eq!(page["activities"][0]["source"], "semble");
    assert_eq!(
        page["activities"][0]["card"]["value"]["source"],
        "https://a.test/"
    );
    semble.shows("&source=https://a.test/", &[]).await;
    let all = semble
        .shows(
            "&activityTypes=CONNECTION_CREATED&activityTypes=CARD_COLLECTED&count=true",
            &[
                &["3kn1"],
                &["3kc7"],
                &["3kc6"],
                &["3kc5"],
                &["3kc4"],
                &["3kc3"],
                &["3kc2"],
                &["3kc1"],
                &["3kl0"],
            ],
        )
        .await;
    assert_eq!(all["totalCount"], 9);
    let commas = "&activityTypes=CONNECTION_CREATED,CARD_COLLECTED&count=true";
    let (_, same) = semble
        .0
        .get(&format!("{FEED}?actor={READER}{commas}"))
        .await;
    assert_eq!(same, all);
    semble.0.river.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_lives_in_another_app_reaches_the_followers_of_who_collected_it_and_no_others() {
    let Some(semble) = Semble::start().await else {
        return;
    };
    let one = set(ANN, "3kset1");
    semble.follow("3kf1", &one);
    let elsewhere = format!("at://{ANN}/at.margin.bookmark/{}", tid("3km1"));
    semble.link(ANN, "3kl1", 5, &elsewhere, &one);
    let card = semble.card(BEN, "3kc1", 200, "article", Some("margin"));
    semble.link(ANN, "3kl2", 205, &card, &one);
    // What stands in the card is nothing that a rule can see.
    semble.shows("", &[&["3kl2"]]).await;
    semble.follow("3kf2", ANN);
    semble.shows("", &[&["3kl2"], &["3kl1"]]).await;
    semble.0.river.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_by_number_by_cursor_and_by_id_are_the_same() {
    let Some(semble) = Semble::start().await else {
        return;
    };
    fill(&semble);
    let second = semble
        .shows(
            "&limit=4&page=2",
            &[&["3kc4"], &["3kc3"], &["3kc2"], &["3kc1"]],
        )
        .await;
    assert_eq!(second["hasMore"], true);
    let first = semble
        .shows("&limit=4", &[&["3kn1"], &["3kc7"], &["3kc6"], &["3kc5"]])
        .await;
    let cursor = first["nextCursor"].as_str().unwrap();
    let id = first["activities"][3]["id"].as_str().unwrap();
    for by in [format!("cursor={cursor}"), format!("beforeActivityId={id}")] {
        let page = semble
            .shows(
                &format!("&limit=4&{by}"),
                &[&["3kc4"], &["3kc3"], &["3kc2"], &["3kc1"]],
            )
            .await;
        assert_eq!(page["activities"], second["activities"]);
    }
    // An id is a place: it stays one when its record is gone.
    semble.0.delete(BEN, "card", &tid("3kc5"));
    semble
        .shows(
            &format!("&limit=2&beforeActivityId={id}"),
            &[&["3kc4"], &["3kc3"]],
        )
        .await;
    semble.0.river.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_wrongly_is_refused_with_what_is_accepted() {
    let Some(semble) = Semble::start().await else {
        return;
    };
    semble.follow("3kf1", ANN);
    for (query, name, said) in [
        ("", "InvalidRequest", "actor"),
        (
            &format!("?actor={READER}&limit=0"),
            "InvalidRequest",
            "from 1 to 100",
        ),
        (
            &format!("?actor={READER}&page=-1"),
            "InvalidRequest",
            "from 1 to",
        ),
        (
            &format!("?actor={READER}&feed=nope"),
            "UnknownFeed",
            "following",
        ),
        (
            &format!("?actor={READER}&activityTypes=CARD"),
            "InvalidRequest",
            "CARD_COLLECTED",
        ),
        (
            &format!("?actor={READER}&urltype=video"),
            "InvalidRequest",
            "urlType",
        ),
        (
            &format!("?actor={READER}&cursor=abc"),
            "BadCursor",
            "not one of ours",
        ),
        (
            &format!("?actor={READER}&count=yes"),
            "InvalidRequest",
            "true or false",
        ),
    ] {
        let (status, answer) = semble.0.get(&format!("{FEED}{query}")).await;
        assert_eq!(
            (status, &answer["error"]),
            (400, &json!(name)),
            "{query}: {answer}"
        );
        assert!(
            answer["message"].as_str().unwrap().contains(said),
            "{query}: {answer}"
        );
    }
    let path = format!("/xrpc/network.cosmik.feed.getFeed?feed=following&actor={READER}");
    let (status, answer) = semble.0.get(&path).await;
    assert!(
        status == 400
            && answer["message"]
                .as_str()
                .unwrap()
                .contains("getFollowingFeed"),
        "{answer}"
    );
    semble.0.river.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_filter_asks_for_nothing_and_lists_may_have_brackets() {
    let Some(semble) = Semble::start().await else {
        return;
    };
    semble.follow("3kf1", ANN);
    semble.card(ANN, "3kc1", 0, "article", None);
    semble.card(ANN, "3kc2", 600, "video", None);
    let all: &[&[&str]] = &[&["3kc2"], &["3kc1"]];
    semble.shows("&urlType=&source=&activityTypes=", all).await;
    semble.shows("&urlType=article&source=", &[&["3kc1"]]).await;
    for query in [
        "&activityTypes[]=CARD_COLLECTED",
        "&activityTypes[]=CARD_COLLECTED&activityTypes[]=CONNECTION_CREATED",
        "&activityTypes%5B%5D=CARD_COLLECTED",
        "&activityTypes[]=",
    ] {
        semble.shows(query, all).await;
    }
    semble
        .shows("&activityTypes[]=CONNECTION_CREATED", &[])
        .await;
    let (status, answer) = semble
        .0
        .get(&format!("{FEED}?actor={READER}&urlType[]=a"))
        .await;
    assert_eq!((status, &answer["error"]), (400, &json!("InvalidRequest")));
}
