//! The house style, kept by a machine.
//!
//! In:    every file that git holds or would hold, the manifests, the documents.
//! Out:   a list of what is not as CONTRIBUTING.md says, file by file.
//! Never: a rule that only a reviewer remembers.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use feedmill::condition::Condition;

const LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
const FILE_BYTES_MAX: u64 = 500_000;

/// Files that may be longer, each with its reason.
const LONGER: &[(&str, &str)] = &[];
/// Functions that may be longer, each with its reason.
const LONGER_FUNCTIONS: &[(&str, &str)] = &[];

/// Names of drawers: a file called so has no owner.
const DRAWERS: &[&str] = &[
    "util", "utils", "common", "helper", "helpers", "misc", "types",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every file that is in git or would be by `git add`, relative to the root.
fn files() -> Vec<String> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("tidy checks ask git which files there are");
    assert!(listed.status.success(), "git ls-files failed: not a clone?");
    let text = String::from_utf8(listed.stdout).unwrap();
    let there = |path: &&str| root().join(path).is_file();
    text.lines().filter(there).map(str::to_owned).collect()
}

fn rust_files() -> Vec<(String, String)> {
    let rust = files().into_iter().filter(|path| path.ends_with(".rs"));
    rust.map(|path| (path.clone(), read(&path))).collect()
}

fn text_files() -> Vec<(String, String)> {
    let text = |path: String| Some((path.clone(), fs::read_to_string(root().join(&path)).ok()?));
    files().into_iter().filter_map(text).collect()
}

#[track_caller]
fn none(what: &str, found: Vec<String>) {
    assert!(found.is_empty(), "{what}:\n  {}\n", found.join("\n  "));
}

/// The modules of a crate in the order of its `lib.rs`.
fn modules(lib: &str, public_only: bool) -> Vec<&str> {
    let mut found = Vec::new();
    for line in lib.lines() {
        let private = line.strip_prefix("mod ").filter(|_| !public_only);
        let name = line.strip_prefix("pub mod ").or(private);
        found.extend(name.and_then(|name| name.strip_suffix(';')));
    }
    found
}

/// Whether `text` names `crate::module`, also within braces.
fn names(text: &str, module: &str) -> bool {
    let is_word = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    text.match_indices("crate::").any(|(at, found)| {
        let rest = &text[at + found.len()..];
        match rest.strip_prefix('{') {
            None => rest.strip_prefix(module).is_some_and(is_word),
            Some(list) => {
                let list = &list[..list.find(';').unwrap_or(list.len())];
                let heads = list.split([',', '{', '}', '\n']).map(str::trim);
                heads
                    .into_iter()
                    .any(|head| head.strip_prefix(module).is_some_and(is_word))
            }
        }
    })
}

/// Water runs one way: a module may name only modules above it in `lib.rs`.
#[test]
fn modules_only_look_upstream() {
    let mut against = Vec::new();
    for lib_path in files().iter().filter(|path| path.ends_with("/src/lib.rs")) {
        let lib = read(lib_path);
        let ordered = [
            "crates/decide/src/lib.rs",
            "crates/feedmill/src/lib.rs",
            "crates/replicate/src/lib.rs",
            "crates/store/src/lib.rs",
        ];
        assert!(
            !ordered.contains(&lib_path.as_str()) || lib.contains("names only modules above it"),
            "{lib_path} lost its rule"
        );
        if !lib.contains("names only modules above it") {
            continue;
        }
        let order = modules(&lib, false);
        assert!(!order.is_empty(), "{lib_path} lists no modules");
        let src = lib_path.strip_suffix("lib.rs").unwrap();
        for (path, text) in rust_files() {
            let Some(inside) = path.strip_prefix(src) else {
                continue;
            };
            let module = inside.split(['/', '.']).next().unwrap();
            let Some(here) = order.iter().position(|name| *name == module) else {
                continue;
            };
            for other in order
                .iter()
                .skip(here + 1)
                .filter(|other| names(&text, other))
            {
                against.push(format!("{path} looks down at {other}"));
            }
        }
    }
    none("flow turned back", against);
}

/// What reaches another host, and the files that may use it, each with its reason.
const ASKING: &[(&str, &[(&str, &str)])] = &[
    (
        "reqwest",
        &[
            (
                "crates/feedmill/src/reach/fetch.rs",
                "the fetcher: every request to a host that somebody else named",
            ),
            (
                "crates/feedmill/src/oracle.rs",
                "hands on the client and the errors of the one below",
            ),
            (
                "crates/feedmill/src/oracle/reading.rs",
                "asks the server that its own caller started",
            ),
        ],
    ),
    (
        "hickory",
        &[("crates/feedmill/src/reach/names.rs", "the fetcher's DNS")],
    ),
    (
        "lookup_host",
        &[("crates/feedmill/src/reach/names.rs", "the fetcher's names")],
    ),
    (
        "TcpStream::connect",
        &[
            (
                "crates/feedmill/src/reach/mod.rs",
                "the fetcher's connections",
            ),
            (
                "crates/feedmill/src/source/socket.rs",
                "a stream that the operator named",
            ),
            (
                "crates/feedmill/src/cli/bench/load.rs",
                "asks servers that the bench started",
            ),
        ],
    ),
    ("hyper::client", &[]),
    ("hyper_util::client", &[]),
    ("hyper_util::service", &[]),
    ("UdpSocket", &[]),
    ("TcpSocket", &[]),
    (
        "connect_async",
        &[
            (
                "crates/feedmill/src/source/log.rs",
                "a log that the operator named",
            ),
            (
                "crates/replicate/src/peer.rs",
                "a log that the operator named",
            ),
        ],
    ),
];

/// A request outside the fetcher has no limits, and an answer that is taken whole has no size.
#[test]
fn only_the_fetcher_reaches_hosts_that_others_name() {
    let mut found = Vec::new();
    for (path, text) in rust_files() {
        let in_source = path.starts_with("crates/") && path.contains("/src/");
        if !in_source || path.contains("/src/tests") {
            continue;
        }
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        for (word, files) in ASKING {
            let may = files.iter().any(|(known, _)| *known == path);
            if code.contains(word) && !may {
                found.push(format!("{path}: {word}; use reach::fetch::Fetcher"));
            }
        }
    }
    none("requests outside the fetcher", found);
}

/// A file that no `mod` line reaches is neither compiled nor tested.
#[test]
fn every_file_of_a_crate_is_one_of_its_modules() {
    let mut outside = Vec::new();
    for path in files() {
        let Some((member, inside)) = path.split_once("/src/").filter(|_| path.ends_with(".rs"))
        else {
            continue;
        };
        let module = inside.split(['/', '.']).next().unwrap();
        let lib = read(&format!("{member}/src/lib.rs"));
        if !["lib", "main"].contains(&module) && !modules(&lib, false).contains(&module) {
            outside.push(path);
        }
    }
    none("no mod line in lib.rs leads here", outside);
}

fn manifest(member: &str) -> toml::Table {
    read(&format!("crates/{member}/Cargo.toml"))
        .parse()
        .unwrap()
}

#[test]
fn the_diamond_of_crates_keeps_its_shape() {
    let siblings = [
        "record",
        "decide",
        "store",
        "timeline",
        "blocklog",
        "replicate",
        "sim",
        "feedmill",
    ];
    let folders: BTreeSet<String> = fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(folders, siblings.map(str::to_owned).into(), "eight crates");
    for (member, may) in [
        ("record", &[][..]),
        ("decide", &["record"]),
        ("store", &["decide", "record"]),
        ("timeline", &[]),
        ("blocklog", &[]),
        ("replicate", &["blocklog", "record"]),
        ("sim", &["record"]),
    ] {
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let manifest = manifest(member);
            let named = manifest.get(kind).and_then(toml::Value::as_table);
            let wrong: Vec<String> = named
                .into_iter()
                .flat_map(|table| table.keys().cloned())
                .filter(|name| siblings.contains(&name.as_str()) && !may.contains(&name.as_str()))
                .collect();
            none(&format!("{member} names siblings in {kind}"), wrong);
        }
    }
}

#[test]
fn the_pure_crates_have_no_runtime_no_database_and_no_server() {
    for member in ["record", "decide", "timeline", "blocklog"] {
        let tree = Command::new(env!("CARGO"))
            .args([
                "tree",
                "--locked",
                "--offline",
                "--prefix",
                "none",
                "-e",
                "normal,build",
                "-p",
                member,
            ])
            .current_dir(root())
            .output()
            .unwrap();
        assert!(
            tree.status.success(),
            "{}",
            String::from_utf8_lossy(&tree.stderr)
        );
        let tree = String::from_utf8(tree.stdout).unwrap();
        assert!(tree.starts_with(member));
        let heavy = ["tokio", "rusqlite", "axum", "hyper", "reqwest"];
        let has = |name: &&str| {
            tree.lines()
                .any(|line| line.split(' ').next() == Some(name))
        };
        let found = heavy.into_iter().filter(has).map(str::to_owned).collect();
        none(&format!("{member} is not pure"), found);
    }
}

#[test]
fn no_file_is_longer_than_the_wall() {
    let mut long = Vec::new();
    let written = [".rs", ".mjs", ".html", "/check", "/install"];
    for (path, text) in text_files() {
        let ours = written.iter().any(|end| path.ends_with(end)) || path == "check";
        let lines = text.lines().count();
        if ours && lines > LINES_MAX && !LONGER.iter().any(|(listed, _)| *listed == path) {
            long.push(format!("{path}: {lines} lines, at most {LINES_MAX}"));
        }
    }
    none("files without a noun of their own", long);
}

/// Name and length of each function, by rustfmt's promise that a body closes
/// at the indentation at which its function began.
fn functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let mut words = code.split_whitespace();
        let begins = code.starts_with("fn ")
            || (["pub", "async", "const", "extern"]
                .iter()
                .any(|word| code.starts_with(word))
                && words.by_ref().take(4).any(|word| word == "fn"));
        let Some((_, name)) = code.split_once("fn ").filter(|_| begins) else {
            continue;
        };
        let opens = lines[at..]
            .iter()
            .find(|line| line.ends_with(['{', ';', '}']));
        if !opens.is_some_and(|line| line.ends_with('{')) {
            continue;
        }
        let close = format!("{}}}", &line[..line.len() - code.len()]);
        if let Some(length) = lines[at..].iter().position(|line| *line == close) {
            let name = name.split(['(', '<']).next().unwrap_or(name);
            found.push((name.to_owned(), length + 1));
        }
    }
    found
}

#[test]
fn every_function_fits_a_screen() {
    let mut long = Vec::new();
    let mut seen = 0;
    for (path, text) in rust_files() {
        for (name, lines) in functions(&text) {
            seen += 1;
            let place = format!("{path} {name}");
            let listed = LONGER_FUNCTIONS.iter().any(|(listed, _)| *listed == place);
            if lines > FUNCTION_LINES_MAX && !listed {
                long.push(format!(
                    "{place}: {lines} lines, at most {FUNCTION_LINES_MAX}"
                ));
            }
        }
    }
    assert!(
        seen > 500,
        "only {seen} functions were found; the search is broken"
    );
    none("functions longer than a screen", long);
}

#[test]
fn the_search_for_functions_finds_them() {
    let text = "impl X {\n    pub(crate) async fn long(\n        a: u8,\n    ) -> u8 {\n        1\n    }\n\n    fn declared();\n}\nfn short() {}\n";
    assert_eq!(functions(text), [("long".to_owned(), 5)]);
}

#[test]
fn no_file_is_a_drawer() {
    let is_drawer = |path: &String| {
        let stem = Path::new(path).with_extension("");
        let parts = stem
            .components()
            .map(|part| part.as_os_str().to_string_lossy().into_owned());
        parts
            .into_iter()
            .any(|part| DRAWERS.contains(&part.as_str()))
    };
    none(
        "find the noun",
        files().into_iter().filter(is_drawer).collect(),
    );
}

#[test]
fn every_module_begins_with_its_contract() {
    let silent = rust_files()
        .into_iter()
        .filter(|(_, text)| !text.starts_with("//! "));
    none(
        "no contract on the first line",
        silent.map(|(path, _)| path).collect(),
    );
}

#[test]
fn nothing_is_left_for_later() {
    // Put together here, so that this file does not find itself.
    let marks = [
        concat!("FIX", "ME"),
        concat!("XX", "X:"),
        concat!("to", "do!("),
        concat!("unimple", "mented!("),
        concat!("#[ig", "nore"),
    ];
    let mut found = Vec::new();
    for (path, text) in text_files() {
        let ours = [".rs", ".mjs", ".html", ".toml", ".md"]
            .iter()
            .any(|end| path.ends_with(end));
        for (number, line) in text.lines().enumerate().filter(|_| ours) {
            if marks.iter().any(|mark| line.contains(mark)) {
                found.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    none("say it in an issue, or do it", found);
}

#[test]
fn no_path_of_one_machine_is_in_the_repository() {
    let paths = [
        concat!("/wo", "rk/"),
        concat!("/tm", "p/"),
        concat!("/ro", "ot/"),
        concat!("/ho", "me/"),
    ];
    let mut found = Vec::new();
    for (path, text) in text_files() {
        for (number, line) in text.lines().enumerate() {
            let goes_on = |c: char| c.is_alphanumeric() || c == '.' || c == '_';
            let named = |place: &str| {
                line.match_indices(place)
                    .any(|(at, _)| !line[..at].ends_with(goes_on))
            };
            if paths.iter().any(|place| named(place)) {
                found.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    none("paths of one machine", found);
}

#[test]
fn no_file_in_git_is_large() {
    let size = |path: &String| fs::metadata(root().join(path)).unwrap().len();
    let large = files()
        .into_iter()
        .filter(|path| size(path) > FILE_BYTES_MAX);
    none(
        "larger than 500 kB",
        large
            .map(|path| format!("{path}: {} bytes", size(&path)))
            .collect(),
    );
}

/// The first cell of each row of the table under `heading`.
fn cells(document: &str, heading: &str) -> Vec<String> {
    let (_, rest) = document
        .split_once(heading)
        .unwrap_or_else(|| panic!("no heading {heading:?}"));
    let section = rest.split("\n#").next().unwrap();
    let cell = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    section.lines().filter_map(cell).collect()
}

#[test]
fn the_code_map_names_every_module_in_order() {
    let lib = read("crates/feedmill/src/lib.rs");
    let mapped = cells(&read("ARCHITECTURE.md"), "### Modules of `feedmill`");
    assert_eq!(
        mapped,
        modules(&lib, true),
        "ARCHITECTURE.md (left) and lib.rs (right) differ"
    );
}

/// Words in `text` that look like names of metrics.
fn metric_names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit() && c != '_');
    let suffixes = ["_bucket", "_sum", "_count"];
    let bare = |word: &str| {
        suffixes
            .iter()
            .find_map(|end| word.strip_suffix(end))
            .unwrap_or(word)
            .to_owned()
    };
    words
        .filter(|word| word.starts_with("feedmill_"))
        .map(bare)
        .collect()
}

#[test]
fn every_condition_is_explained_and_has_an_alert_that_is_tested() {
    let codes: Vec<&str> = Condition::ALL.iter().map(|one| one.code()).collect();
    let explained = cells(&read("docs/operations.md"), "## Conditions");
    assert_eq!(explained, codes, "docs/operations.md and condition.rs");
    let (rules, proofs) = (read("deploy/alerts.yml"), read("deploy/alerts_test.yml"));
    for code in codes {
        let series = format!("feedmill_condition{{condition=\"{code}\"}}");
        let rule = format!("expr: {series} == 1 or absent({series})");
        assert!(rules.contains(&rule), "deploy/alerts.yml lacks {rule}");
        // While it holds, and without samples.
        let fires = |labels: &str| proofs.contains(&format!("condition: {code}{labels} }}"));
        assert!(fires(", instance: a, job: feedmill"), "no test: {code}");
        assert!(fires(""), "no test without samples: {code}");
    }
}

#[test]
fn every_metric_is_explained_and_every_explained_metric_exists() {
    let of_feedmill = feedmill::metrics::ALL.iter().map(|(name, _)| *name);
    let of_the_log = replicate::metrics::ALL.iter().map(|(name, _, _)| *name);
    let all: BTreeSet<String> = of_feedmill.chain(of_the_log).map(str::to_owned).collect();
    let explained: BTreeSet<String> = cells(&read("docs/operations.md"), "## Metrics")
        .into_iter()
        .collect();
    assert_eq!(
        explained, all,
        "docs/operations.md (left) and metrics.rs (right) differ"
    );
    for path in files()
        .iter()
        .filter(|path| path.starts_with("deploy/") || path.starts_with("docs/"))
    {
        let unknown = metric_names(&read(path))
            .difference(&all)
            .cloned()
            .collect();
        none(&format!("{path} names metrics that do not exist"), unknown);
    }
}

#[test]
fn the_documented_configuration_is_the_one_that_init_writes() {
    let block = format!("```toml\n{}```", feedmill::config::TEMPLATE);
    let document = read("docs/configuration.md");
    assert!(
        document.contains(&block),
        "docs/configuration.md does not hold config/template.toml verbatim"
    );
}

#[test]
fn the_set_up_commands_stand_in_the_readme() {
    let readme = read("README.md");
    for command in ["\ncargo run --release -- demo\n", "\n./check\n"] {
        assert!(readme.contains(command), "README.md lacks {command:?}");
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut dead = Vec::new();
    for path in files().iter().filter(|path| path.ends_with(".md")) {
        let text = read(path);
        for (_, rest) in text
            .match_indices("](")
            .map(|(at, found)| text.split_at(at + found.len()))
        {
            let target = rest.split([')', '#']).next().unwrap_or_default();
            let here = Path::new(path).parent().unwrap().join(target);
            if !target.is_empty() && !target.contains("://") && !root().join(here).exists() {
                dead.push(format!("{path}: {target}"));
            }
        }
    }
    none("dead links", dead);
}
