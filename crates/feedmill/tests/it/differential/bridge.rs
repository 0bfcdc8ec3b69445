//! From the process's plan and batches to those of `decide`.
//!
//! In:    a configuration, and checked work as the process hands it to its store.
//! Out:   the same rules and the same work for `decide`.

use std::sync::Arc;

use decide::batch::{self, Event, Order};
use decide::content::split;
use decide::derived::{Derived, Part, SortKey};
use decide::ids::{FollowId, IndexId, Rev, SortId};
use decide::queue::{Priority, Queue, Queues};
use decide::rules::{Counted, Expressions, IndexRules, Merging, Rules, Subject};
use feedmill::check::{Checker, Claim};
use feedmill::config::{self, Config};
use feedmill::expression::Scope;
use feedmill::store::batch::{Commit, DeadLetter, Item, Op, Put, Verdict};
use feedmill::store::need::Target;
use feedmill::store::page::Rung;
use feedmill::store::plan::{self, Plan};
use record::json;

/// The configuration's expressions and paths, compiled.
pub(crate) struct Bridge {
    plan: Arc<Plan>,
    checker: Arc<Checker>,
}

impl std::fmt::Debug for Bridge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bridge").finish_non_exhaustive()
    }
}

pub(crate) fn index(lane: plan::LaneId) -> IndexId {
    IndexId(lane.0 as i64 + 1)
}

impl Bridge {
    pub(crate) fn new(plan: Arc<Plan>, checker: Arc<Checker>) -> Self {
        Self { plan, checker }
    }

    /// The rules that decisions are made by.
    pub(crate) fn rules(&self, config: &Config, layout: i64) -> Rules {
        let mut indexes = std::collections::BTreeMap::new();
        for (number, lane) in self.plan.lanes.iter().enumerate() {
            let counted = match lane.counted {
                plan::Counted::Not => Counted::Nothing,
                plan::Counted::Each => Counted::Records,
                plan::Counted::Authors => Counted::Authors,
            };
            let merging = None;
            indexes.insert(index(plan::LaneId(number)), IndexRules { counted, merging });
        }
        for feed in &self.plan.feeds {
            let Some(merged) = &feed.merged else { continue };
            let merging = Merging {
                window_us: merged.window_us,
                thing_max: config.feeds[&feed.name].thing_max.get(),
            };
            indexes.entry(index(merged.lane)).or_default().merging = Some(merging);
        }
        Rules {
            layout,
            indexes,
            queues: self.queues(),
            parked_max: config.settle.parked_max,
            dead_bytes_max: i64::MAX,
            expressions: Some(Arc::new(Self::new(
                Arc::clone(&self.plan),
                Arc::clone(&self.checker),
            ))),
        }
    }

    fn queues(&self) -> Queues {
        let queues = &self.plan.queues;
        let queue = |one: &feedmill::store::queue::Queue| Queue {
            name: one.name.clone(),
            priority: match one.priority {
                config::queue::Priority::High => Priority::High,
                config::queue::Priority::Medium => Priority::Medium,
                config::queue::Priority::Low => Priority::Low,
            },
            concurrency: one.concurrency,
            depth_max: one.depth_max,
        };
        Queues {
            list: queues.all().iter().map(queue).collect(),
            by_collection: queues
                .collections()
                .map(|(nsid, number)| (nsid.to_owned(), number))
                .collect(),
            quota_max: queues.turn_max(),
        }
    }

    /// An item of a batch; what only the process does is left out.
    pub(crate) fn item(&self, item: &Item, into: &mut batch::Batch) {
        let seq = into.cursor.unwrap_or_default();
        let event = match item {
            Item::Commit(commit) => Event::Commit(self.commit(commit)),
            Item::Sync { did, rev, data } => Event::Sync {
                did: did.clone(),
                rev: Rev(*rev),
                data: *data,
            },
            Item::Account {
                did,
                status,
                time_us,
            } => Event::Account {
                did: did.clone(),
                status: decide::account::Status::from_code(status.code()),
                time_us: *time_us,
            },
            Item::Identity {
                did,
                handle,
                time_us,
            } => Event::Identity {
                did: did.clone(),
                handle: handle.clone(),
                time_us: *time_us,
            },
            Item::Unopened(letter) => Event::Undecodable {
                did: Some(letter.did.clone()).filter(|did| !did.is_empty()),
                fault: fault(letter),
                raw: letter.raw.clone(),
            },
            Item::Filtered(units) => Event::Filtered(*units),
            other => {
                into.orders.push(self.order(other));
                return;
            }
        };
        into.events.push((seq, event));
    }

    fn order(&self, item: &Item) -> Order {
        match item {
            Item::Fetched { did, rev, ops } => Order::Fetched {
                did: did.clone(),
                rev: Rev(*rev),
                ops: self.ops(did, ops),
            },
            Item::Standing { did, status } => Order::HostStatus {
                did: did.clone(),
                status: decide::account::Status::from_code(status.code()),
            },
            Item::Listed(dids) => Order::Listed(dids.clone()),
            Item::Turn => Order::Queues,
            other => panic!("no order for {other:?}"),
        }
    }

    fn commit(&self, commit: &Commit) -> batch::Commit {
        batch::Commit {
            did: commit.did.clone(),
            rev: Rev(commit.rev),
            chain: commit.chain.map(|chain| batch::Chain {
                since: chain.since.map(Rev),
                prev_data: chain.prev_data,
                data: chain.data,
            }),
            filtered: commit.filtered,
            ops: self.ops(&commit.did, &commit.ops),
            frame: commit.frame.to_vec(),
            live: commit.live,
        }
    }

    pub(crate) fn ops(&self, did: &str, ops: &[Op]) -> Vec<batch::Op> {
        let op = |op: &Op| batch::Op {
            collection: op.collection.clone(),
            rkey: op.rkey.clone(),
            verdict: self.verdict((did, &op.collection, &op.rkey), &op.verdict),
        };
        ops.iter().map(op).collect()
    }

    pub(crate) fn verdict(&self, at: (&str, &str, &str), verdict: &Verdict) -> batch::Verdict {
        match verdict {
            Verdict::Put(put) => batch::Verdict::Put(Box::new(self.put(at, put))),
            Verdict::Delete => batch::Verdict::Delete,
            Verdict::Refused(letter) => batch::Verdict::Refused {
                fault: fault(letter),
                raw: letter.raw.clone(),
            },
        }
    }

    fn put(&self, (did, nsid, rkey): (&str, &str, &str), put: &Put) -> batch::Put {
        let value = json::from_json(&put.body).unwrap();
        let uri = format!("at://{did}/{nsid}/{rkey}");
        let needs = self.plan.needs.of(nsid, &value);
        let satisfies = match self.plan.needs.is_empty() {
            true => Vec::new(),
            false => self.plan.needs.released_by(nsid, &uri, Some(&value)),
        };
        let rules = self.plan.rules(nsid);
        let mut linked = rules
            .iter()
            .filter(|rule| rule.is_linked())
            .flat_map(|rule| &rule.with)
            .peekable();
        let linked = linked.peek().is_some().then(|| {
            let uris = linked.filter_map(|(_, path)| value.at(path)?.text());
            let kept = uris.filter(|uri| split(uri).is_some_and(|it| self.plan.keeps(it.1)));
            kept.map(str::to_owned).collect()
        });
        batch::Put {
            cid: put.cid.map(|cid| cid.as_bytes().to_vec()),
            body: put.body.clone(),
            time_us: put.time_us,
            seen_us: put.seen_us,
            links: put.links.clone(),
            derived: derived(&put.derived),
            needs: needs.into_iter().map(need).collect(),
            satisfies,
            linked,
        }
    }
}

fn need(need: feedmill::store::need::Need) -> batch::Need {
    let target = match need.target {
        Target::Record(uri) => {
            let (did, collection, rkey) = split(&uri).unwrap();
            batch::Target::Record {
                did: did.into(),
                collection: collection.into(),
                rkey: rkey.into(),
            }
        }
        Target::Like { nsid, field, value } => batch::Target::Naming {
            collection: nsid,
            path: field,
            value,
        },
    };
    batch::Need {
        path: need.path,
        target,
    }
}

fn derived(from: &plan::Derived) -> Derived {
    let lanes = from.lanes.iter();
    let follows = from.follows.iter();
    Derived {
        entries: lanes
            .map(|(lane, keys)| (index(*lane), keys.clone()))
            .collect(),
        person: from.person.clone(),
        follows: follows
            .map(|(source, key)| (FollowId(source.0 as i64 + 1), key.clone()))
            .collect(),
        parts: from
            .parts
            .iter()
            .map(|part| Part {
                index: index(part.lane),
                author: part.author.clone(),
                thing: part.merge.clone(),
                keys: part.keys.clone(),
                adds: part.union.clone(),
            })
            .collect(),
        sorts: from
            .rungs
            .iter()
            .map(|(ladder, rung)| (SortId(ladder.0 as i64 + 1), sort_key(rung)))
            .collect(),
    }
}

fn sort_key(rung: &Rung) -> SortKey {
    match rung {
        Rung::Number(number) => SortKey::Number(*number),
        Rung::Text(text) => SortKey::Text(text.clone()),
        Rung::Missing => SortKey::Missing,
    }
}

pub(crate) fn fault(letter: &DeadLetter) -> batch::Fault {
    let stage = serde_json::from_value(letter.stage.clone().into()).unwrap();
    batch::Fault {
        stage,
        message: letter.message.clone(),
        rule: Some(letter.rule.clone()).filter(|rule| !rule.is_empty()),
        path: letter.path.clone(),
        expected: letter.expected.clone(),
        received: letter.received.clone(),
    }
}

impl Expressions for Bridge {
    fn derive(&self, record: Subject<'_>) -> batch::Put {
        let claim = Claim {
            did: record.did,
            collection: record.nsid,
            rkey: record.rkey,
            rev: 0,
        };
        match self.checker.json(claim, None, record.body) {
            Verdict::Put(put) => self.put((record.did, record.nsid, record.rkey), &put),
            other => panic!("a stored record passed its checks: {other:?}"),
        }
    }

    fn broken(
        &self,
        record: Subject<'_>,
        live: &dyn Fn(&str) -> Option<String>,
    ) -> Option<batch::Fault> {
        let value = json::from_json(record.body).unwrap();
        let linked = self.plan.rules(record.nsid).iter();
        for rule in linked.filter(|rule| rule.is_linked()) {
            let mut scope = Scope::new(record.did, record.rkey, &value);
            for (name, path) in &rule.with {
                let body = value.at(path).and_then(|it| live(it.text()?));
                let bound = body.as_ref().and_then(|body| json::from_json(body).ok());
                scope.bind(name, bound.as_ref());
            }
            if let Some(letter) = rule.broken(&scope, &value) {
                return Some(fault(&letter));
            }
        }
        None
    }
}
