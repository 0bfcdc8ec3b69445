//! Counters of what transactions did, whoever asked for them: a source, an app, a host that was
//! fetched, an operator.
//!
//! In:    what a commit did.
//! Out:   metrics, each unit counted once: when it arrives. What moves later was counted before.

use metrics::counter;

use super::Committed;
use crate::metrics as names;

/// Counts what a transaction did.
pub(super) fn count(committed: &Committed) {
    let units = committed.arrived;
    for (outcome, count) in [
        ("applied", units.applied),
        ("repeated", units.repeated),
        ("superseded", units.superseded),
        ("filtered", units.filtered),
        ("pending", units.pending),
        ("parked", units.parked),
        ("held", units.held),
        ("dead", units.dead),
    ] {
        counter!(names::UNITS, "outcome" => outcome).increment(count.max(0).cast_unsigned());
    }
    counter!(names::FILTERED).increment(units.filtered.max(0).cast_unsigned());
    for fate in &committed.woken {
        counter!(names::WOKEN, "fate" => fate.word()).increment(1);
    }
    for worked in &committed.worked {
        counter!(names::QUEUE_DONE, "queue" => worked.queue.clone()).increment(worked.done);
        counter!(names::QUEUE_SPILLED, "queue" => worked.queue.clone()).increment(worked.spilled);
    }
    for (stage, collection, count) in &committed.buried {
        counter!(names::REFUSED, "stage" => stage.clone(), "collection" => collection.clone())
            .increment(*count);
    }
    for (cause, count) in &committed.closed {
        counter!(names::DEAD_CLOSED, "cause" => cause.word()).increment(*count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Accounting;

    /// A transaction in which one unit arrived and was parked, and one that had waited was applied.
    #[test]
    fn units_are_counted_when_they_arrive_and_not_when_they_move() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        let arrived = Accounting {
            parked: 1,
            received: 1,
            ..Accounting::default()
        };
        let mut accounting = arrived;
        accounting.add(&Accounting {
            parked: -1,
            applied: 1,
            ..Accounting::default()
        });
        let committed = Committed {
            arrived,
            accounting,
            ..Committed::default()
        };
        metrics::with_local_recorder(&recorder, || count(&committed));
        let text = handle.render();
        for (outcome, value) in [("parked", 1), ("applied", 0), ("filtered", 0)] {
            let line = format!("\n{}{{outcome=\"{outcome}\"}} {value}\n", names::UNITS);
            assert!(text.contains(&line), "{line} is not in {text}");
        }
    }
}
