//! What an ingesting process says of itself to other processes on its store.
//!
//! In:    the facts of the ingesting process.
//! Out:   the same facts in another process, from which lag and connection are
//!        computed again when asked.
//! Never: a report of a process that is gone taken for its present state.

use serde::{Deserialize, Serialize};

use super::source::{Facts, SourceState, StreamKind};
use crate::clock::Micros;
use crate::condition::{Condition, Problem};

/// Without a report for so long, nobody ingests.
const SILENT_US_MAX: Micros = 10_000_000;

/// One report.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    pub started_us: Micros,
    /// Where the process answers, if anywhere.
    pub address: Option<String>,
    /// It was asked to stop.
    pub stopped: bool,
    /// Units per second.
    pub rate: f64,
    pub sources: Vec<Named>,
    pub progress: Progress,
    /// What is wrong with it, without what follows from its sources.
    pub problems: Vec<Problem>,
}

/// One source, by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Named {
    pub name: String,
    pub kind: StreamKind,
    pub facts: Facts,
}

impl Named {
    pub fn of(source: &SourceState) -> Self {
        Self {
            name: source.name.clone(),
            kind: source.kind,
            facts: source.facts(),
        }
    }
}

/// Repairs and lists of accounts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// A list is being read.
    pub listing: bool,
    /// Accounts seen in lists, and those of them that were never heard of.
    pub listed: u64,
    pub adopted: u64,
    /// Repositories being fetched, and fetched.
    pub resyncing: i64,
    pub resynced: u64,
}

/// The process that ingests into our store, as this process knows it.
#[derive(Debug, Clone, Default)]
pub struct Ingester {
    /// When it last reported; the start of this process before that.
    pub at_us: Micros,
    /// Its last report, if it ever made one that can be read.
    pub said: Option<Heartbeat>,
    /// Why its last report cannot be read.
    pub error: Option<String>,
}

impl Ingester {
    /// An ingester that was not heard of yet.
    pub fn awaited(now_us: Micros) -> Self {
        Self {
            at_us: now_us,
            ..Self::default()
        }
    }

    /// The report that was found in the store.
    pub fn parse(at_us: Micros, report: &str) -> Self {
        let (said, error) = match serde_json::from_str(report) {
            Ok(said) => (Some(said), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Self { at_us, said, error }
    }

    /// Why its last report does not say how it is now.
    fn silence(&self, now_us: Micros) -> Option<String> {
        if let Some(error) = &self.error {
            return Some(format!(
                "the report of the ingesting process cannot be read; is it of another version? {error}"
            ));
        }
        let age = (now_us - self.at_us) / 1_000_000;
        match &self.said {
            Some(said) if said.stopped => Some(format!(
                "the ingesting process was stopped {age} s ago; start `feedmill ingest`"
            )),
            _ if now_us - self.at_us <= SILENT_US_MAX => None,
            Some(_) => Some(format!(
                "the ingesting process reported last {age} s ago; it is gone, or cannot write into the store"
            )),
            None => Some(format!(
                "no process ingested into this store in the last {age} s; start `feedmill ingest`"
            )),
        }
    }

    /// Whether its last report is of now.
    pub fn is_present(&self, now_us: Micros) -> bool {
        self.said.is_some() && self.silence(now_us).is_none()
    }

    /// Its sources. Where it is silent, none is connected since its last report.
    pub fn sources(&self, now_us: Micros) -> Vec<Named> {
        let mut sources = self.said.clone().unwrap_or_default().sources;
        if let Some(silence) = self.silence(now_us) {
            for source in &mut sources {
                source.facts.lose(self.at_us, silence.clone());
            }
        }
        sources
    }

    /// What is wrong with it.
    pub fn problems(&self, now_us: Micros) -> Vec<Problem> {
        if let Some(detail) = self.silence(now_us) {
            return vec![Problem {
                condition: Condition::IngesterSilent,
                since_us: self.at_us,
                detail,
            }];
        }
        let said = self.said.iter();
        said.flat_map(|said| said.problems.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Micros = 1_000_000;
    const NOW: Micros = 1_790_000_000 * S;

    fn report(stopped: bool) -> Ingester {
        let mut facts = Facts::new(NOW);
        facts.connect(NOW);
        facts.arrive(NOW);
        let said = Heartbeat {
            stopped,
            sources: vec![Named {
                name: "relay".into(),
                kind: StreamKind::Firehose,
                facts,
            }],
            ..Heartbeat::default()
        };
        Ingester::parse(NOW, &serde_json::to_string(&said).unwrap())
    }

    #[track_caller]
    fn check(ingester: &Ingester, now_us: Micros, connected: bool, words: Option<&str>) {
        let sources = ingester.sources(now_us);
        assert!(sources.iter().all(|one| one.facts.connected == connected));
        let problems = ingester.problems(now_us);
        let detail = problems.first().map(|problem| problem.detail.as_str());
        match (words, detail) {
            (None, None) => {}
            (Some(words), Some(detail)) => assert!(detail.contains(words), "{detail}"),
            differ => panic!("{differ:?}"),
        }
    }

    #[test]
    fn a_report_of_now_is_the_state_of_the_ingester_and_lag_grows_from_it() {
        let ingester = report(false);
        check(&ingester, NOW + 5 * S, true, None);
        let sources = ingester.sources(NOW + 5 * S);
        assert_eq!(sources[0].facts.lag_us(NOW + 5 * S), 5 * S);
    }

    #[test]
    fn an_ingester_that_is_gone_or_stopped_is_not_connected() {
        check(&report(false), NOW + 11 * S, false, Some("11 s ago"));
        check(&report(true), NOW + S, false, Some("was stopped 1 s ago"));
    }

    #[test]
    fn an_ingester_that_never_reported_and_one_that_cannot_be_understood_are_problems() {
        check(&Ingester::awaited(NOW), NOW + S, false, None);
        let never = Some("no process ingested");
        check(&Ingester::awaited(NOW), NOW + 11 * S, false, never);
        let odd = Ingester::parse(NOW, "{}");
        check(&odd, NOW, false, Some("cannot be read"));
    }
}
