//! Replicas of a part hold that part, and no more, whatever is rolled back behind it.

use super::luck::Luck;
use super::{FEEDS, Workshop, World, content, held};
use blocklog::message::{Answer, Fault, Reply};
use blocklog::replica::{Mode, Target};
use blocklog::store::ReplicaStore as _;
use serde_json::Value;

const MODES: [Mode; 3] = [Mode::Tail, Mode::From(7), Mode::Since(9000)];

/// What a replica of a part wants: of the whole space, or of each feed something else.
pub(super) fn lanes(luck: &mut Luck) -> Vec<(Target, Mode)> {
    let mut mode = || MODES[luck.below(3) as usize];
    let whole = mode();
    if whole != Mode::Since(9000) {
        return vec![(Target::Space, whole)];
    }
    let each = FEEDS.map(|feed| (Target::Feed(feed.into()), mode()));
    each.into()
}

impl<W: Workshop> World<W> {
    /// Remember where the authority let a part begin: it decides that, not the replica.
    pub(super) fn note_floor(&mut self, peer: usize, message: &Value, reply: &Reply) {
        if !self.weather.ranges {
            return;
        }
        let asks_where = message.get("tail").is_some() || message.get("since").is_some();
        let begins = match &reply.outcome {
            Ok(Answer::Blocks(page)) if asks_where => page.after,
            // It lies ahead, so the part begins at the end.
            Err(Fault::BeyondEnd { position_max, .. }) => *position_max,
            _ => return,
        };
        let feeds = message.get("feedIds").and_then(Value::as_array);
        let targets = match feeds {
            None => vec![Target::Space],
            Some(feeds) => feeds
                .iter()
                .map(|feed| Target::Feed(feed.as_str().unwrap().into()))
                .collect(),
        };
        for target in targets {
            let floor = self.floors.entry((peer, target)).or_insert(begins);
            *floor = begins.min(*floor);
        }
    }

    /// Whether every replica has pulled something of its part: from then on the authority is not
    /// rolled back behind where one begins.
    pub(super) fn has_begun(&self) -> bool {
        self.peers.iter().all(|peer| {
            let lanes = peer.store.lanes(super::SPACE).unwrap();
            lanes.iter().all(|lane| lane.cursor.is_some())
        })
    }

    /// No replica of a part holds what others wrote before that part.
    pub(super) fn check_ranges(&self) {
        for (number, peer) in self.peers.iter().enumerate().skip(1) {
            let lanes = peer.store.lanes(super::SPACE).unwrap();
            for held in held(&peer.store) {
                let feed = Target::Feed(held.block.feed.clone());
                let of = |target: &Target| lanes.iter().find(|lane| lane.target == *target);
                let lane = of(&feed).or_else(|| of(&Target::Space)).unwrap();
                let begins = match lane.mode {
                    Mode::From(position) => position - 1,
                    _ => u64::MAX,
                };
                let noted = self.floors.get(&(number, lane.target.clone()));
                let floor = noted.copied().unwrap_or(u64::MAX).min(begins);
                let is_own = self.written[&content(&held)].peer == number;
                assert!(
                    is_own || held.position.is_none_or(|position| position > floor),
                    "peer {number} asked for {:?}, behind {floor}, and holds {held:?}",
                    lane.mode
                );
            }
        }
    }
}
