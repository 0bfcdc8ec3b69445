//! `check-config`: every error at once, each with its key and line, and the
//! same words as `run` about what the environment says.

use std::process::Command;

const BASE: &str = "namespace = \"com.example\"\n\
    [collections.follow]\ncollection = \"app.bsky.graph.follow\"\nvalidate = false\n\
    [collections.post]\ncollection = \"app.bsky.feed.post\"\nvalidate = false\n";

/// Whether a verb took a file with this text, and what it said.
fn tried(verb: &str, text: &str, environment: &[(&str, &str)]) -> (bool, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("feedmill.toml");
    std::fs::write(&file, text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_feedmill"))
        .arg(verb)
        .arg(&file)
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

/// The file is refused, and each of these is said.
#[track_caller]
fn refused(text: &str, expected: &[&str]) -> String {
    let (good, said) = tried("check-config", text, &[]);
    assert!(!good, "{said}");
    for words in expected {
        assert!(said.contains(words), "{words:?} is not in:\n{said}");
    }
    said
}

#[test]
fn every_error_is_listed_with_its_key_and_line() {
    let text = format!(
        "{BASE}[feeds.a]\ntargets = [\"pst\"]\nfollow = \"fllow\"\n\
         [feeds.b]\ntargets = [\"post\"]\nmax_items = 0\nbeyonnd = \"end\"\n\
         [intake]\nbatch_max = \"many\"\npending_max = 0\n\
         [serve]\nbind = \"here\"\n"
    );
    let said = refused(
        &text,
        &[
            "7 errors",
            "line 9: feeds.a.targets: \"pst\" is not a collection's short name",
            "line 10: feeds.a.follow: \"fllow\" is not a collection's short name",
            "line 13: feeds.b.max_items: must lie between 1 and 100000",
            "line 14: feeds.b.beyonnd: unknown field `beyonnd`",
            "line 16: intake.batch_max: invalid type: string \"many\"",
            "line 17: intake.pending_max: must be at least 1",
            "line 19: serve.bind: \"here\" is not an address",
        ],
    );
    // In the order of the file, one line each.
    let lines: Vec<usize> = said
        .lines()
        .filter_map(|line| {
            line.trim()
                .strip_prefix("line ")?
                .split_once(':')?
                .0
                .parse()
                .ok()
        })
        .collect();
    assert_eq!(lines, [9, 10, 13, 14, 16, 17, 19], "{said}");
    // `run` says the same.
    let (good, run) = tried("run", &text, &[]);
    assert!(!good && run == said, "{run}\n{said}");
}

#[test]
fn what_is_not_toml_is_said_line_by_line() {
    refused(
        &format!("{BASE}[feeds.a\ntargets = [\"post\"]\n[serve]\nbind = = 1\n"),
        &["line 8: not TOML", "line 11: not TOML"],
    );
}

#[test]
fn a_key_of_the_wrong_type_is_one_error_and_not_a_missing_one_too() {
    let text = BASE.replace("collection = \"app.bsky.feed.post\"", "collection = 5");
    let said = refused(
        &text,
        &["line 6: collections.post.collection: invalid type"],
    );
    assert!(!said.contains("missing"), "{said}");
    refused(
        "[collections.post]\nvalidate = false\n",
        &["missing field `collection`", "collections.post"],
    );
}

#[test]
fn an_unknown_key_inside_an_inline_table_is_named_with_its_line() {
    for (table, expected) in [
        (
            "[feeds.a]\ntargets = [\n  \"post\",\n  { collection = \"post\", kyes = [\"author\"] },\n]\n",
            "line 11: feeds.a.targets.1.kyes: unknown field `kyes`, expected one of `collection`",
        ),
        (
            "[feeds.a]\ntargets = [\"post\"]\nfollow = { collection = \"follow\", subjcet = \"x\" }\n",
            "line 10: feeds.a.follow.subjcet: unknown field `subjcet`",
        ),
        (
            "[feeds.a]\ntargets = [\"post\"]\nhide = [{ collection = \"follow\", subjcet = \"x\" }]\n",
            "line 10: feeds.a.hide.0.subjcet: unknown field `subjcet`",
        ),
        (
            "requires = [{ path = \"a\", in = \"post\", feild = \"b\" }]\n",
            "line 8: collections.post.requires.0.feild: unknown field `feild`",
        ),
        (
            "queryable = { lang = { tpye = \"range\" } }\n",
            "line 8: collections.post.queryable.lang.tpye: unknown field `tpye`",
        ),
        (
            "relations = { like = { collection = \"post\", feild = \"x\" } }\n",
            "line 8: collections.post.relations.like.feild: unknown field `feild`",
        ),
    ] {
        refused(&format!("{BASE}{table}"), &[expected]);
    }
}

#[test]
fn two_short_names_of_one_collection_are_refused() {
    let again = "[collections.status]\ncollection = \"app.bsky.feed.post\"\nvalidate = false\n";
    refused(
        &format!("{BASE}{again}"),
        &[
            "line 9: collections.status.collection: app.bsky.feed.post has a short name already, \"post\"",
        ],
    );
}

#[test]
fn the_environment_counts_as_it_does_for_run() {
    let refused = [
        ("DATABASE_URL", "postgres://a", "--features postgres"),
        ("REDIS_URL", "redis://a", "--features redis"),
        (
            "PUBLIC_URL",
            "feeds.example",
            "not an http or https address",
        ),
        ("RELAY_URL", "http://relay", "not a WebSocket address"),
    ];
    for (name, value, expected) in refused {
        let (good, said) = tried("check-config", BASE, &[(name, value)]);
        assert!(!good && said.contains(expected), "{name}: {said}");
        assert!(said.contains(&format!("({name}): ")), "{name}: {said}");
        let (_, run) = tried("run", BASE, &[(name, value)]);
        assert_eq!(run, said, "{name}");
    }
    // What the file lacks, or has wrong, the environment gives.
    let private =
        format!("{BASE}[feeds.a]\ntargets = [\"post\"]\n[serve]\nprivate = [\"getFeed\"]\n");
    let (good, said) = tried("check-config", &private, &[]);
    assert!(!good && said.contains("set serve.public_url"), "{said}");
    let (good, said) = tried(
        "check-config",
        &private,
        &[("PUBLIC_URL", "https://feeds.example")],
    );
    assert!(good, "{said}");
    let wrong = format!("{BASE}[store]\nurl = \"postgres://a\"\n");
    let (good, said) = tried(
        "check-config",
        &wrong,
        &[("DATABASE_URL", "sqlite::memory:")],
    );
    assert!(good, "{said}");
}

/// Nobody answers at ports 1 and 2, so what `status` says is whom it asked.
#[test]
fn status_asks_where_the_environment_says_and_refuses_what_run_refuses() {
    let (_, said) = tried("status", BASE, &[("RELAY_URL", "http://relay")]);
    let (_, run) = tried("run", BASE, &[("RELAY_URL", "http://relay")]);
    assert_eq!(said, run);
    let text = format!(
        "{BASE}[feeds.a]\ntargets = [\"post\"]\n[serve]\nprivate = [\"getFeed\"]\n[store]\nurl = \"postgres://a\"\n"
    );
    let environment = [
        ("PORT", "1"),
        ("INTAKE_BIND", "127.0.0.1:2"),
        ("PUBLIC_URL", "https://feeds.example"),
        ("DATABASE_URL", "sqlite:///nowhere/feedmill.db"),
    ];
    let (well, said) = tried("status", &text, &environment);
    assert!(!well && said.starts_with("NO PROCESS ANSWERS"), "{said}");
    assert!(said.contains("127.0.0.1:1: "), "{said}");
    assert!(said.contains("127.0.0.1:2: "), "{said}");
    assert!(said.contains("/nowhere/feedmill.db"), "{said}");
}

#[test]
fn every_lexicon_that_is_missing_is_named() {
    let text = BASE.replace("validate = false\n", "");
    refused(
        &text,
        &[
            "2 errors",
            "collections.follow: no lexicon for app.bsky.graph.follow",
            "collections.post: no lexicon for app.bsky.feed.post",
        ],
    );
}

#[test]
fn wrong_keys_and_missing_lexicons_are_one_list() {
    let text = BASE.replace(
        "collection = \"app.bsky.feed.post\"\nvalidate = false\n",
        "collection = \"app.bsky.feed.post\"\n",
    );
    refused(
        &format!("{text}[serve]\nbind = \"here\"\n"),
        &[
            "2 errors",
            "line 8: serve.bind: \"here\" is not an address",
            "collections.post: no lexicon for app.bsky.feed.post",
        ],
    );
}

#[test]
fn one_mistake_is_one_error() {
    // The wrong type is an error; the default in its place is not another.
    let said = refused(
        &BASE.replace("namespace = \"com.example\"", "namespace = 5"),
        &["line 1: namespace: invalid type"],
    );
    assert!(!said.contains("NSID prefix"), "{said}");
    // Both targets have the feed's max_items.
    let said = refused(
        &format!("{BASE}[feeds.a]\ntargets = [\"post\", \"follow\"]\nmax_items = 0\n"),
        &["line 10: feeds.a.max_items: must lie between 1 and 100000"],
    );
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn only_what_a_client_can_show_is_published() {
    let generator = "at://did:plc:abc/app.bsky.feed.generator/mine";
    let feed = |rest: &str| {
        format!(
            "{BASE}[collections.repost]\ncollection = \"app.bsky.feed.repost\"\nvalidate = false\n\
             [collections.link]\ncollection = \"com.example.link\"\nvalidate = false\n\
             [feeds.a]\npublish_as = \"{generator}\"\n{rest}"
        )
    };
    for good in [
        "targets = [\"post\"]\n",
        "targets = [\"repost\"]\n",
        "targets = [\"post\", \"repost\"]\nmixed = true\n",
        // A client is shown the first target of a feed that is not mixed.
        "targets = [\"post\", \"link\"]\n",
    ] {
        let (taken, said) = tried("check-config", &feed(good), &[]);
        assert!(taken, "{good}: {said}");
    }
    for (bad, expected) in [
        ("targets = [\"link\"]\n", "shows com.example.link"),
        (
            "targets = [\"post\", \"link\"]\nmixed = true\n",
            "shows com.example.link",
        ),
        (
            "targets = [{ collection = \"post\", merge = \"text\" }]\n",
            "is merged",
        ),
    ] {
        refused(&feed(bad), &["line 15: feeds.a.publish_as: ", expected]);
    }
}
