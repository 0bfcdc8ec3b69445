//! Thresholds: when somebody must hear of dead letters.
//!
//! In:    the thresholds of a configuration; how many dead letters there are, and the time.
//! Out:   an [`Alert`] for each threshold that is crossed, not again before its pause is over.
//! Never: an alert that is raised all the time while nobody repairs its cause.

use metrics::counter;
use tracing::warn;

use crate::clock::Micros;
use crate::config::Settle;
use crate::config::settle::Threshold;
use crate::metrics as names;
use crate::store::{LetterQuery, SharedStore, StoreError, Waiting};

const SECOND_US: Micros = 1_000_000;
const HOUR_US: Micros = 3600 * SECOND_US;
/// Between two looks at what was refused within the last hour.
const RATES_EVERY_US: Micros = 10 * SECOND_US;

/// A threshold is crossed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Alert {
    /// `dead_letters` for how many are kept, `dead_letters_per_hour` for how many came.
    pub alert: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collection: Option<String>,
    pub count: i64,
    pub threshold: u64,
    pub time: String,
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Measure {
    Kept,
    PerHour,
}

/// One number that is watched.
#[derive(Debug)]
struct Watched {
    threshold: Threshold,
    measure: Measure,
    limit: u64,
    raised_us: Option<Micros>,
}

/// All that are watched.
#[derive(Debug)]
pub(super) struct Thresholds {
    watched: Vec<Watched>,
    pause_us: Micros,
    /// When rates were last looked at.
    rates_us: Option<Micros>,
}

impl Thresholds {
    pub(super) fn new(settings: &Settle) -> Self {
        let all = Threshold {
            above: (settings.dead_alert > 0).then_some(settings.dead_alert),
            ..Threshold::default()
        };
        let mut watched = Vec::new();
        for threshold in std::iter::once(&all).chain(&settings.alert) {
            let limits = [
                (Measure::Kept, threshold.above),
                (Measure::PerHour, threshold.per_hour),
            ];
            for (measure, limit) in limits {
                let Some(limit) = limit else { continue };
                watched.push(Watched {
                    threshold: threshold.clone(),
                    measure,
                    limit,
                    raised_us: None,
                });
            }
        }
        let pause_us = i64::try_from(settings.alert_pause_s)
            .map_or(i64::MAX, |seconds| seconds.saturating_mul(SECOND_US));
        Self {
            watched,
            pause_us,
            rates_us: None,
        }
    }

    /// The thresholds that are crossed now, and were not a short while ago.
    pub(super) fn crossed(
        &mut self,
        now_us: Micros,
        store: &SharedStore,
        waiting: &Waiting,
    ) -> Result<Vec<Alert>, StoreError> {
        let rates = self
            .rates_us
            .is_none_or(|looked| now_us >= looked.saturating_add(RATES_EVERY_US));
        if rates {
            self.rates_us = Some(now_us);
        }
        let mut alerts = Vec::new();
        for watched in &mut self.watched {
            let count = match watched.measure {
                Measure::PerHour if !rates => continue,
                Measure::PerHour => store.count_dead(&LetterQuery {
                    since_us: Some(now_us.saturating_sub(HOUR_US)),
                    ..watched.query()
                })?,
                Measure::Kept if watched.is_for_all() => waiting.dead,
                Measure::Kept => watched.kept(store)?,
            };
            alerts.extend(watched.look(now_us, count, self.pause_us));
        }
        Ok(alerts)
    }
}

impl Watched {
    fn is_for_all(&self) -> bool {
        self.threshold.stage.is_none() && self.threshold.collection.is_none()
    }

    fn query(&self) -> LetterQuery {
        LetterQuery {
            stage: self.threshold.stage.clone(),
            collection: self.threshold.collection.clone(),
            ..LetterQuery::default()
        }
    }

    /// How many that it is for are kept.
    fn kept(&self, store: &SharedStore) -> Result<i64, StoreError> {
        let (stage, collection) = (&self.threshold.stage, &self.threshold.collection);
        let kinds = store.dead_by_kind()?;
        let ours = kinds.iter().filter(|kind| {
            stage.as_ref().is_none_or(|stage| *stage == kind.stage)
                && collection
                    .as_ref()
                    .is_none_or(|nsid| *nsid == kind.collection)
        });
        Ok(ours.map(|kind| kind.count).sum())
    }

    fn look(&mut self, now_us: Micros, count: i64, pause_us: Micros) -> Option<Alert> {
        if count <= i64::try_from(self.limit).unwrap_or(i64::MAX) {
            self.raised_us = None;
            return None;
        }
        let rests = |raised: Micros| now_us < raised.saturating_add(pause_us);
        if self.raised_us.is_some_and(rests) {
            return None;
        }
        self.raised_us = Some(now_us);
        let alert = match self.measure {
            Measure::Kept => "dead_letters",
            Measure::PerHour => "dead_letters_per_hour",
        };
        let (stage, collection) = (&self.threshold.stage, &self.threshold.collection);
        warn!(
            alert,
            stage,
            collection,
            count,
            threshold = self.limit,
            "more dead letters than the threshold"
        );
        counter!(names::ALERTS, "alert" => alert, "result" => "raised").increment(1);
        Some(Alert {
            alert: alert.into(),
            stage: stage.clone(),
            collection: collection.clone(),
            count,
            threshold: self.limit,
            time: record::datetime::format_us(now_us),
        })
    }
}
