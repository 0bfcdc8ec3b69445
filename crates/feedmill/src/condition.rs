//! Conditions: everything that can be wrong with a running process, by name.
//!
//! In:    nothing; this is a list.
//! Out:   for each condition a stable code, a sentence that says what is wrong
//!        and what to do, and whether the process is ready while it holds.
//! Never: a condition without a series in `/metrics`; a code that changes.
//!
//! Whether a condition holds is decided in `status`, from the clock and from
//! facts that stages write, whenever somebody asks.

use serde::{Deserialize, Serialize};

use crate::clock::Micros;

/// Something that is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// Another process or program holds the write lock of the store.
    StoreLocked,
    /// The store's disk has no room left, or almost none.
    DiskFull,
    /// Work was handed to the store and is not durable after a while.
    StoreStalled,
    /// One transaction of ours is open for too long.
    LongTransaction,
    /// Every write fails, for another reason than a lock or a full disk.
    StoreFailing,
    /// The store's file is damaged, or does not fit this program.
    StoreDamaged,
    /// A source is not connected.
    SourceDisconnected,
    /// Our clock and the times of the events differ.
    ClockDisagrees,
    /// Events are old when they become durable.
    Behind,
    /// What needs the store was last measured too long ago.
    MeasurementsStale,
    /// No other process ingests, and this one only serves.
    IngesterSilent,
    /// Records were stored under a wrong clock, and are not repaired.
    RecordsMisdated,
    /// Changes are not applied to the timelines in memory, and pages come from them.
    TimelinesStuck,
    /// Something kept beside the records does not follow their changes.
    ConsumerFailing,
    /// The labels of a labeler are not read or not kept.
    LabelsFailing,
}

impl Condition {
    /// All of them, in the order in which they are shown.
    pub const ALL: &'static [Self] = &[
        Self::StoreDamaged,
        Self::DiskFull,
        Self::StoreLocked,
        Self::StoreFailing,
        Self::StoreStalled,
        Self::LongTransaction,
        Self::TimelinesStuck,
        Self::IngesterSilent,
        Self::SourceDisconnected,
        Self::ClockDisagrees,
        Self::MeasurementsStale,
        Self::Behind,
        Self::ConsumerFailing,
        Self::LabelsFailing,
        Self::RecordsMisdated,
    ];

    /// Its name in `/ready`, `/status`, `/metrics` and alerts.
    pub fn code(self) -> &'static str {
        match self {
            Self::StoreLocked => "store_locked",
            Self::DiskFull => "disk_full",
            Self::StoreStalled => "store_stalled",
            Self::LongTransaction => "long_transaction",
            Self::StoreFailing => "store_failing",
            Self::StoreDamaged => "store_damaged",
            Self::SourceDisconnected => "source_disconnected",
            Self::ClockDisagrees => "clock_disagrees",
            Self::Behind => "behind",
            Self::MeasurementsStale => "measurements_stale",
            Self::IngesterSilent => "ingester_silent",
            Self::RecordsMisdated => "records_misdated",
            Self::TimelinesStuck => "timelines_stuck",
            Self::ConsumerFailing => "consumer_failing",
            Self::LabelsFailing => "labels_failing",
        }
    }

    /// Whether `/ready` answers 503 while it holds.
    pub fn blocks(self) -> bool {
        !matches!(
            self,
            Self::Behind | Self::RecordsMisdated | Self::ConsumerFailing | Self::LabelsFailing
        )
    }

    /// Whether it holds for every process on the same store, not only for the one that reports it.
    pub fn is_of_store(self) -> bool {
        !matches!(
            self,
            Self::TimelinesStuck | Self::ConsumerFailing | Self::LabelsFailing
        )
    }

    /// What is wrong and what to do, in plain words.
    pub fn advice(self) -> &'static str {
        match self {
            Self::StoreLocked => {
                "another program holds the store's write lock; find it (`fuser` on the store's file) and end its transaction. Nothing is lost, writing goes on by itself"
            }
            Self::DiskFull => {
                "the store's disk is full or almost full; free or add space. Nothing is lost, writing goes on by itself"
            }
            Self::StoreStalled => {
                "work handed to the store does not become durable; look at the disk (`iostat -x`, `dmesg`) and at the log of this process"
            }
            Self::LongTransaction => {
                "one transaction has been open for long, so everything written waits for it; a very large repository or a slow disk are the usual causes. Restart the process if it does not end"
            }
            Self::StoreFailing => {
                "the store cannot be written; the detail names the error. Check the disk, the file's permissions and limits on file sizes. Nothing is lost, writing goes on by itself"
            }
            Self::StoreDamaged => {
                "the store is damaged, and ingestion has stopped so that the damage does not spread; restore a backup and start again"
            }
            Self::SourceDisconnected => {
                "a source cannot be read; check its address and the network. It is tried again by itself"
            }
            Self::ClockDisagrees => {
                "the clock of this machine and the times of the events differ; set the clock (`timedatectl`), then run `feedmill repair-clock` for what was stored meanwhile"
            }
            Self::Behind => {
                "events are older than a minute when they become durable; if the queue is full the store is slow, else the source is"
            }
            Self::IngesterSilent => {
                "this process only serves, and the process that ingests does not report; pages are exact but grow old. Start `feedmill ingest`, or look at its log and its own `/ready`"
            }
            Self::RecordsMisdated => {
                "records were stored while the clock was wrong, so they are in wrong places; set the clock (`timedatectl`), stop every process on this store and run `feedmill repair-clock`"
            }
            Self::TimelinesStuck => {
                "changes cannot be applied to the timelines in memory, so pages are exact but grow old; the detail names the error. It is tried again by itself; if it does not end, restart the process"
            }
            Self::ConsumerFailing => {
                "search, the log, live news or the loading of timelines does not go on; the detail says which and why. It is tried again by itself and nothing is lost; meanwhile it falls behind, and the store answers pages"
            }
            Self::LabelsFailing => {
                "the labels of a labeler cannot be read or kept; the detail says whose and why. It is tried again by itself; labels of before are still shown"
            }
            Self::MeasurementsStale => {
                "the store did not answer the measuring thread for a while; numbers that need the store are old. Look for long queries and a slow disk"
            }
        }
    }
}

/// A condition that holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    pub condition: Condition,
    /// Since when.
    pub since_us: Micros,
    /// What exactly: the error, the source, the number.
    pub detail: String,
}

/// A problem as `/ready` and `/status` show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shown {
    pub code: &'static str,
    /// Whether the process is not ready because of it.
    pub blocking: bool,
    pub since: String,
    pub seconds: i64,
    pub detail: String,
    pub advice: &'static str,
}

impl Problem {
    /// It, at a moment.
    pub fn shown(&self, now_us: Micros) -> Shown {
        Shown {
            code: self.condition.code(),
            blocking: self.condition.blocks(),
            since: record::datetime::format_us(self.since_us),
            seconds: (now_us - self.since_us).max(0) / 1_000_000,
            detail: self.detail.clone(),
            advice: self.condition.advice(),
        }
    }
}

/// Whether a process with these problems is ready.
pub fn is_ready(problems: &[Problem]) -> bool {
    !problems.iter().any(|problem| problem.condition.blocks())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_condition_is_listed_once_under_a_code_of_its_own() {
        let mut codes: Vec<&str> = Condition::ALL.iter().map(|one| one.code()).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), Condition::ALL.len());
        for one in Condition::ALL {
            let written = serde_json::to_value(one).expect("a code");
            assert_eq!(written, one.code());
        }
        // The last of the enum is the highest, so none was forgotten.
        assert_eq!(Condition::ALL.len(), Condition::LabelsFailing as usize + 1);
    }
}
