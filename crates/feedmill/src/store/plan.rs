//! What is derived from records: lanes, in which targets are published under
//! keys, and follow sources, whose records say who follows which key.
//!
//! In:    the configuration; then records.
//! Out:   for each record, the keys it is published under and the key it follows.
//! Never: a different answer for the same record and configuration.
//!
//! A lane's or source's `spec` is the text of all that decides its rows. The
//! store keeps it beside the rows: a changed spec is a new lane, rebuilt from
//! the records, and the old one's rows are dropped.

use std::collections::BTreeMap;

use record::value::Value;

use crate::config::Config;
use crate::config::collection::{Collection, Distinct, Match, Queryable, Relation};
use crate::config::feed::{Feed, KeyRule};
use crate::expression::{Expression, Scope};

use super::ladder::{Ladder, Steps};
use super::merged::{Merged, MergedTarget, Part};
use super::need::Needs;
use super::page::Rung;
use super::queue::{self, Queues};
use super::rule::Rule;

/// A lane's number in the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub usize);

/// A follow source's number in the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub usize);

/// A ladder's number in the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LadderId(pub usize);

/// What is kept of how many records stand under each key of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// Nothing.
    Not,
    /// How many there are.
    Each,
    /// How many authors they have.
    Authors,
}

/// One lane: the records of a collection, in order, under keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    pub spec: String,
    pub nsid: String,
    /// `author` or dotted paths.
    pub keys: Vec<String>,
    /// Only records for which it is true are in the lane.
    pub(super) condition: Option<Expression>,
    /// The first that is true replaces the keys.
    pub(super) rules: Vec<(Expression, Vec<String>)>,
    pub counted: Counted,
}

impl Lane {
    pub(super) fn new(
        spec: String,
        nsid: &str,
        keys: &[String],
        condition: Option<&str>,
        rules: &[KeyRule],
    ) -> Self {
        Self {
            spec,
            nsid: nsid.to_owned(),
            keys: keys.to_vec(),
            condition: condition.and_then(|text| Expression::condition(text).ok()),
            rules: rules
                .iter()
                .filter_map(|rule| {
                    Some((Expression::condition(&rule.when).ok()?, rule.keys.clone()))
                })
                .collect(),
            counted: Counted::Not,
        }
    }

    /// Whether every record of the collection is in it under its author alone.
    pub fn lists_authors(&self) -> bool {
        self.keys == ["author"]
            && self.condition.is_none()
            && self.rules.is_empty()
            && self.counted == Counted::Not
    }

    /// What its `spec` says of lists: each of their items is a key, but children are counted under one parent.
    pub(super) fn listed(&self) -> &'static str {
        let rules = self.rules.iter().flat_map(|(_, keys)| keys);
        let only_authors = self.keys.iter().chain(rules).all(|path| path == "author");
        match self.counted == Counted::Not && !only_authors {
            true => " each",
            false => "",
        }
    }

    /// The paths of a record's keys; `None` if it is not in the lane.
    pub(super) fn paths(&self, scope: impl FnOnce() -> Scope) -> Option<&[String]> {
        if self.condition.is_none() && self.rules.is_empty() {
            return Some(&self.keys);
        }
        let scope = scope();
        if let Some(condition) = &self.condition
            && condition.holds(&scope) != Ok(true)
        {
            return None;
        }
        let matching = self
            .rules
            .iter()
            .find(|(when, _)| when.holds(&scope) == Ok(true));
        Some(matching.map_or(&self.keys, |(_, keys)| keys))
    }
}

/// One follow source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowSource {
    pub spec: String,
    pub nsid: String,
    pub subject: String,
}

/// One target of a feed, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedTarget {
    pub short: String,
    pub nsid: String,
    pub lane: LaneId,
    pub max_items: u32,
}

/// One feed, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedPlan {
    pub name: String,
    pub targets: Vec<FeedTarget>,
    pub follows: Vec<SourceId>,
    pub hides: Vec<SourceId>,
    pub include_self: bool,
    pub mixed: bool,
    pub end: bool,
    /// Set where its entries are groups of records.
    pub merged: Option<Merged>,
}

/// Children that name a record, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelationPlan {
    pub name: String,
    /// The children's lane: published under the parent they name.
    pub lane: LaneId,
    pub by: Match,
    /// Children by what one of their fields says, each in its own lane.
    pub groups: Vec<(String, LaneId)>,
    /// Those in no group, where there are groups.
    pub other: Option<LaneId>,
}

/// A record that a field names, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReferencePlan {
    pub name: String,
    /// The collection of the named record.
    pub nsid: String,
    pub field: String,
}

/// Everything that is derived from records.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    pub lanes: Vec<Lane>,
    pub sources: Vec<FollowSource>,
    pub feeds: Vec<FeedPlan>,
    /// Relations by the parent's collection.
    pub relations: BTreeMap<String, Vec<RelationPlan>>,
    /// References by the referring record's collection.
    pub references: BTreeMap<String, Vec<ReferencePlan>>,
    /// Orders other than that of time.
    pub ladders: Vec<Ladder>,
    /// Collections whose record `self` is its author's profile.
    pub profiles: Vec<String>,
    /// Collections written directly, with the field that names who wrote a record.
    pub(super) actors: BTreeMap<String, String>,
    by_nsid: BTreeMap<String, (Vec<LaneId>, Vec<SourceId>)>,
    /// The dotted path of each collection's time field; `None`: the moment of first sight.
    pub times: BTreeMap<String, Option<String>>,
    /// What records wait for.
    pub needs: Needs,
    /// Whose work is done first.
    pub queues: Queues,
    /// Records parked at once.
    pub parked_max: usize,
    /// Bytes of them.
    pub parked_bytes_max: u64,
    /// Bytes of frames held for accounts out of step, of each and of all.
    pub held_account_bytes_max: u64,
    pub held_bytes_max: u64,
    /// Bytes of dead letters kept.
    pub dead_bytes_max: u64,
    rules: BTreeMap<String, Vec<Rule>>,
    /// Targets of merged feeds by collection.
    pub(super) merges: BTreeMap<String, Vec<MergedTarget>>,
}

/// What one record derives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Derived {
    /// Lanes it is in, with its keys there.
    pub lanes: Vec<(LaneId, Vec<String>)>,
    /// Who wrote it, where that is not its account.
    pub person: Option<String>,
    /// Keys it follows.
    pub follows: Vec<(SourceId, String)>,
    /// Groups it is part of, one for each merged feed.
    pub parts: Vec<Part>,
    /// Where it stands on the ladders of its fields.
    pub rungs: Vec<(LadderId, Rung)>,
}

fn times(config: &Config) -> BTreeMap<String, Option<String>> {
    let collections = config.collections.values();
    let time = |it: &Collection| (it.collection.clone(), it.time_path().map(str::to_owned));
    collections.map(time).collect()
}

impl Plan {
    /// The plan of a checked configuration.
    pub fn new(config: &Config) -> Self {
        let mut plan = Self {
            needs: Needs::new(config),
            queues: queue::queues(config),
            parked_max: config.settle.parked_max,
            parked_bytes_max: config.settle.parked_bytes_max,
            held_account_bytes_max: config.intake.held_account_bytes_max,
            held_bytes_max: config.intake.held_bytes_max,
            times: times(config),
            dead_bytes_max: config.settle.dead_bytes_max,
            ..Self::default()
        };
        for collection in config.collections.values() {
            let nsid = &collection.collection;
            plan.by_nsid.entry(nsid.clone()).or_default();
            let rules = collection.rules.iter().filter_map(Rule::new).collect();
            plan.rules.insert(nsid.clone(), rules);
            if collection.direct {
                plan.actors
                    .insert(nsid.clone(), config.direct.actor.clone());
            }
            // Listed or not: an account that goes must find all that it wrote.
            plan.lane(nsid, &["author".to_owned()], None, &[], Counted::Not);
            plan.raise(nsid, &collection.queryable);
        }
        for (name, feed) in &config.feeds {
            let merged = plan.merged(config, feed);
            let targets = match &merged {
                Some(merged) => vec![FeedTarget {
                    short: "activities".into(),
                    nsid: String::new(),
                    lane: merged.lane,
                    max_items: feed.items_max(),
                }],
                None => plan.targets(config, feed),
            };
            let mut resolve = |follows: Vec<crate::config::feed::Follow>| {
                follows
                    .into_iter()
                    .filter_map(|follow| {
                        Some(plan.source(config.nsid(&follow.collection)?, &follow.subject))
                    })
                    .collect()
            };
            let (follows, hides) = (resolve(feed.follows()), resolve(feed.hides()));
            plan.feeds.push(FeedPlan {
                name: name.clone(),
                targets,
                follows,
                hides,
                include_self: feed.include_self,
                mixed: feed.mixed,
                end: feed.beyond == crate::config::feed::Beyond::End,
                merged,
            });
        }
        plan.relate(config);
        plan
    }

    fn targets(&mut self, config: &Config, feed: &Feed) -> Vec<FeedTarget> {
        let targets = feed.targets().into_iter();
        targets
            .filter_map(|target| {
                let nsid = config.nsid(&target.collection)?.to_owned();
                Some(FeedTarget {
                    lane: self.lane(
                        &nsid,
                        &target.keys,
                        target.condition.as_deref(),
                        feed.rules(),
                        Counted::Not,
                    ),
                    short: target.collection,
                    nsid,
                    max_items: target.max_items,
                })
            })
            .collect()
    }

    fn relate(&mut self, config: &Config) {
        let profiles = config
            .profiles
            .iter()
            .filter_map(|short| config.nsid(short));
        self.profiles = profiles.map(str::to_owned).collect();
        for parent in config.collections.values() {
            for (name, reference) in &parent.references {
                let Some(nsid) = config.nsid(&reference.collection) else {
                    continue;
                };
                let references = self.references.entry(parent.collection.clone());
                references.or_default().push(ReferencePlan {
                    name: name.clone(),
                    nsid: nsid.to_owned(),
                    field: reference.field.clone(),
                });
            }
            for (name, relation) in &parent.relations {
                let Some(child) = config.nsid(&relation.collection) else {
                    continue;
                };
                let related = self.related(child, name, relation);
                let lanes = related.groups.iter().map(|(_, lane)| *lane);
                for lane in lanes.chain([related.lane]) {
                    self.count(&parent.collection, lane, related.by);
                }
                let relations = self.relations.entry(parent.collection.clone());
                relations.or_default().push(related);
            }
        }
    }

    /// The ladder of how many children stand in a lane; one for all who ask for the same.
    fn count(&mut self, nsid: &str, lane: LaneId, by: Match) {
        let Some(children) = self.lanes.get(lane.0).map(|lane| lane.spec.clone()) else {
            return;
        };
        let ladder = match by {
            Match::Uri => Ladder::new(nsid, Steps::Count { lane, children }, &self.timed(nsid)),
            Match::Did => Ladder::new("", Steps::Renown { lane, children }, ""),
        };
        if self.ladders.iter().all(|other| other.spec != ladder.spec) {
            self.ladders.push(ladder);
        }
    }

    /// The ladders of fields that may be asked and sorted by.
    fn raise(&mut self, nsid: &str, fields: &BTreeMap<String, Queryable>) {
        let timed = self.timed(nsid);
        for (path, queryable) in fields {
            let (path, compared) = (path.clone(), queryable.compared);
            let steps = Steps::Field {
                path: path.clone(),
                compared,
            };
            self.ladders.push(Ladder::new(nsid, steps, &timed));
            let steps = Steps::Items { path, compared };
            self.ladders.push(Ladder::new(nsid, steps, &timed));
        }
    }

    /// A relation's lanes: one for all children, and one for each group of them.
    fn related(&mut self, child: &str, name: &str, relation: &Relation) -> RelationPlan {
        // An account that is hidden takes its children out of the counts, so they must be found by author.
        self.lane(child, &["author".to_owned()], None, &[], Counted::Not);
        let counted = match relation.count_distinct {
            None => Counted::Each,
            Some(Distinct::Did) => Counted::Authors,
        };
        let keys = std::slice::from_ref(&relation.field);
        let groups = relation.groups.keys().map(|group| {
            let condition = relation.condition(Some(group));
            let lane = self.lane(child, keys, condition.as_deref(), &[], counted);
            (group.clone(), lane)
        });
        let groups: Vec<(String, LaneId)> = groups.collect();
        let other = match groups.is_empty() {
            true => None,
            false => relation.condition(None),
        };
        RelationPlan {
            name: name.to_owned(),
            lane: self.lane(child, keys, None, &[], counted),
            by: relation.by,
            groups,
            other: other.map(|condition| self.lane(child, keys, Some(&condition), &[], counted)),
        }
    }

    /// The ladder on which records of a collection stand by these steps.
    pub fn ladder(&self, nsid: &str, steps: impl Fn(&Steps) -> bool) -> Option<LadderId> {
        let fits = |ladder: &Ladder| ladder.nsid == nsid && steps(&ladder.steps);
        self.ladders.iter().position(fits).map(LadderId)
    }

    /// The ladder by which records of a collection are sorted by the children that stand in a lane.
    pub fn count_ladder(&self, nsid: &str, lane: LaneId, by: Match) -> Option<LadderId> {
        match by {
            Match::Uri => self.ladder(
                nsid,
                |steps| matches!(steps, Steps::Count { lane: other, .. } if *other == lane),
            ),
            Match::Did => self.ladder(
                "",
                |steps| matches!(steps, Steps::Renown { lane: other, .. } if *other == lane),
            ),
        }
    }

    /// The text of all that decides a lane's rows.
    pub(super) fn spec(
        &self,
        nsid: &str,
        keys: &[String],
        condition: Option<&str>,
        rules: &[KeyRule],
    ) -> String {
        let mut spec = format!("{nsid} under {}", keys.join(" "));
        if let Some(condition) = condition {
            spec.push_str(&format!(" where {condition}"));
        }
        for rule in rules {
            spec.push_str(&format!(
                " when {} under {}",
                rule.when,
                rule.keys.join(" ")
            ));
        }
        if let Some(field) = self.actors.get(nsid) {
            spec.push_str(&format!(" by {field}"));
        }
        spec.push_str(&self.timed(nsid));
        spec
    }

    /// The part of a spec that says which time orders the records of a collection.
    fn timed(&self, nsid: &str) -> String {
        match self.times.get(nsid) {
            Some(Some(path)) => format!(" timed by {path}"),
            _ => " timed by first sight".into(),
        }
    }

    fn lane(
        &mut self,
        nsid: &str,
        keys: &[String],
        condition: Option<&str>,
        rules: &[KeyRule],
        counted: Counted,
    ) -> LaneId {
        let spec = self.spec(nsid, keys, condition, rules);
        let mut lane = Lane {
            counted,
            ..Lane::new(spec, nsid, keys, condition, rules)
        };
        let listed = lane.listed();
        lane.spec.push_str(match counted {
            Counted::Not => listed,
            Counted::Each => " counted",
            Counted::Authors => " counted by author",
        });
        if let Some(index) = self.lanes.iter().position(|known| known.spec == lane.spec) {
            return LaneId(index);
        }
        let id = LaneId(self.lanes.len());
        self.lanes.push(lane);
        self.by_nsid.entry(nsid.to_owned()).or_default().0.push(id);
        id
    }

    fn source(&mut self, nsid: &str, subject: &str) -> SourceId {
        let spec = format!("{nsid} at {subject}");
        if let Some(index) = self.sources.iter().position(|source| source.spec == spec) {
            return SourceId(index);
        }
        let id = SourceId(self.sources.len());
        self.sources.push(FollowSource {
            spec,
            nsid: nsid.to_owned(),
            subject: subject.to_owned(),
        });
        self.by_nsid.entry(nsid.to_owned()).or_default().1.push(id);
        id
    }

    /// Whether a lane holds every record of its collection, each under who signed it.
    pub fn holds_all(&self, lane: &Lane) -> bool {
        lane.lists_authors() && !self.is_direct(&lane.nsid)
    }

    /// Whether the records of a lane stand in it under who signed them, and nothing else.
    pub fn is_by_author(&self, lane: &Lane) -> bool {
        lane.keys == ["author"] && lane.rules.is_empty() && !self.is_direct(&lane.nsid)
    }

    /// Whether records of this collection are written directly.
    pub fn is_direct(&self, nsid: &str) -> bool {
        self.actors.contains_key(nsid)
    }

    /// Whether the entries of a feed stand under who signed them, and nothing else.
    pub fn is_of_authors(&self, feed: &FeedPlan) -> bool {
        let lanes = feed.targets.iter().map(|target| target.lane.0);
        let mut lanes = lanes.filter_map(|lane| self.lanes.get(lane));
        feed.merged.is_none() && lanes.all(|lane| self.is_by_author(lane))
    }

    /// Whether records of this collection are kept at all.
    pub fn keeps(&self, nsid: &str) -> bool {
        self.by_nsid.contains_key(nsid)
    }

    /// The lane that lists a collection by author, if it is listed.
    pub fn listing(&self, nsid: &str) -> Option<LaneId> {
        self.lanes
            .iter()
            .position(|lane| lane.nsid == nsid && lane.lists_authors())
            .map(LaneId)
    }

    /// The business rules of a collection.
    pub fn rules(&self, nsid: &str) -> &[Rule] {
        self.rules.get(nsid).map_or(&[], Vec::as_slice)
    }

    /// The feed of this name.
    pub fn feed(&self, name: &str) -> Option<&FeedPlan> {
        self.feeds.iter().find(|feed| feed.name == name)
    }

    /// What a record derives.
    pub fn derive(&self, nsid: &str, did: &str, value: &Value<'_>) -> Derived {
        let Some((lanes, sources)) = self.by_nsid.get(nsid) else {
            return Derived::default();
        };
        let text = |path: &str| value.at(path).and_then(Value::text);
        let lanes = lanes
            .iter()
            .filter_map(|id| {
                let keys = self.keys(self.lanes.get(id.0)?, did, value)?;
                (!keys.is_empty()).then_some((*id, keys))
            })
            .collect();
        let follows = sources
            .iter()
            .filter_map(|id| Some((*id, text(&self.sources.get(id.0)?.subject)?.to_owned())))
            .collect();
        let merges = self.merges.get(nsid).into_iter().flatten();
        let mut parts: Vec<Part> = Vec::new();
        for part in merges.filter_map(|target| self.part(target, did, value)) {
            // Of two targets of one feed that want the same record, the first has it.
            if parts.iter().all(|other| other.lane != part.lane) {
                parts.push(part);
            }
        }
        let ladders = self.ladders.iter().enumerate();
        let rungs = ladders
            .filter(|(_, ladder)| ladder.nsid == nsid)
            .flat_map(|(index, ladder)| {
                let rungs = ladder.rungs(value).into_iter();
                rungs.map(move |rung| (LadderId(index), rung))
            })
            .collect();
        Derived {
            lanes,
            person: self.person(nsid, did, value),
            follows,
            parts,
            rungs,
        }
    }
}
