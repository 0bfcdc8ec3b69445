//! A random world for both stores: commits, edits, deletes, repetitions, accounts and orders.
//!
//! What today's store decides by the order of arrival inside one batch, and the new one does not,
//! is left out here; each place says why.

use feedmill::store::batch::{Chain, Commit, DeadLetter, Item, Op, Verdict};
use record::cid::Cid;
use record::datetime::format_us;
use serde_json::json;
use sim::rng::Rng;

use super::{NOW, Pair, SECOND};

/// A random world.
pub(super) struct World {
    pub pair: Pair,
    rng: Rng,
    rev: u64,
    /// Commits that may be repeated.
    said: Vec<Commit>,
    /// Whether this batch has records that wait for others, or those others.
    waits: bool,
    /// The newest commit of the account whose source tells the chain.
    chained: (u64, Option<Cid>),
}

const SHORTS: [&str; 10] = [
    "follow", "block", "like", "post", "reply", "tag", "label", "note", "card", "link",
];

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let (queued, on_disk) = (rng.chance(0.3), rng.chance(0.2));
        Self {
            pair: Pair::new(queued, on_disk),
            rng,
            rev: 100,
            said: Vec::new(),
            waits: false,
            chained: (0, None),
        }
    }

    fn did(&mut self) -> String {
        format!("did:web:{}.test", self.rng.below(4))
    }

    fn uri(&mut self, short: &str) -> String {
        let (did, rkey) = (self.did(), self.rng.below(4));
        format!("at://{did}/com.example.{short}/{rkey}")
    }

    fn body(&mut self, short: &str, rkey: u64) -> String {
        let second = self.rng.below(600) as i64;
        let time = format_us(NOW - 1000 * SECOND + second * SECOND);
        let mut body = json!({ "createdAt": time, "n": self.rng.below(6) });
        match short {
            "follow" | "block" => body["subject"] = self.did().into(),
            "like" => body["subject"] = self.uri("post").into(),
            "reply" => {
                body["parent"] = self.uri("post").into();
                if self.rng.chance(0.3) {
                    body["root"] = self.uri("card").into();
                }
            }
            "tag" => body["subject"] = format!("at://x/y/{}", self.rng.below(3)).into(),
            // An edit within one batch must not take away what a tag waits for: today's store
            // would have let the tag in between the two.
            "label" => body["of"] = format!("at://x/y/{}", rkey % 3).into(),
            "note" => body["about"] = self.uri("post").into(),
            "link" => {
                body["card"] = format!("card{}", self.rng.below(2)).into();
                body["topic"] = format!("topic{}", self.rng.below(3)).into();
                if self.rng.chance(0.2) {
                    body["bad"] = true.into();
                }
            }
            "post" => {
                body["topics"] = json!(["topic1", format!("topic{}", self.rng.below(3))]);
                if self.rng.chance(0.2) {
                    body["about"] = self.uri("post").into();
                }
            }
            _ => {}
        }
        if self.rng.chance(0.3) {
            body["lang"] = ["en", "de"][self.rng.index(2)].into();
        }
        if self.rng.chance(0.05) {
            body["createdAt"] = "some day".into();
        }
        body.to_string()
    }

    /// Today's store applies what waited in the middle of a batch, the new one after it. So that
    /// nothing comes in between, no batch has both sides.
    fn allows(&self, short: &str) -> bool {
        match short {
            "reply" | "tag" => self.waits,
            "post" | "card" | "label" => !self.waits,
            _ => true,
        }
    }

    /// Records that others wait for or look at are not deleted: whether one of those is kept after
    /// that is a matter of which came first.
    fn op(&mut self, did: &str, rev: u64) -> Op {
        let short = loop {
            let short = SHORTS[self.rng.index(SHORTS.len())];
            if self.allows(short) {
                break short;
            }
        };
        let nsid = self.pair.nsid(short);
        let number = self.rng.below(4);
        let rkey = number.to_string();
        let stays = ["post", "label", "card"].contains(&short);
        let verdict = match self.rng.chance(0.25) && !stays {
            true => Verdict::Delete,
            false => {
                let body = self.body(short, number);
                self.pair.check((did, &nsid, &rkey), rev, &body)
            }
        };
        Op {
            collection: nsid,
            rkey,
            verdict,
        }
    }

    fn commit(&mut self) -> Commit {
        if !self.said.is_empty() && self.rng.chance(0.15) {
            let said = self.said[self.rng.index(self.said.len())].clone();
            let short = |op: &Op| {
                op.collection
                    .rsplit('.')
                    .next()
                    .unwrap_or_default()
                    .to_owned()
            };
            if said.ops.iter().all(|op| self.allows(&short(op))) {
                return said;
            }
        }
        let did = self.did();
        self.rev += 1 + self.rng.below(3);
        let rev = match self.rng.chance(0.2) {
            true => self.rev - self.rng.below(60).min(self.rev - 1),
            false => self.rev,
        };
        let mut ops: Vec<Op> = Vec::new();
        for _ in 0..1 + self.rng.below(3) {
            let op = self.op(&did, rev);
            let same = |it: &Op| (&it.collection, &it.rkey) == (&op.collection, &op.rkey);
            if !ops.iter().any(same) {
                ops.push(op);
            }
        }
        let commit = Commit {
            did,
            rev,
            seq: 0,
            chain: None,
            filtered: self.rng.below(2),
            ops,
            frame: Default::default(),
            was_held: false,
            live: self.rng.chance(0.8),
        };
        self.said.push(commit.clone());
        commit
    }

    /// A commit of an account whose source tells the chain; sometimes one is lost before it.
    fn chained(&mut self) -> Item {
        self.rev += 1;
        let rev = self.rev;
        let lost = self.rng.chance(0.05);
        let data = Cid::of_raw(&rev.to_le_bytes());
        let (since, prev_data) = self.chained;
        let since = if lost { since + 1 } else { since };
        let did = "did:web:chained.test";
        let op = self.op(did, rev);
        self.chained = (rev, Some(data));
        Item::Commit(Commit {
            did: did.into(),
            rev,
            seq: 0,
            chain: Some(Chain {
                since: Some(since).filter(|since| *since > 0),
                prev_data,
                data: Some(data),
            }),
            filtered: 0,
            ops: vec![op],
            frame: rev.to_le_bytes().to_vec().into(),
            was_held: false,
            live: true,
        })
    }

    fn event(&mut self) -> Item {
        match self.rng.below(20) {
            0 => {
                let did = self.did();
                let handle = ["a.test", "handle.invalid"][self.rng.index(2)];
                Item::Identity {
                    did,
                    handle: Some(handle.into()),
                    time_us: self.rng.below(100) as i64,
                }
            }
            1 => Item::Filtered(self.rng.below(5)),
            2 => Item::Sync {
                did: self.did(),
                rev: self.rng.below(self.rev + 50),
                data: None,
            },
            3 => Item::Unopened(DeadLetter {
                did: if self.rng.chance(0.5) {
                    self.did()
                } else {
                    String::new()
                },
                stage: "decode".into(),
                message: "no".into(),
                raw: self.rev.to_string(),
                ..DeadLetter::default()
            }),
            4..=6 => self.chained(),
            _ => Item::Commit(self.commit()),
        }
    }

    /// What somebody ordered; a batch of its own, since a batch's events come before its orders.
    fn order(&mut self) -> Item {
        match self.rng.below(2) {
            0 => Item::Listed(vec![self.did(), "did:web:listed.test".into()]),
            _ => {
                let (did, rev) = (self.did(), self.rev);
                let ops = vec![self.op(&did, rev)];
                Item::Fetched { did, rev, ops }
            }
        }
    }

    pub(super) fn step(&mut self) {
        self.pair.now_us += self.rng.below(6) as i64 * SECOND;
        self.waits = self.rng.chance(0.4);
        let items = match self.rng.chance(0.1) {
            true => vec![self.order()],
            false => (0..1 + self.rng.below(4)).map(|_| self.event()).collect(),
        };
        self.pair.commit(items);
        self.pair.compare();
    }
}
