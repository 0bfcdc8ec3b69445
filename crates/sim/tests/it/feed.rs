//! The model of feeds on worlds small enough to check by eye, each from a
//! sentence of the design.

use sim::feed::{Feed, Key, Merge, Merging, Naming, Rule, Target};
use sim::model::{Fact, Model, Standing};

const MINUTE: i64 = 60;

/// A record with a time and fields.
fn record(path: &str, created_us: impl Into<Option<i64>>, says: &[(&'static str, &str)]) -> Fact {
    let parts: Vec<&str> = path.split('/').collect();
    let mut fields = sim::model::Fields::new();
    for (field, text) in says {
        fields.entry(*field).or_default().push((*text).to_owned());
    }
    Fact {
        did: parts[0].to_owned(),
        collection: parts[1].to_owned(),
        rkey: parts[2].to_owned(),
        cid: String::new(),
        created_us: created_us.into(),
        sound: true,
        fields: Some(fields),
    }
}

fn post(path: &str, created_us: impl Into<Option<i64>>) -> Fact {
    record(path, created_us, &[])
}

fn names(path: &str, key: &str) -> Fact {
    record(path, 0, &[("subject", key)])
}

fn world(facts: impl IntoIterator<Item = Fact>) -> Model {
    let mut model = Model::default();
    for fact in facts {
        model.put(fact);
    }
    model
}

/// Seed 000: follows and posts.
fn timeline() -> Feed {
    Feed::of("follow", vec![Target::of("post")])
}

/// Seed 001: cards and links to them, merged within two minutes; people and collections are followed.
fn following() -> Feed {
    let card = Target {
        merge: Some(Merge::OwnUri),
        ..Target::of("card")
    };
    let link = Target {
        merge: Some(Merge::Field("card")),
        keys: vec![Key::Author, Key::Field("set")],
        union: vec!["set"],
        ..Target::of("link")
    };
    Feed {
        merging: Some(Merging {
            window_us: 2 * MINUTE,
            thing_max: 1000,
        }),
        ..Feed::of("follow", vec![card, link])
    }
}

fn link(path: &str, created_us: i64, card: &str, set: &str) -> Fact {
    let card = format!("at://{card}");
    record(path, created_us, &[("card", &card), ("set", set)])
}

/// The feed of `me` as lines: the members' paths, then what they add up to.
/// Everything was first seen at 1000.
#[track_caller]
fn check(model: &Model, feed: &Feed, expected: &[&str]) {
    let shown = feed.all(model, "me", &|_| 1000);
    let short = |uri: &String| uri.trim_start_matches("at://").to_owned();
    let lines: Vec<String> = shown
        .iter()
        .map(|entry| {
            let members: Vec<String> = entry.members.iter().map(short).collect();
            match entry.union.is_empty() {
                true => members.join(" "),
                false => format!("{} | {}", members.join(" "), entry.union.join(" ")),
            }
        })
        .collect();
    assert_eq!(lines, expected);
}

// Seed 000: a follow collection and target collections.

#[test]
fn a_feed_holds_the_targets_of_those_followed_newest_first() {
    let model = world([
        names("me/follow/1", "ann"),
        names("me/follow/2", "bob"),
        names("you/follow/1", "cem"),
        post("ann/post/1", 10),
        post("bob/post/1", 30),
        post("ann/post/2", 20),
        post("cem/post/1", 40),
        post("me/post/1", 50),
        post("ann/like/1", 60),
        post("anna/post/1", 70),
        post("ann.b/post/1", 80),
    ]);
    check(
        &model,
        &timeline(),
        &["bob/post/1", "ann/post/2", "ann/post/1"],
    );
}

#[test]
fn equal_times_are_ordered_by_uri_descending() {
    let model = world([
        names("me/follow/1", "ann"),
        names("me/follow/2", "bob"),
        post("ann/post/2", 10),
        post("bob/post/1", 10),
        post("ann/post/1", 10),
    ]);
    check(
        &model,
        &timeline(),
        &["bob/post/1", "ann/post/2", "ann/post/1"],
    );
}

#[test]
fn missing_and_future_times_are_replaced_by_first_sight() {
    let model = world([
        names("me/follow/1", "ann"),
        post("ann/post/b-future", 5000),
        post("ann/post/a-missing", None),
        post("ann/post/c-now", 1000),
        post("ann/post/d-before", 999),
    ]);
    let times: Vec<i64> = timeline()
        .all(&model, "me", &|_| 1000)
        .iter()
        .map(|entry| entry.time_us)
        .collect();
    assert_eq!(times, [1000, 1000, 1000, 999]);
    let expected = [
        "ann/post/c-now",
        "ann/post/b-future",
        "ann/post/a-missing",
        "ann/post/d-before",
    ];
    check(&model, &timeline(), &expected);
}

#[test]
fn two_follows_of_one_key_show_its_records_once_until_both_are_gone() {
    let mut model = world([
        names("me/follow/1", "ann"),
        names("me/follow/2", "ann"),
        post("ann/post/1", 10),
    ]);
    check(&model, &timeline(), &["ann/post/1"]);
    model.remove("at://me/follow/1");
    check(&model, &timeline(), &["ann/post/1"]);
    model.remove("at://me/follow/2");
    check(&model, &timeline(), &[]);
}

#[test]
fn own_records_show_by_include_self_or_by_following_oneself() {
    let mut model = world([post("me/post/1", 10)]);
    check(&model, &timeline(), &[]);
    let own = Feed {
        include_self: true,
        ..timeline()
    };
    check(&model, &own, &["me/post/1"]);
    model.put(names("me/follow/1", "me"));
    check(&model, &timeline(), &["me/post/1"]);
    check(&model, &own, &["me/post/1"]);
}

#[test]
fn hidden_accounts_are_out_of_sight_until_they_return() {
    let mut model = world([names("me/follow/1", "ann"), post("ann/post/1", 10)]);
    for way in [
        Standing::Takendown,
        Standing::Suspended,
        Standing::Deactivated,
    ] {
        for who in ["ann", "me"] {
            model.stand(who, way);
            check(&model, &timeline(), &[]);
            model.stand(who, Standing::Active);
            check(&model, &timeline(), &["ann/post/1"]);
        }
    }
    for way in [Standing::Desynchronized, Standing::Throttled] {
        model.stand("ann", way);
        check(&model, &timeline(), &["ann/post/1"]);
    }
}

#[test]
fn deletion_of_an_account_is_for_good() {
    let mut model = world([names("me/follow/1", "ann"), post("ann/post/1", 10)]);
    model.stand("ann", Standing::Deleted);
    model.stand("ann", Standing::Active);
    check(&model, &timeline(), &[]);
}

#[test]
fn unsound_targets_and_follows_do_not_count() {
    let unsound = |fact: Fact| Fact {
        sound: false,
        ..fact
    };
    let model = world([
        names("me/follow/1", "ann"),
        unsound(names("me/follow/2", "bob")),
        post("ann/post/1", 10),
        unsound(post("ann/post/2", 20)),
        post("bob/post/1", 30),
    ]);
    check(&model, &timeline(), &["ann/post/1"]);
}

// Section 4: where follows come from, which records are targets, under which keys.

#[test]
fn follows_come_from_every_collection_named_each_by_its_own_field() {
    let model = world([
        names("me/follow/1", "ann"),
        record("me/interest/1", 0, &[("topic", "bob"), ("subject", "cem")]),
        post("ann/post/1", 10),
        post("bob/post/1", 20),
        post("cem/post/1", 30),
    ]);
    let mut feed = timeline();
    feed.follows.push(Naming {
        collection: "interest",
        subject: "topic",
    });
    check(&model, &feed, &["bob/post/1", "ann/post/1"]);
}

#[test]
fn a_record_reaches_the_followers_of_any_of_its_keys_once() {
    let mut target = Target::of("card");
    target.keys = vec![Key::Author, Key::Field("topics")];
    let feed = Feed::of("follow", vec![target]);
    let mut model = world([
        names("me/follow/1", "ann"),
        names("me/follow/2", "bread"),
        names("me/follow/3", "music"),
        record(
            "ann/card/1",
            10,
            &[("topics", "bread"), ("topics", "music")],
        ),
        record("bob/card/1", 20, &[("topics", "snow"), ("topics", "music")]),
        record("bob/card/2", 30, &[("topics", "snow")]),
    ]);
    check(&model, &feed, &["bob/card/1", "ann/card/1"]);
    model.remove("at://me/follow/3");
    check(&model, &feed, &["ann/card/1"]);
}

#[test]
fn records_that_do_not_meet_the_condition_are_not_in_the_feed() {
    let mut target = Target::of("post");
    target.holds = |post| post.text("langs") == Some("en");
    let feed = Feed::of("follow", vec![target]);
    let model = world([
        names("me/follow/1", "ann"),
        record("ann/post/1", 10, &[("langs", "en")]),
        record("ann/post/2", 20, &[("langs", "de")]),
        post("ann/post/3", 30),
    ]);
    check(&model, &feed, &["ann/post/1"]);
}

#[test]
fn the_first_rule_that_holds_replaces_the_keys() {
    let mut target = Target::of("card");
    target.keys = vec![Key::Author, Key::Field("set")];
    let rule = |when: fn(&Fact) -> bool, keys: &[Key]| Rule {
        when,
        keys: keys.to_vec(),
    };
    let feed = Feed {
        rules: vec![
            rule(|card| card.text("source") == Some("margin"), &[Key::Author]),
            rule(|card| card.text("source").is_some(), &[Key::Field("set")]),
        ],
        ..Feed::of("follow", vec![target])
    };
    let card = |path, created_us, source: &'static [(&'static str, &str)]| {
        let says: Vec<_> = source.iter().copied().chain([("set", "shelf")]).collect();
        record(path, created_us, &says)
    };
    let mut model = world([
        card("ann/card/margin", 10, &[("source", "margin")]),
        card("ann/card/other", 20, &[("source", "other")]),
        card("ann/card/own", 30, &[]),
        names("me/follow/1", "ann"),
    ]);
    check(&model, &feed, &["ann/card/own", "ann/card/margin"]);
    model.put(names("me/follow/1", "shelf"));
    check(&model, &feed, &["ann/card/own", "ann/card/other"]);
}

#[test]
fn a_mute_of_an_author_hides_all_of_his_and_a_mute_of_a_key_takes_that_key_away() {
    let mut target = Target::of("card");
    target.keys = vec![Key::Author, Key::Field("set")];
    let hides = ["mute", "block"].map(|collection| Naming {
        collection,
        subject: "subject",
    });
    let feed = Feed {
        hides: hides.to_vec(),
        ..Feed::of("follow", vec![target])
    };
    let mut model = world([
        names("me/follow/1", "ann"),
        names("me/follow/2", "shelf"),
        record("ann/card/1", 10, &[("set", "shelf")]),
        record("bob/card/1", 20, &[("set", "shelf")]),
        record("bob/card/2", 30, &[("set", "wall")]),
    ]);
    check(&model, &feed, &["bob/card/1", "ann/card/1"]);
    model.put(names("me/mute/1", "bob"));
    model.put(names("you/mute/1", "ann"));
    check(&model, &feed, &["ann/card/1"]);
    model.remove("at://me/mute/1");
    model.put(names("me/block/1", "shelf"));
    check(&model, &feed, &["ann/card/1"]);
    model.put(names("me/mute/1", "ann"));
    check(&model, &feed, &[]);
}

#[test]
fn each_target_is_a_list_of_its_own_and_a_mixed_feed_puts_them_in_one_order() {
    let feed = Feed::of("follow", vec![Target::of("post"), Target::of("note")]);
    let model = world([
        names("me/follow/1", "ann"),
        post("ann/post/1", 10),
        post("ann/note/2", 20),
        post("ann/post/3", 30),
    ]);
    let of = |places: &[usize]| feed.whole(&model, "me", places, &|_| 1000).len();
    assert_eq!((of(&[0]), of(&[1]), of(&[])), (2, 1, 0));
    check(&model, &feed, &["ann/post/3", "ann/note/2", "ann/post/1"]);
}

#[test]
fn a_feed_that_ends_shows_the_newest_visible_records_of_each_target() {
    let target = |collection, max_items| Target {
        max_items,
        ..Target::of(collection)
    };
    let feed = Feed {
        ends: true,
        ..Feed::of("follow", vec![target("post", 2), target("note", 1)])
    };
    let mut model = world([
        names("me/follow/1", "ann"),
        post("ann/post/1", 10),
        post("ann/post/2", 20),
        post("ann/note/1", 30),
        post("ann/note/2", 40),
        post("ann/post/3", 50),
    ]);
    check(&model, &feed, &["ann/post/3", "ann/note/2", "ann/post/2"]);
    // What goes makes room.
    model.remove("at://ann/post/3");
    model.remove("at://ann/note/2");
    check(&model, &feed, &["ann/note/1", "ann/post/2", "ann/post/1"]);
}

// Seed 001: activities.

#[test]
fn a_card_and_its_links_within_the_window_are_one_activity() {
    let model = world([
        names("me/follow/1", "ann"),
        post("ann/card/1", 100),
        link("ann/link/1", 100 + 2 * MINUTE, "ann/card/1", "wall"),
        link("ann/link/2", 101, "ann/card/1", "shelf"),
        link("ann/link/3", 102, "ann/card/1", "wall"),
        link("ann/link/4", 101 + 2 * MINUTE, "ann/card/1", "shelf"),
    ]);
    // The window is counted from the first; the union keeps the order in which its parts were first named.
    let expected = [
        "ann/link/4 | shelf",
        "ann/card/1 ann/link/2 ann/link/3 ann/link/1 | shelf wall",
    ];
    check(&model, &following(), &expected);
}

#[test]
fn activities_are_of_one_author_and_one_card() {
    let model = world([
        names("me/follow/1", "ann"),
        names("me/follow/2", "bob"),
        post("ann/card/1", 100),
        post("ann/card/2", 101),
        link("bob/link/1", 102, "ann/card/1", "wall"),
        link("bob/link/2", 103, "ann/card/1", "shelf"),
    ]);
    let expected = [
        "bob/link/1 bob/link/2 | wall shelf",
        "ann/card/2",
        "ann/card/1",
    ];
    check(&model, &following(), &expected);
}

#[test]
fn an_activity_reaches_the_followers_of_any_members_keys_whole_and_once() {
    let mut model = world([
        names("me/follow/1", "wall"),
        post("ann/card/1", 100),
        link("ann/link/1", 101, "ann/card/1", "shelf"),
        link("ann/link/2", 102, "ann/card/1", "wall"),
    ]);
    let whole = ["ann/card/1 ann/link/1 ann/link/2 | shelf wall"];
    check(&model, &following(), &whole);
    model.put(names("me/follow/2", "ann"));
    model.put(names("me/follow/3", "shelf"));
    check(&model, &following(), &whole);
    model.put(names("me/follow/1", "nothing"));
    model.remove("at://me/follow/2");
    model.remove("at://me/follow/3");
    check(&model, &following(), &[]);
}

#[test]
fn late_records_and_deletes_form_groups_anew_whatever_came_first() {
    let mut model = world([
        names("me/follow/1", "ann"),
        link("ann/link/2", 200, "ann/card/1", "b"),
        link("ann/link/3", 300, "ann/card/1", "c"),
    ]);
    check(&model, &following(), &["ann/link/2 ann/link/3 | b c"]);
    model.put(link("ann/link/1", 100, "ann/card/1", "a"));
    check(
        &model,
        &following(),
        &["ann/link/3 | c", "ann/link/1 ann/link/2 | a b"],
    );
    model.remove("at://ann/link/1");
    check(&model, &following(), &["ann/link/2 ann/link/3 | b c"]);
}

#[test]
fn equal_times_within_a_group_are_ordered_by_uri_ascending() {
    let model = world([
        names("me/follow/1", "ann"),
        link("ann/link/2", 100, "ann/card/1", "b"),
        link("ann/link/1", 100, "ann/card/1", "a"),
    ]);
    check(&model, &following(), &["ann/link/1 ann/link/2 | a b"]);
}

#[test]
fn records_beyond_thing_max_are_shown_alone() {
    let feed = Feed {
        merging: Some(Merging {
            window_us: 2 * MINUTE,
            thing_max: 3,
        }),
        ..following()
    };
    let mut model = world([names("me/follow/1", "ann")]);
    for (rkey, second) in [("1", 0), ("2", 1), ("3", 500), ("4", 501), ("5", 502)] {
        model.put(link(&format!("ann/link/{rkey}"), second, "ann/card/1", "a"));
    }
    // The oldest three are merged, here into two groups.
    let expected = [
        "ann/link/5 | a",
        "ann/link/4 | a",
        "ann/link/3 | a",
        "ann/link/1 ann/link/2 | a",
    ];
    check(&model, &feed, &expected);
}

#[test]
fn what_has_no_merge_key_is_about_itself_and_so_is_a_target_without_merge() {
    let mut feed = following();
    feed.targets[0].merge = None;
    let model = world([
        names("me/follow/1", "ann"),
        post("ann/card/1", 100),
        link("ann/link/1", 101, "ann/card/1", "a"),
        record("ann/link/2", 102, &[("set", "b")]),
    ]);
    let expected = ["ann/link/2 | b", "ann/card/1 ann/link/1 | a"];
    check(&model, &feed, &expected);
}

#[test]
fn conditions_and_rules_of_a_merged_feed_are_asked_of_each_record() {
    let mut feed = following();
    feed.targets[0].holds = |card| card.text("note").is_none();
    feed.rules = vec![Rule {
        when: |link| link.text("source") == Some("margin"),
        keys: vec![Key::Author],
    }];
    let mut margin = link("bob/link/1", 201, "bob/card/1", "wall");
    let fields = margin.fields.as_mut().unwrap();
    fields.insert("source", vec!["margin".to_owned()]);
    let mut model = world([
        names("me/follow/1", "wall"),
        record("ann/card/1", 100, &[("note", "yes")]),
        link("ann/link/1", 101, "ann/card/1", "wall"),
        margin,
    ]);
    check(&model, &feed, &["ann/link/1 | wall"]);
    model.put(names("me/follow/2", "bob"));
    check(&model, &feed, &["bob/link/1 | wall", "ann/link/1 | wall"]);
}

#[test]
fn merged_feeds_hide_and_end_as_others_do() {
    let mut feed = Feed {
        ends: true,
        hides: vec![Naming {
            collection: "mute",
            subject: "subject",
        }],
        ..following()
    };
    for target in &mut feed.targets {
        target.max_items = 2;
    }
    let mut model = world([
        names("me/follow/1", "ann"),
        names("me/follow/2", "wall"),
        post("ann/card/1", 100),
        post("ann/card/2", 110),
        link("ann/link/1", 120, "ann/card/1", "wall"),
        link("bob/link/1", 130, "ann/card/2", "wall"),
    ]);
    check(&model, &feed, &["bob/link/1 | wall", "ann/card/2"]);
    model.put(names("me/mute/1", "wall"));
    check(
        &model,
        &feed,
        &["ann/card/2", "ann/card/1 ann/link/1 | wall"],
    );
    model.put(names("me/mute/2", "ann"));
    check(&model, &feed, &[]);
}
