//! Records that no honest author writes: poison, two megabytes, a thousand
//! levels deep, ten thousand at once. Each is explained; its author's other
//! records, and everybody else's, are where they should be.

use feedmill::clock::Clock;
use feedmill::river::River;
use feedmill::store::batch::DeadLetter;
use sim::compose::POST;
use sim::network::{Network, NetworkOptions};
use sim::utter::Utterance;

use crate::bed::{config, equal, network, start, until};

struct Scene {
    network: Network,
    river: River,
    since_us: i64,
}

impl Scene {
    async fn begin(seed: u64) -> Self {
        let network = network(seed, NetworkOptions::default()).await;
        let since_us = Clock::Wall.now_us();
        let river = start(&config(&network, "sqlite::memory:", &[])).await;
        Self {
            network,
            river,
            since_us,
        }
    }

    /// Somebody writes these records, and life goes on.
    async fn suffer(&self, records: Vec<Utterance>) {
        self.network.emit(40);
        self.network.utter(0, records);
        self.network.emit(40);
        self.network.settle();
        let last = self.network.last_seq() as i64;
        until(|| self.river.settled("sim", last).unwrap()).await;
        equal(&self.river, &self.network, self.since_us).await;
    }

    fn letters(&self, stage: &str) -> Vec<DeadLetter> {
        let letters = self.river.store.dead(None, 1000).unwrap();
        let of_stage = letters.into_iter().filter(|letter| letter.stage == stage);
        of_stage.collect()
    }

    fn has(&self, rkey: &str) -> bool {
        let did = self
            .network
            .world(|world| world.accounts()[0].did.to_string());
        let uri = format!("at://{did}/{POST}/{rkey}");
        self.river.store.record(&uri).unwrap().is_some()
    }

    async fn end(self) {
        self.river.stop().await;
        self.network.stop().await;
    }
}

const TIME: &str = "2026-01-02T03:04:05.000Z";

/// A post of `length` letters with `more` fields behind it, as CBOR.
fn post(length: usize, more: impl Fn(&mut record::cbor::Writer)) -> Vec<u8> {
    let mut writer = record::cbor::Writer::with_capacity(length + 200);
    writer.map(4);
    writer.text("text").text(&"x".repeat(length));
    writer.text("$type").text(POST);
    writer.text("extra");
    more(&mut writer);
    writer.text("createdAt").text(TIME);
    writer.into_bytes()
}

fn utter(rkey: &str, block: Vec<u8>, sound: bool) -> Utterance {
    Utterance {
        collection: POST.into(),
        rkey: rkey.into(),
        block: block.into(),
        created_us: record::datetime::parse_us(TIME),
        sound,
    }
}

fn one(writer: &mut record::cbor::Writer) {
    writer.int(1);
}

fn sound(rkey: &str) -> Utterance {
    utter(rkey, post(5, one), true)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_of_two_megabytes_is_refused_alone() {
    let scene = Scene::begin(31).await;
    let huge = post(1_990_000, one);
    scene
        .suffer(vec![
            sound("3aaaaaaaaaa22"),
            utter("3aaaaaaaaaa33", huge, false),
        ])
        .await;
    let letters = scene.letters("size");
    assert_eq!(letters.len(), 1, "{:?}", scene.river.store.dead(None, 10));
    assert_eq!(letters[0].rkey, "3aaaaaaaaaa33");
    assert!(letters[0].received.contains("bytes"), "{:?}", letters[0]);
    assert!(scene.has("3aaaaaaaaaa22") && !scene.has("3aaaaaaaaaa33"));
    scene.end().await;
}

/// More than a frame may carry: the frame is refused, and the account fetched whole.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_too_large_for_any_frame_does_not_keep_its_author_from_being_healed() {
    let scene = Scene::begin(32).await;
    let huge = post(3_000_000, one);
    scene
        .suffer(vec![
            sound("3aaaaaaaaaa22"),
            utter("3aaaaaaaaaa33", huge, false),
        ])
        .await;
    assert_eq!(scene.letters("frame").len(), 1);
    assert_eq!(scene.letters("size").len(), 1);
    assert!(scene.has("3aaaaaaaaaa22") && !scene.has("3aaaaaaaaaa33"));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_nested_a_thousand_deep_is_refused_alone() {
    let scene = Scene::begin(33).await;
    let deep = post(5, |writer| {
        for _ in 0..1000 {
            writer.list(1);
        }
        writer.int(1);
    });
    scene
        .suffer(vec![
            sound("3aaaaaaaaaa22"),
            utter("3aaaaaaaaaa33", deep, false),
        ])
        .await;
    let letters = scene.letters("decode");
    assert_eq!(letters.len(), 1);
    assert!(letters[0].message.contains("nested"), "{:?}", letters[0]);
    assert!(scene.has("3aaaaaaaaaa22") && !scene.has("3aaaaaaaaaa33"));
    scene.end().await;
}

/// Bytes whose hash is right and which are nothing that a record may be.
#[tokio::test(flavor = "multi_thread")]
async fn poison_is_refused_alone_whatever_its_bytes() {
    let scene = Scene::begin(34).await;
    let poison: Vec<Vec<u8>> = vec![
        vec![],
        vec![0xff; 40],
        vec![0x1b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        vec![0x9b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        vec![0xbb, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        vec![0x7b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        vec![0x62, 0xc3, 0x28],
        vec![0xfb, 0x40, 0x09, 0x21, 0xfb, 0x54, 0x44, 0x2d, 0x18],
        vec![0xa2, 0x61, 0x61, 0x01, 0x61, 0x61, 0x02],
        vec![0xd8, 0x2a, 0x41, 0x00],
        vec![0x81; 5000],
        post(5, one)[..40].to_vec(),
    ];
    let count = poison.len();
    let mut records = vec![sound("3aaaaaaaaaa22")];
    for (block, letter) in poison.into_iter().zip('c'..) {
        records.push(utter(&format!("3aaaaaaaaaa2{letter}"), block, false));
    }
    scene.suffer(records).await;
    assert_eq!(scene.letters("decode").len(), count);
    assert!(scene.has("3aaaaaaaaaa22"));
    scene.end().await;
}

/// No frame may tell so many; the repository itself may hold them.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_operations_in_one_commit_arrive_by_the_repository() {
    let scene = Scene::begin(35).await;
    let letters = b"234567abcd";
    let rkey = |number: usize| -> String {
        let digits = (0..4).map(|place| letters[number / 10_usize.pow(place) % 10] as char);
        "3aaaaaaaa".chars().chain(digits).collect()
    };
    let records: Vec<Utterance> = (0..10_000).map(|number| sound(&rkey(number))).collect();
    scene.suffer(records).await;
    assert_eq!(scene.letters("frame").len(), 1);
    assert!(scene.has(&rkey(0)) && scene.has(&rkey(9_999)));
    let accounting = scene.river.store.accounting(None).unwrap();
    assert!(accounting.adds_up(), "{accounting:?}");
    scene.end().await;
}
