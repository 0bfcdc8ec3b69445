//! Feeds of every kind: each as a configuration has it, and beside it as the
//! simulator's model has it.
//!
//! In:    nothing.
//! Out:   the text for the configuration, and a [`Kind`] for each feed in it.
//! Never: a description made from the configuration's text: who changes one
//!        changes the other by hand, as it was meant.

use sim::compose::library::{BLOCK, CARD, LINK, MUTE, WATCH};
use sim::compose::{FOLLOW, LIKE, ODD, POST};
use sim::feed::{Feed, Key, Merge, Merging, Naming, Rule, Target};

/// Microseconds in a minute.
const MINUTE_US: i64 = 60_000_000;

/// A feed under its name.
#[derive(Debug, Clone)]
pub struct Kind {
    /// What is special about it.
    pub kind: &'static str,
    pub name: &'static str,
    pub feed: Feed,
    /// Short names of the targets that are asked for one by one; none if the
    /// feed is read as a whole.
    pub lists: &'static [&'static str],
}

/// Short names of the collections that are shown.
pub const SHORT: [(&str, &str); 5] = [
    ("post", POST),
    ("note", ODD),
    ("like", LIKE),
    ("card", CARD),
    ("link", LINK),
];

/// The collections and feeds of the configuration.
pub fn text() -> String {
    format!(
        r#"[collections.follow]
collection = "{FOLLOW}"
[collections.post]
collection = "{POST}"
searchable = ["text"]
[collections.post.queryable]
text = {{}}
langs = {{}}
createdAt = {{ type = "range", as = "time" }}
[collections.note]
collection = "{ODD}"
validate = false
[collections.like]
collection = "{LIKE}"
[collections.card]
collection = "{CARD}"
validate = false
[collections.link]
collection = "{LINK}"
time = "addedAt"
validate = false
[collections.watch]
collection = "{WATCH}"
validate = false
[collections.mute]
collection = "{MUTE}"
validate = false
[collections.block]
collection = "{BLOCK}"
validate = false
{FEEDS}"#
    )
}

const FEEDS: &str = r#"[feeds.timeline]
follow = "follow"
targets = ["post"]
max_items = 500
[feeds.garden]
follow = "follow"
targets = ["post", "note"]
mixed = true
include_self = true
[feeds.english]
follow = "follow"
targets = [{ collection = "post", where = "'en' in record.langs" }]
hide = ["mute", "block"]
[feeds.watched]
follow = [{ collection = "follow", subject = "subject" }, { collection = "watch", subject = "subject" }]
targets = [{ collection = "like", keys = ["author", "subject.uri"] }, { collection = "card", keys = ["author", "topics"] }]
hide = ["block"]
[[feeds.watched.rule]]
when = "record.source == 'margin'"
keys = ["author"]
[[feeds.watched.rule]]
when = "record.subject.uri.endsWith('2')"
keys = ["subject.uri"]
[feeds.following]
follow = [{ collection = "follow", subject = "subject" }, { collection = "watch", subject = "subject" }]
targets = [
    { collection = "card", merge = "uri", where = "!has(record.note)" },
    { collection = "link", merge = "card.uri", keys = ["author", "collection.uri"], union = ["collection.uri"] },
]
window = "2m"
hide = ["mute"]
[[feeds.following.rule]]
when = "record.source == 'margin'"
keys = ["author"]
[feeds.loose]
follow = "watch"
targets = [
    { collection = "card", merge = "uri", keys = ["topics"] },
    { collection = "link", merge = "card.uri", keys = ["collection.uri"], union = ["collection.uri", "source"] },
]
window = "10m"
thing_max = 2
include_self = true
[feeds.short]
follow = "follow"
targets = [{ collection = "post", max_items = 3 }, { collection = "card", keys = ["author", "topics"] }]
max_items = 7
beyond = "end"
hide = ["mute"]
[feeds.brief]
follow = "watch"
targets = ["like", { collection = "post", max_items = 2 }]
max_items = 4
mixed = true
beyond = "end"
[feeds.digest]
follow = "watch"
targets = [{ collection = "link", merge = "card.uri", keys = ["author", "collection.uri"], union = ["collection.uri"] }]
max_items = 5
beyond = "end"
hide = ["mute", "block"]
"#;

/// All of them.
pub fn every() -> Vec<Kind> {
    let of = |kind, name, feed| Kind {
        kind,
        name,
        feed,
        lists: &[],
    };
    vec![
        of("plain", "timeline", timeline()),
        of("mixed", "garden", garden()),
        of("where", "english", english()),
        Kind {
            lists: &["like", "card"],
            ..of("keys", "watched", watched())
        },
        of("merged", "following", following()),
        of("merged_capped", "loose", loose()),
        Kind {
            lists: &["post", "card"],
            ..of("end", "short", short())
        },
        of("mixed_end", "brief", brief()),
        of("merged_end", "digest", digest()),
    ]
}

/// Records of a collection that name a key in `subject`.
fn naming(collection: &'static str) -> Naming {
    Naming {
        collection,
        subject: "subject",
    }
}

/// A target under other keys.
fn under(collection: &'static str, keys: &[Key]) -> Target {
    Target {
        keys: keys.to_vec(),
        ..Target::of(collection)
    }
}

/// Links, merged with others that name the same card.
fn links(keys: &[Key]) -> Target {
    Target {
        merge: Some(Merge::Field("card.uri")),
        union: vec!["collection.uri"],
        ..under(LINK, keys)
    }
}

/// Cards, merged with the links that name them.
fn cards(keys: &[Key]) -> Target {
    Target {
        merge: Some(Merge::OwnUri),
        ..under(CARD, keys)
    }
}

fn timeline() -> Feed {
    Feed::of(FOLLOW, vec![Target::of(POST)])
}

fn garden() -> Feed {
    Feed {
        mixed: true,
        include_self: true,
        ..Feed::of(FOLLOW, vec![Target::of(POST), Target::of(ODD)])
    }
}

fn english() -> Feed {
    let post = Target {
        // A post without languages is in no feed that asks for one.
        holds: |post| post.all("langs").iter().any(|lang| lang == "en"),
        ..Target::of(POST)
    };
    Feed {
        hides: vec![naming(MUTE), naming(BLOCK)],
        ..Feed::of(FOLLOW, vec![post])
    }
}

/// What another app wrote reaches the followers of its author alone.
fn margin() -> Rule {
    Rule {
        when: |record| record.text("source") == Some("margin"),
        keys: vec![Key::Author],
    }
}

fn watched() -> Feed {
    let like = under(LIKE, &[Key::Author, Key::Field("subject.uri")]);
    let card = under(CARD, &[Key::Author, Key::Field("topics")]);
    let second = Rule {
        when: |record| {
            record
                .text("subject.uri")
                .is_some_and(|uri| uri.ends_with('2'))
        },
        keys: vec![Key::Field("subject.uri")],
    };
    Feed {
        follows: vec![naming(FOLLOW), naming(WATCH)],
        rules: vec![margin(), second],
        hides: vec![naming(BLOCK)],
        ..Feed::of(FOLLOW, vec![like, card])
    }
}

fn following() -> Feed {
    let card = Target {
        holds: |card| card.text("note").is_none(),
        ..cards(&[Key::Author])
    };
    let link = links(&[Key::Author, Key::Field("collection.uri")]);
    Feed {
        follows: vec![naming(FOLLOW), naming(WATCH)],
        rules: vec![margin()],
        hides: vec![naming(MUTE)],
        merging: Some(Merging {
            window_us: 2 * MINUTE_US,
            thing_max: 1000,
        }),
        ..Feed::of(FOLLOW, vec![card, link])
    }
}

fn loose() -> Feed {
    let link = Target {
        union: vec!["collection.uri", "source"],
        ..links(&[Key::Field("collection.uri")])
    };
    Feed {
        merging: Some(Merging {
            window_us: 10 * MINUTE_US,
            thing_max: 2,
        }),
        include_self: true,
        ..Feed::of(WATCH, vec![cards(&[Key::Field("topics")]), link])
    }
}

fn short() -> Feed {
    let post = Target {
        max_items: 3,
        ..Target::of(POST)
    };
    let card = Target {
        max_items: 7,
        ..under(CARD, &[Key::Author, Key::Field("topics")])
    };
    Feed {
        hides: vec![naming(MUTE)],
        ends: true,
        ..Feed::of(FOLLOW, vec![post, card])
    }
}

fn brief() -> Feed {
    let like = Target {
        max_items: 4,
        ..Target::of(LIKE)
    };
    let post = Target {
        max_items: 2,
        ..Target::of(POST)
    };
    Feed {
        mixed: true,
        ends: true,
        ..Feed::of(WATCH, vec![like, post])
    }
}

fn digest() -> Feed {
    let link = Target {
        max_items: 5,
        ..links(&[Key::Author, Key::Field("collection.uri")])
    };
    Feed {
        hides: vec![naming(MUTE), naming(BLOCK)],
        merging: Some(Merging {
            window_us: 2 * MINUTE_US,
            thing_max: 1000,
        }),
        ends: true,
        ..Feed::of(WATCH, vec![link])
    }
}
