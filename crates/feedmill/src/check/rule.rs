//! The rules of a configuration, held when a record is checked.
//!
//! In:    a record that its lexicon accepts.
//! Out:   nothing, or what its dead letter says about the first broken rule.
//! Never: a rule that needs another record; the store holds those.

use record::value::Value;

use super::Claim;
use crate::expression::Scope;
use crate::store::batch::DeadLetter;
use crate::store::plan::Plan;

/// The first rule over the record alone that it breaks.
pub(super) fn broken(plan: &Plan, claim: Claim<'_>, value: &Value<'_>) -> Option<DeadLetter> {
    let mut rules = plan
        .rules(claim.collection)
        .iter()
        .filter(|rule| !rule.is_linked())
        .peekable();
    rules.peek()?;
    let scope = Scope::of_rules(claim.did, claim.rkey, value);
    rules.find_map(|rule| rule.broken(&scope, value))
}
