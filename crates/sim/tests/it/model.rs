//! The model's rules on cases small enough to check by eye.

use sim::model::{Fact, Model, Rules, Standing};

const RULES: Rules<'static> = Rules {
    follow: "follow",
    targets: &["post"],
    include_self: false,
    lexicons: true,
};

fn fact(did: &str, collection: &str, rkey: &str) -> Fact {
    Fact {
        did: did.to_owned(),
        collection: collection.to_owned(),
        rkey: rkey.to_owned(),
        cid: String::new(),
        created_us: Some(0),
        subject: None,
        sound: true,
        said: None,
    }
}

fn post(did: &str, rkey: &str, created_us: impl Into<Option<i64>>) -> Fact {
    Fact {
        created_us: created_us.into(),
        ..fact(did, "post", rkey)
    }
}

fn follow(did: &str, rkey: &str, subject: &str) -> Fact {
    Fact {
        subject: Some(subject.to_owned()),
        ..fact(did, "follow", rkey)
    }
}

fn model(facts: impl IntoIterator<Item = Fact>) -> Model {
    let mut model = Model::default();
    for fact in facts {
        model.put(fact);
    }
    model
}

/// The feed of `me`, first sight being at 1000 for everything, as `author/rkey`.
#[track_caller]
fn check(model: &Model, rules: &Rules<'_>, expected: &[&str]) {
    let feed = model.feed("me", rules, &|_| 1000);
    let found: Vec<String> = feed
        .iter()
        .map(|entry| {
            let parts: Vec<&str> = entry.uri.split('/').collect();
            format!("{}/{}", parts[2], parts[4])
        })
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn feed_holds_the_posts_of_those_followed_newest_first() {
    let model = model([
        follow("me", "1", "ann"),
        follow("me", "2", "bob"),
        follow("you", "1", "cem"),
        post("ann", "1", 10),
        post("bob", "1", 30),
        post("ann", "2", 20),
        post("cem", "1", 40),
        post("me", "1", 50),
        fact("ann", "like", "1"),
    ]);
    check(&model, &RULES, &["bob/1", "ann/2", "ann/1"]);
}

#[test]
fn equal_times_are_ordered_by_uri_descending() {
    let model = model([
        follow("me", "1", "ann"),
        follow("me", "2", "bob"),
        post("ann", "2", 10),
        post("bob", "1", 10),
        post("ann", "1", 10),
    ]);
    check(&model, &RULES, &["bob/1", "ann/2", "ann/1"]);
}

#[test]
fn missing_and_future_times_are_replaced_by_first_sight() {
    let model = model([
        follow("me", "1", "ann"),
        post("ann", "future", 5000),
        post("ann", "missing", None),
        post("ann", "now", 1000),
        post("ann", "just-before", 999),
    ]);
    let feed = model.feed("me", &RULES, &|_| 1000);
    let times: Vec<i64> = feed.iter().map(|entry| entry.time_us).collect();
    assert_eq!(times, [1000, 1000, 1000, 999]);
    check(
        &model,
        &RULES,
        &["ann/now", "ann/missing", "ann/future", "ann/just-before"],
    );
}

#[test]
fn double_follow_shows_once_and_survives_the_loss_of_one_record() {
    let mut model = model([
        follow("me", "1", "ann"),
        follow("me", "2", "ann"),
        post("ann", "1", 10),
    ]);
    check(&model, &RULES, &["ann/1"]);
    model.remove("at://me/follow/1");
    check(&model, &RULES, &["ann/1"]);
    model.remove("at://me/follow/2");
    check(&model, &RULES, &[]);
}

#[test]
fn own_posts_show_by_setting_or_by_following_oneself() {
    let mut model = model([post("me", "1", 10)]);
    check(&model, &RULES, &[]);
    let own = Rules {
        include_self: true,
        ..RULES
    };
    check(&model, &own, &["me/1"]);
    model.put(follow("me", "1", "me"));
    check(&model, &RULES, &["me/1"]);
    check(&model, &own, &["me/1"]);
}

#[test]
fn hidden_accounts_are_out_of_sight_until_they_return() {
    let mut model = model([follow("me", "1", "ann"), post("ann", "1", 10)]);
    for way in [
        Standing::Takendown,
        Standing::Suspended,
        Standing::Deactivated,
    ] {
        model.stand("ann", way);
        check(&model, &RULES, &[]);
        model.stand("ann", Standing::Active);
        check(&model, &RULES, &["ann/1"]);
    }
    for way in [Standing::Desynchronized, Standing::Throttled] {
        model.stand("ann", way);
        check(&model, &RULES, &["ann/1"]);
    }
}

#[test]
fn deletion_of_an_account_is_for_good() {
    let mut model = model([follow("me", "1", "ann"), post("ann", "1", 10)]);
    model.stand("ann", Standing::Deleted);
    model.stand("ann", Standing::Active);
    check(&model, &RULES, &[]);
}

#[test]
fn hidden_readers_follow_nobody() {
    let mut model = model([follow("me", "1", "ann"), post("ann", "1", 10)]);
    model.stand("me", Standing::Deactivated);
    check(&model, &RULES, &[]);
}

#[test]
fn unsound_records_count_only_without_lexicons() {
    let spoiled = Fact {
        sound: false,
        ..post("ann", "2", 20)
    };
    let unsound_follow = Fact {
        sound: false,
        ..follow("me", "2", "bob")
    };
    let model = model([
        follow("me", "1", "ann"),
        unsound_follow,
        post("ann", "1", 10),
        post("bob", "1", 30),
        spoiled,
    ]);
    check(&model, &RULES, &["ann/1"]);
    let lenient = Rules {
        lexicons: false,
        ..RULES
    };
    check(&model, &lenient, &["bob/1", "ann/2", "ann/1"]);
}

#[test]
fn several_targets_share_one_order() {
    let model = model([
        follow("me", "1", "ann"),
        post("ann", "1", 10),
        Fact {
            created_us: Some(20),
            ..fact("ann", "note", "2")
        },
        post("ann", "3", 30),
    ]);
    let both = Rules {
        targets: &["post", "note"],
        ..RULES
    };
    check(&model, &both, &["ann/3", "ann/2", "ann/1"]);
}

#[test]
fn did_that_begins_like_another_is_not_the_other() {
    let model = model([
        follow("me", "1", "ann"),
        post("ann.b", "1", 10),
        post("anna", "1", 20),
    ]);
    check(&model, &RULES, &[]);
}

#[test]
fn list_shows_a_collection_of_one_account_or_of_all() {
    let model = model([
        post("ann", "1", 10),
        post("bob", "1", 20),
        fact("ann", "note", "1"),
    ]);
    let uris = |did| {
        let list = model.list("post", did, true, &|_| 1000);
        list.into_iter().map(|entry| entry.uri).collect::<Vec<_>>()
    };
    assert_eq!(uris(None), ["at://bob/post/1", "at://ann/post/1"]);
    assert_eq!(uris(Some("ann")), ["at://ann/post/1"]);
}
