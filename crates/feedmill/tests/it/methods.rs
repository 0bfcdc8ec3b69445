//! The table of methods: what it says is what is served, parameter by
//! parameter; its lexicons work with the ecosystem's code generator; its
//! answers fit; its documentation is written from it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use feedmill::config::Config;
use feedmill::serve::methods::{self, Output, Place, Verb};
use serde_json::{Value, json};

use crate::app::{APP, App, Kept};

const READER: &str = "did:plc:readerreaderreaderreader";
const AUTHOR: &str = "did:web:author.test";

/// A bit of everything that a configuration can serve.
pub(crate) const CONFIG: &str = r#"
namespace = "com.example"
profiles = ["profile"]
[collections.follow]
collection = "app.bsky.graph.follow"
validate = false
[collections.profile]
collection = "app.bsky.actor.profile"
validate = false
[collections.like]
collection = "app.bsky.feed.like"
validate = false
links = ["subject.uri"]
[collections.post]
collection = "app.bsky.feed.post"
validate = false
searchable = ["text"]
[collections.post.queryable]
lang = {}
likes = { type = "range", as = "number" }
"reply.parent" = {}
createdAt = { type = "range", as = "time" }
pinned = { as = "boolean" }
[collections.post.relations.like]
collection = "like"
[collections.post.relations.mark]
collection = "mark"
group_by = "kind"
groups = { star = "star", flag = "flag" }
[collections.post.references.quote]
collection = "post"
field = "embed.record.uri"
[collections.mark]
collection = "com.example.mark"
validate = false
[collections.photo]
collection = "com.example.photos.photo"
direct = true
validate = false
[collections.fan]
collection = "com.example.photos.fan"
direct = true
validate = false
[feeds.photos]
follow = "fan"
targets = ["photo"]
[feeds.timeline]
targets = ["post"]
publish_as = "at://did:plc:publisher/app.bsky.feed.generator/mine"
[feeds.doings]
targets = [{ collection = "mark", merge = "subject.uri", activity = "MARKED" }]
[feeds.doings.activity]
subject = "post"
filter = { lang = { path = "lang", absent = "en" } }
[[labels.source]]
did = "did:plc:labeler"
endpoint = "ws://127.0.0.1:1"
verify = false
[serve]
public_url = "https://feeds.example"
notify = "open"
"#;

/// Five posts that the reader follows, and his like of the last.
pub(crate) fn records() -> Vec<Kept> {
    let mut records: Vec<Kept> = (1..=5)
        .map(|n| {
            let time = format!("2026-01-0{n}T00:00:00Z");
            let body = json!({"text": "a post", "likes": n, "createdAt": time});
            (AUTHOR, "app.bsky.feed.post", format!("p{n}"), body)
        })
        .collect();
    let subject = format!("at://{AUTHOR}/app.bsky.feed.post/p5");
    let time = "2026-01-06T00:00:00Z";
    records.extend([
        (
            READER,
            "app.bsky.graph.follow",
            "1".to_owned(),
            json!({"subject": AUTHOR, "createdAt": time}),
        ),
        (
            READER,
            "app.bsky.feed.like",
            "1".to_owned(),
            json!({"subject": {"uri": subject}, "createdAt": time}),
        ),
        (
            READER,
            "com.example.mark",
            "1".to_owned(),
            json!({"subject": {"uri": subject}, "kind": "star", "createdAt": time}),
        ),
        (
            AUTHOR,
            "app.bsky.actor.profile",
            "self".to_owned(),
            json!({"displayName": "Author"}),
        ),
    ]);
    records
}

pub(crate) fn world() -> App {
    App::start_on(CONFIG, &records())
}

fn table() -> Vec<methods::Method> {
    methods::table(&Config::parse(CONFIG).unwrap())
}

/// What a method must be given to be answered.
fn given(method: &methods::Method) -> String {
    let needed = method
        .parameters
        .iter()
        .filter(|one| one.required || (one.name == "actor" && method.path.ends_with("Feed")))
        .filter(|one| one.place == Place::Query);
    let post = format!("at://{AUTHOR}/app.bsky.feed.post/p5");
    let collection = method
        .nsid
        .as_deref()
        .and_then(|nsid| nsid.split('.').nth(2));
    let pairs = needed.map(|one| {
        let value = match (one.name.as_str(), collection) {
            ("feed", _) if method.path.contains("Skeleton") => {
                "at://did:plc:publisher/app.bsky.feed.generator/mine".to_owned()
            }
            ("feed", _) => "timeline".to_owned(),
            ("actor", _) => AUTHOR.to_owned(),
            ("uri", Some("like")) => format!("at://{READER}/app.bsky.feed.like/1"),
            ("uri", Some("mark")) => format!("at://{READER}/com.example.mark/1"),
            ("uri", Some("follow")) => format!("at://{READER}/app.bsky.graph.follow/1"),
            ("uri", Some("profile")) => format!("at://{AUTHOR}/app.bsky.actor.profile/self"),
            ("uri", Some("photo" | "fan")) => format!(
                "at://did:local:repo/com.example.photos.{}/1",
                collection.unwrap()
            ),
            ("uri", _) => post.clone(),
            (other, _) => panic!("{}: what is {other}?", method.name()),
        };
        format!("&{}={value}", one.name)
    });
    pairs.collect()
}

#[test]
fn every_method_takes_the_parameters_it_says_and_no_others() {
    let app = world();
    for method in table() {
        if method.nsid.is_none() || method.verb != Verb::Get {
            continue;
        }
        let (status, answer) = app.get(&format!("{}?nonsense=1{}", method.path, given(&method)));
        let message = answer["message"].as_str().unwrap_or_default();
        assert_eq!(status, 400, "{}: {answer}", method.name());
        let (_, listed) = message
            .split_once("this method takes ")
            .unwrap_or_else(|| panic!("{}: {answer}", method.name()));
        let listed: BTreeSet<&str> = listed.split(", ").filter(|name| !name.is_empty()).collect();
        let told: BTreeSet<&str> = method
            .parameters
            .iter()
            .filter(|one| one.place == Place::Query)
            .map(|one| one.name.as_str())
            .collect();
        assert_eq!(
            listed,
            told,
            "{}: served (left) and told (right)",
            method.name()
        );
    }
}

#[test]
fn every_answer_fits_the_lexicon_and_every_lexicon_is_one() {
    let app = world();
    let documents = methods::lexicon::documents(&table());
    let texts: Vec<String> = documents.values().map(Value::to_string).collect();
    let catalog = record::lexicon::Catalog::parse(texts.iter().map(String::as_str)).unwrap();
    let mut answered = 0;
    for method in table() {
        let Some(nsid) = method
            .nsid
            .as_ref()
            .filter(|_| method.ours && method.verb == Verb::Get)
            .filter(|_| !matches!(method.output, Output::Stream(_)))
        else {
            continue;
        };
        let path = format!("{}?{}", method.path, given(&method));
        let token = (method.auth == methods::Auth::AppOrReader).then_some(APP);
        let (status, answer) = app.ask(reqwest::Method::GET, &path, token, None);
        if status == 404 {
            continue; // nothing was put there
        }
        assert_eq!(status, 200, "{nsid}: {answer}");
        let text = answer.to_string();
        let value = record::json::from_json(&text).unwrap();
        let fits = catalog.validate_output(nsid, &value);
        fits.unwrap_or_else(|fault| panic!("{nsid}: {fault}: {answer}"));
        answered += 1;
    }
    assert!(answered >= 12, "only {answered} methods answered");
    let (_, page) = app.get("/xrpc/com.example.post.listRecords?hydrateLike=3&hydrateMark=2&sort=markStarCount&profiles=true");
    assert_eq!(page["records"][0]["like"][0]["did"], READER);
    assert_eq!(page["records"][0]["mark"]["star"][0]["did"], READER);
    assert_eq!(page["records"][0]["markStarCount"], 1);
    let text = page.to_string();
    let value = record::json::from_json(&text).unwrap();
    catalog
        .validate_output("com.example.post.listRecords", &value)
        .unwrap();
}

#[test]
fn every_path_of_the_table_is_served_and_described() {
    let app = App::start_in(CONFIG, &records(), &[("FEEDMILL_ADMIN_TOKEN", "operator")]);
    let (status, document) = app.get("/openapi.json");
    assert_eq!(status, 200);
    for method in table() {
        let verb = method.verb.name().to_ascii_lowercase();
        let told = &document["paths"][&method.path][&verb];
        assert!(told.is_object(), "{} is not described", method.name());
        for error in &method.errors {
            let names = &told["responses"][error.status.to_string()]["content"]["application/json"]
                ["schema"]["properties"]["error"]["enum"];
            let named = names
                .as_array()
                .is_some_and(|names| names.contains(&json!(error.name)));
            assert!(named, "{}: {} is not described", method.name(), error.name);
        }
        let path = method
            .path
            .replace("{collection}", "photo")
            .replace("{id}", "1");
        let url = format!("{}{path}", app.address());
        let verb = reqwest::Method::from_bytes(method.verb.name().as_bytes()).unwrap();
        let answer = app.wait(async {
            reqwest::Client::new()
                .request(verb, url)
                .send()
                .await
                .unwrap()
        });
        let status = answer.status().as_u16();
        let described = status == 200 || told["responses"].get(status.to_string()).is_some();
        assert!(
            described && status != 405,
            "{}: {status} is not described",
            method.name()
        );
    }
    let (status, answer) = app.get("/nowhere");
    assert_eq!((status, &answer["error"]), (404, &json!("NotFound")));
    let (status, answer) = app.ask(reqwest::Method::POST, "/status", None, None);
    assert_eq!((status, &answer["error"]), (405, &json!("InvalidRequest")));
    let long = json!({"uris": ["x".repeat(2_000_000)]});
    let (status, answer) = app.ask(
        reqwest::Method::POST,
        "/xrpc/com.example.notifyOfUpdate",
        None,
        Some(long),
    );
    assert_eq!((status, &answer["error"]), (413, &json!("PayloadTooLarge")));
}

/// Everything between quotes in the server's source that could be a path.
fn paths_in_source() -> BTreeSet<String> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src/serve")];
    let mut found = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(path).unwrap();
            let quoted = text.split('"').filter(|it| it.starts_with('/'));
            let plain = |c: char| c.is_ascii_alphanumeric() || "/._-{}".contains(c);
            found.extend(quoted.filter(|it| it.chars().all(plain)).map(str::to_owned));
        }
    }
    found
}

#[test]
fn nothing_is_served_that_the_table_does_not_have() {
    let app = App::start_in(CONFIG, &records(), &[("FEEDMILL_ADMIN_TOKEN", "operator")]);
    let table = table();
    let ask = |verb: reqwest::Method, path: &str| {
        let path = path.replace("{collection}", "photo").replace("{id}", "1");
        let request = reqwest::Client::new().request(verb, format!("{}{path}", app.address()));
        app.wait(async { request.send().await.unwrap() })
    };
    // A path of the table takes the verbs of the table and no others.
    for method in table.iter().filter(|method| method.nsid.is_none()) {
        let same = table.iter().filter(|other| other.path == method.path);
        let mut told: BTreeSet<&str> = same.map(|method| method.verb.name()).collect();
        if told.contains("GET") {
            told.insert("HEAD");
        }
        let answer = ask(reqwest::Method::PATCH, &method.path);
        assert_eq!(answer.status(), 405, "{}", method.path);
        let allowed = answer.headers()["allow"].to_str().unwrap().to_owned();
        let allowed: BTreeSet<&str> = allowed.split(',').collect();
        assert_eq!(
            allowed, told,
            "{}: served (left) and told (right)",
            method.path
        );
    }
    // What could be a path and is not in the table leads nowhere.
    let mut paths = paths_in_source();
    assert!(paths.len() > 20, "{paths:?}");
    paths.extend(["/xrpc", "/admin", "/feeds", "/records", "/log", "/debug"].map(str::to_owned));
    for path in paths.iter().filter(|path| !path.starts_with("/xrpc/{")) {
        if !table.iter().any(|method| method.path == **path) {
            assert_eq!(ask(reqwest::Method::GET, path).status(), 404, "{path}");
        }
    }
    // A name that could be a method and is not in the table is none.
    let ours = feedmill::config::method::ALL.map(|method| method.name());
    let shorts = [
        "follow", "profile", "like", "post", "mark", "photo", "fan", "none",
    ];
    let of_collections = shorts.iter().flat_map(|short| {
        ["listRecords", "getRecord", "putRecord"].map(|name| format!("{short}.{name}"))
    });
    let names = ours
        .iter()
        .map(|name| (*name).to_owned())
        .chain(of_collections);
    let names = names.map(|name| format!("com.example.{name}"));
    let foreign = [
        "app.bsky.feed.getFeed",
        "app.bsky.feed.sendInteractions",
        "com.atproto.repo.getRecord",
    ];
    let mut served = 0;
    for nsid in names.chain(foreign.map(str::to_owned)) {
        let row = table
            .iter()
            .find(|method| method.nsid.as_ref() == Some(&nsid));
        let verb = row.map_or(reqwest::Method::GET, |row| row.verb.name().parse().unwrap());
        let status = ask(verb, &format!("/xrpc/{nsid}")).status().as_u16();
        assert_eq!(status == 501, row.is_none(), "{nsid}: {status}");
        served += usize::from(row.is_some());
    }
    let generator = 2;
    assert_eq!(
        served + generator,
        table.iter().filter(|row| row.nsid.is_some()).count()
    );
}

#[test]
fn every_method_of_ours_can_be_made_private_and_then_needs_a_token() {
    let names: Vec<String> = table()
        .iter()
        .filter(|method| method.ours)
        .filter_map(|method| method.nsid.as_deref()?.strip_prefix("com.example."))
        .map(|name| format!("{name:?}"))
        .collect();
    let private = format!("notify = \"open\"\nprivate = [{}]\n", names.join(", "));
    let text = CONFIG.replace("notify = \"open\"\n", &private);
    let app = App::start_on(&text, &records());
    for method in methods::table(&Config::parse(&text).unwrap()) {
        if method.ours {
            assert_eq!(method.auth, methods::Auth::Service, "{}", method.name());
            let verb = method.verb.name().parse().unwrap();
            let path = format!("{}?{}", method.path, given(&method));
            let (status, answer) = app.ask(verb, &path, None, None);
            assert_eq!(status, 401, "{}: {answer}", method.name());
        }
    }
}

fn feedmill(arguments: &[&str], folder: &Path) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_feedmill"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

#[test]
fn the_ecosystems_generator_makes_a_client_that_calls_us() {
    if std::env::var_os("FEEDMILL_NO_PEERS").is_some_and(|value| value == "1") {
        println!("\n*** FEEDMILL_NO_PEERS=1: THE GENERATED CLIENT WAS NOT RUN ***\n");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("c.toml"), CONFIG).unwrap();
    let (good, said) = feedmill(
        &["lexicons", "generate", "c.toml", "--out", "out"],
        folder.path(),
    );
    assert!(good, "{said}");
    let app = world();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(root.join("tests/client/run"))
        .arg(folder.path().join("out"))
        .args([app.address(), READER, AUTHOR])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(said.trim(), "{\"feed\":5}");
}

#[test]
fn drift_between_the_configuration_and_the_written_lexicons_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.toml");
    std::fs::write(&file, CONFIG).unwrap();
    let check = || {
        feedmill(
            &["lexicons", "check", "c.toml", "--out", "out"],
            folder.path(),
        )
    };
    let (good, said) = check();
    assert!(
        !good && said.contains("com.example.getFeed is not in"),
        "{said}"
    );
    assert!(
        feedmill(
            &["lexicons", "generate", "c.toml", "--out", "out"],
            folder.path()
        )
        .0
    );
    assert!(check().0);
    std::fs::write(&file, CONFIG.replace("pinned = ", "starred = ")).unwrap();
    let (good, said) = check();
    assert!(!good, "{said}");
    assert!(
        said.contains("com.example.post.listRecords differs"),
        "{said}"
    );
    assert!(!said.contains("getProfile"), "{said}");
}

#[test]
fn the_documented_methods_are_those_of_the_table() {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api.md");
    let written = std::fs::read_to_string(&path).unwrap();
    let (head, rest) = written.split_once("<!-- methods -->\n").unwrap();
    let (_, tail) = rest.split_once("<!-- end -->").unwrap();
    let made = format!(
        "{head}<!-- methods -->\n{}<!-- end -->{tail}",
        methods::markdown::table(&table())
    );
    if std::env::var_os("FEEDMILL_BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    assert!(
        made == written || std::env::var_os("FEEDMILL_BLESS").is_some(),
        "docs/api.md is not what the table says; FEEDMILL_BLESS=1 writes it"
    );
}
