//! A column that is not what we wrote stops the batch, and is never taken for nothing.

use decide::derived::{Derived, Part};
use decide::rows::{Member, Record};
use store::error::StoreError;

use crate::case::{Case, commit, delete, did, op, put};
use crate::world::{MERGED, POSTS};

fn case() -> Case {
    let mut case = Case::new();
    let mut post = put("post");
    post.links = vec![("subject".into(), "at://x/y/z".into())];
    post.derived = Derived {
        entries: vec![(POSTS, vec![did(0)])],
        parts: vec![Part {
            index: MERGED,
            author: did(0),
            thing: Some("thing".into()),
            keys: vec![did(0)],
            adds: vec!["topic".into()],
        }],
        ..Derived::default()
    };
    case.events(vec![commit(0, 1, vec![op("x.post", "0", post)])]);
    case
}

#[track_caller]
fn check(case: &mut Case, column: &str) {
    let deleted = case.try_batch(vec![commit(0, 2, vec![delete("x.post", "0")])], Vec::new());
    match deleted {
        Err(StoreError::Damaged(damaged)) => assert_eq!(damaged.column, column),
        other => panic!("{other:?}"),
    }
    assert_eq!(case.live().len(), 1);
}

#[test]
fn damaged_columns_stop_the_batch() {
    let mut one = case();
    one.damage(|row: &mut Record| row.placed = Some("{".into()));
    check(&mut one, "placed");
    let mut one = case();
    one.damage(|row: &mut Record| row.links = Some("nothing".into()));
    check(&mut one, "links");
    let mut one = case();
    one.damage(|row: &mut Member| row.adds = "nothing".into());
    check(&mut one, "adds");
    let mut one = case();
    one.damage(|row: &mut Member| row.keys = vec![1, 2, 3]);
    check(&mut one, "keys");
}
