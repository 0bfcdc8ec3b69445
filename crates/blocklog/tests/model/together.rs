//! Appends that reach the authority together, and may share its last transaction.

use super::{SPACE, Workshop, World};
use blocklog::authority::Authority;
use blocklog::message::{Answer, AppendRequest, Appended, Fault, Reply, Request, RequestId};
use blocklog::store::{AppendError, LogStore as _};
use serde_json::Value;

/// Where a store may die: in the midst of a group, before its commit, and before anybody learns of it.
const KILLS: [&str; 3] = ["log.group.job", "log.group.before", "log.group.committed"];

fn is_append(message: &Value) -> bool {
    message.get("blocks").is_some() && message.get("covered").is_none()
}

impl<W: Workshop> World<W> {
    /// Deliver every append that is on its way at once.
    pub(super) fn deliver_together(&mut self) {
        let letters = std::mem::take(&mut self.letters);
        let (appends, others) = letters
            .into_iter()
            .partition(|letter| letter.to_authority && is_append(&letter.message));
        self.letters = others;
        let limits = self.weather.limits();
        let (mut senders, mut group): (Vec<super::Letter>, Vec<AppendRequest>) = Default::default();
        for letter in appends {
            match self.admit(&letter.message) {
                Ok(append) => {
                    senders.push(letter);
                    group.push(append);
                }
                Err(fault) => self.reply(letter, Err(fault)),
            }
        }
        let kill = match self.luck.below(4) {
            0 => Some(KILLS[self.luck.below(3) as usize]),
            _ => None,
        };
        let epoch = self.authority.space(SPACE).unwrap().unwrap().epoch;
        let now_ms = self.now_ms;
        let appended = self
            .workshop
            .append(&mut self.authority, group, now_ms, &limits, kill);
        for (letter, outcome) in senders.into_iter().zip(appended.into_iter().flatten()) {
            let outcome = match outcome {
                Ok(positions) => Ok(Answer::Appended(Appended {
                    positions: positions.into_iter().map(Option::unwrap).collect(),
                    epoch,
                })),
                Err(AppendError::Refused(refused)) => Err(refused.into()),
                Err(AppendError::Store(error)) => panic!("nobody was killed: {error}"),
            };
            self.reply(letter, outcome);
        }
        self.check_positions();
    }

    /// Read an append, and look at it as the authority does before it writes anything.
    fn admit(&self, message: &Value) -> Result<AppendRequest, Fault> {
        let (limits, writers) = (
            self.weather.limits(),
            self.weather.writers(self.peers.len()),
        );
        let authority = Authority {
            store: &self.authority,
            limits: &limits,
            writers: &writers,
        };
        let Request::Append(append) = Request::parse(message, None, SPACE, &limits)? else {
            panic!("not an append: {message}");
        };
        if let Some(cursor) = &append.cursor {
            authority.check_cursor(SPACE, cursor)?;
        }
        authority.check(&append)?;
        Ok(append)
    }

    fn reply(&mut self, letter: super::Letter, outcome: Result<Answer, Fault>) {
        let reply = Reply {
            id: RequestId::of(&letter.message, 128),
            outcome,
        };
        self.letters.push(super::Letter {
            to_authority: false,
            message: reply.to_message(),
            ..letter
        });
    }
}
