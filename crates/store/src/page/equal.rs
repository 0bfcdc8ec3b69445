//! Pages of records that have one value of a field, in the order of time.
//!
//! In:    the values of sort indexes that every wanted record has one of.
//! Out:   the page, from the records of these values or from all that could be seen.
//! Never: a page that costs as much as the larger of two lists, where the smaller has it too.
//!
//! Of a feed, or of one author's records, it is not known beforehand which are
//! fewer: these, or all records of the value. So both are read by turns, each
//! time further, until one of them has the page.

use super::budget::Budget;
use super::fill::{Filled, Wanted};
use super::stream::{Streams, Way};
use crate::error::StoreError;
use crate::port::Snapshot;

/// Candidates looked at in the first turn, and how many times more in each next one.
const TURN: usize = 500;
const LONGER: usize = 8;

/// The page. `walk` makes the same page without a sort index, looking at so many candidates; `is_all` says that
/// everything in the index may be seen, so that the values have no more records than it.
pub(super) fn page(
    snapshot: &dyn Snapshot,
    among: &Wanted<'_>,
    collection: &str,
    is_all: bool,
    walk: &dyn Fn(usize) -> Result<Filled, StoreError>,
) -> Result<Filled, StoreError> {
    let budget = among.budget;
    let (Some((index, _)), false) = (among.under, among.filter.equal.is_empty()) else {
        return walk(budget.scan_max);
    };
    let mut scan_max = if is_all { budget.scan_max } else { TURN };
    loop {
        scan_max = scan_max.min(budget.scan_max);
        let turn = Budget { scan_max, ..budget };
        let mut streams = Streams::default();
        for (sort, value) in among.filter.equal {
            streams.add((index, collection), Way::Value(*sort, value), among.before);
        }
        let caps = vec![None; among.filter.equal.len()];
        let within = Wanted {
            budget: turn,
            caps: &caps,
            ..*among
        };
        let of_value = within.fill(snapshot, &mut streams)?;
        if is_all || of_value.is_whole(&budget) {
            return Ok(of_value);
        }
        let walked = walk(scan_max)?;
        if walked.is_whole(&budget) {
            return Ok(walked);
        }
        if scan_max == budget.scan_max {
            // Both are right as far as they go.
            return Ok(match of_value.next < walked.next {
                true => of_value,
                false => walked,
            });
        }
        scan_max = scan_max.saturating_mul(LONGER);
    }
}
