//! Configuration: one TOML file, typed, checked whole before anything starts.
//!
//! In:    the text of a file, and the environment's overrides.
//! Out:   a [`Config`] in which every name resolves and every limit is sane.
//! Never: a default for a key that was misspelt; a secret read from the file.
//!
//! Two levels: what was typed ([`Config`] and its sections, plain serde), and
//! whether it makes sense together ([`Config::parse`] checks that). A fault
//! names the key and the line, because that is what its reader will look for.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use replicate::settings::LogSettings;

// A collection of records.
pub mod collection;
// Records written over HTTP.
pub mod direct;
// Everything that is wrong with a file.
pub mod fault;
// A feed: follows, targets, keys.
pub mod feed;
// Values with a short and a long form.
pub mod form;
// Names of accounts, and what may be asked to resolve them.
pub mod identity;
// Labelers, and whose word is shown.
pub mod labels;
// Several records shown as one entry.
pub mod merge;
// The service's own methods, by name.
pub mod method;
pub mod network;
// What the command line and the environment replace.
mod overrides;
// Where in the file a key stands.
mod place;
// Which records are worked on first.
pub mod queue;
// What changed between two configurations.
pub mod reload;
// Business rules, and what a record requires.
pub mod rule;
// The HTTP server.
pub mod serve;
// What happens to records that cannot go on.
pub mod settle;
// From text to settings.
mod shape;
// Sections that are one stage's settings each.
pub mod stage;

pub use collection::Collection;
pub use direct::Direct;
use fault::Found;
pub use fault::{Fault, Faults, Place};
pub use feed::Feed;
pub use identity::Identity;
pub use labels::Labels;
pub use overrides::Overrides;
pub use queue::Queue;
pub use serve::Serve;
pub use settle::Settle;
pub use stage::{Intake, Source, Store, Timelines, Verify};

/// The commented file that `feedmill init` writes.
pub const TEMPLATE: &str = include_str!("template.toml");

/// The whole configuration.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// NSID prefix of our own methods: `/xrpc/<namespace>.getFeed`.
    pub namespace: String,
    /// What is logged, in the syntax of `RUST_LOG`, which counts more where both are set.
    pub logging: Option<String>,
    /// Collections kept, by short name.
    #[serde(default)]
    pub collections: BTreeMap<String, Collection>,
    /// Feeds served, by name.
    #[serde(default)]
    pub feeds: BTreeMap<String, Feed>,
    /// Queues, by name.
    #[serde(default)]
    pub queues: BTreeMap<String, Queue>,
    /// Streams read.
    #[serde(default, rename = "source")]
    pub sources: Vec<Source>,
    /// Folders of lexicon JSON, read at start.
    #[serde(default)]
    pub lexicons: Vec<std::path::PathBuf>,
    /// Collections, by short name, whose record `self` is its author's profile.
    #[serde(default)]
    pub profiles: Vec<String>,
    /// Where records come to rest.
    #[serde(default)]
    pub store: Store,
    /// From the socket to the store.
    #[serde(default)]
    pub intake: Intake,
    /// Parked records and dead letters.
    #[serde(default)]
    pub settle: Settle,
    /// Timelines in memory.
    #[serde(default)]
    pub timelines: Timelines,
    /// The HTTP server.
    #[serde(default)]
    pub serve: Serve,
    /// Names of accounts.
    #[serde(default)]
    pub identity: Identity,
    /// Labels beside records and profiles.
    #[serde(default)]
    pub labels: Labels,
    /// Records written over HTTP.
    #[serde(default)]
    pub direct: Direct,
    /// The replicated log.
    #[serde(default)]
    pub log: LogSettings,
}

/// Why a configuration was refused. The message says what to change.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Unreadable {
        path: String,
        #[source]
        source: std::io::Error,
    },
    /// Keys that are unknown, of the wrong type, or make no sense: all of them.
    #[error(transparent)]
    Wrong(#[from] Faults),
}

impl Config {
    /// Reads and checks a file.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::load_with(path, &Overrides::default())
    }

    /// Reads a file, replaces what the command line and the environment say, and checks the result.
    pub fn load_with(path: &Path, overrides: &Overrides) -> Result<Self, ConfigError> {
        match Self::examine(path, overrides)? {
            (Some(config), faults) if faults.0.is_empty() => Ok(config),
            (_, faults) => Err(faults.into()),
        }
    }

    /// The same, with the settings also where some make no sense, so that the rest can be checked too.
    /// `None` where too little of the file could be read.
    pub fn examine(
        path: &Path,
        overrides: &Overrides,
    ) -> Result<(Option<Self>, Faults), ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable {
            path: path.display().to_string(),
            source,
        })?;
        let (mut config, faults) = Self::examine_text(&text, overrides);
        if let Some(config) = &mut config {
            config.resolve_paths(path.parent().unwrap_or(Path::new(".")));
        }
        Ok((config, faults))
    }

    /// Lexicon folders, the log and dictionaries are meant relative to the file that names them.
    fn resolve_paths(&mut self, base: &Path) {
        for path in self.lexicons.iter_mut().chain(&mut self.log.file) {
            *path = base.join(&*path);
        }
        let sources = self.sources.iter_mut();
        for dictionary in sources.filter_map(|source| source.dictionary.as_mut()) {
            if !dictionary.starts_with("http:") && !dictionary.starts_with("https:") {
                *dictionary = base.join(&*dictionary);
            }
        }
    }

    /// Reads and checks the text of a file.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        match Self::examine_text(text, &Overrides::default()) {
            (Some(config), faults) if faults.0.is_empty() => Ok(config),
            (_, faults) => Err(faults.into()),
        }
    }

    fn examine_text(text: &str, overrides: &Overrides) -> (Option<Self>, Faults) {
        let (config, mut faults) = shape::read(text);
        let config = config.map(|mut config| {
            overrides.apply(&mut config);
            let found = config.faults().into_iter().map(|(key, problem)| Fault {
                place: match overrides.name(&key) {
                    Some(name) => Place::Override(name),
                    None => Place::Line(place::line_of(text, &key)),
                },
                key,
                problem,
            });
            // A value of the wrong type was left out; its default is not another error.
            let is_read = |fault: &Fault| faults.iter().all(|it| it.key != fault.key);
            let found: Vec<Fault> = found.filter(is_read).collect();
            faults.extend(found);
            config
        });
        faults.sort_by_key(|fault| fault.place);
        faults.dedup();
        (config, Faults(faults))
    }

    /// Everything that makes no sense: keys, and why.
    fn faults(&self) -> Vec<(String, String)> {
        let mut found = Found::default();
        let prefix = record::ids::Nsid::parse(&format!("{}.getFeed", self.namespace));
        found.unless(prefix.is_ok(), "namespace", || {
            let namespace = &self.namespace;
            format!("{namespace:?} is not an NSID prefix such as \"com.example\"")
        });
        if let Some(logging) = &self.logging {
            let filter = tracing_subscriber::EnvFilter::try_new(logging);
            found.unless(filter.is_ok(), "logging", || {
                format!("{logging:?} is not a filter such as \"warn\" or \"feedmill=debug\"")
            });
        }
        for (short, collection) in &self.collections {
            collection.faults(short, &mut found);
            rule::faults(short, collection, &self.collections, &mut found);
        }
        collection::faults(&self.collections, &mut found);
        for (name, feed) in &self.feeds {
            feed.faults(name, &self.collections, &mut found);
        }
        for (index, source) in self.sources.iter().enumerate() {
            source.faults(index, &mut found);
        }
        self.store.faults(&mut found);
        self.intake.faults(&mut found);
        queue::faults(self, &mut found);
        self.settle.faults(self, &mut found);
        self.timelines.faults(&mut found);
        self.serve.faults(&mut found);
        self.serve.private_faults(self, &mut found);
        self.identity.faults(&mut found);
        self.labels.faults(&mut found);
        self.direct.faults(self, &mut found);
        for (key, problem) in self.log.faults() {
            found.add(key, problem);
        }
        for short in &self.profiles {
            found.unless(self.collections.contains_key(short), "profiles", || {
                format!("{short:?} is not a collection's short name")
            });
        }
        found.0
    }

    /// The NSID behind a short name, or the name itself where it is an NSID we keep.
    pub fn nsid<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        match self.collections.get(name) {
            Some(collection) => Some(&collection.collection),
            None => self
                .collections
                .values()
                .any(|collection| collection.collection == name)
                .then_some(name),
        }
    }

    /// Whether accounts come whole with the stream: another's log has all that one has, and there is
    /// nobody to ask for more.
    pub fn has_whole_accounts(&self) -> bool {
        let mut sources = self.sources.iter();
        !self.sources.is_empty() && sources.all(|source| source.log.is_some())
    }

    /// Who we are to the network, if we are anybody.
    pub fn service_did(&self) -> Option<String> {
        let of_url = |url: &String| {
            let (_, rest) = url.split_once("://")?;
            let host = rest.split('/').next()?;
            Some(format!("did:web:{}", host.replace(':', "%3A")))
        };
        let set = self.serve.service_did.clone();
        set.or_else(|| self.serve.public_url.as_ref().and_then(of_url))
    }

    /// The short name of a collection we keep.
    pub fn short(&self, nsid: &str) -> Option<&str> {
        self.collections
            .iter()
            .find(|(_, collection)| collection.collection == nsid)
            .map(|(short, _)| short.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(text: &str, expected: &str) {
        let error = Config::parse(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error:?} lacks {expected:?}");
    }

    const BASE: &str = "namespace = \"com.example\"\n\
        [collections.follow]\ncollection = \"app.bsky.graph.follow\"\n\
        [collections.post]\ncollection = \"app.bsky.feed.post\"\n";

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        refused(&format!("nmespace = 1\n{BASE}"), "line 1");
        refused(&format!("nmespace = 1\n{BASE}"), "nmespace");
    }

    #[test]
    fn what_is_no_filter_of_the_log_is_refused() {
        refused(
            &format!("logging = \"feedmill=loud\"\n{BASE}"),
            "line 1: logging: ",
        );
    }

    #[test]
    fn an_unknown_short_name_in_a_feed_is_named_with_its_line() {
        let text = format!("{BASE}[feeds.timeline]\nfollow = \"follow\"\ntargets = [\"pst\"]\n");
        refused(&text, "line 8: feeds.timeline.targets: ");
        refused(&text, "\"pst\"");
        refused(&text, "follow, post");
    }

    #[test]
    fn a_feed_that_names_a_collection_twice_is_refused_with_its_line() {
        let twice = "targets = [\"post\", { collection = \"post\", keys = [\"reply.root.uri\"] }]";
        let text = format!("{BASE}[feeds.timeline]\nmixed = true\n{twice}\n");
        refused(
            &text,
            "line 8: feeds.timeline.targets: names \"post\" twice",
        );
    }

    #[test]
    fn a_bad_url_is_named_with_its_line() {
        let text = format!("{BASE}[[source]]\nfirehose = \"http//relay\"\n");
        refused(&text, "line 7: source.0.firehose: ");
    }

    #[test]
    fn what_is_published_needs_a_log_and_a_source_its_space() {
        let publish = "[log]\npublish = \"river\"\n";
        refused(&format!("{BASE}{publish}"), "log.publish: ");
        for url in [
            "http://host",
            "host/log/river",
            "http:///log/river",
            "ftp://host/log/a",
            "http://host/log/a/b",
        ] {
            refused(
                &format!("{BASE}[[source]]\nlog = {url:?}\n"),
                "source.0.log: ",
            );
        }
        let text = format!("{BASE}[[source]]\nlog = \"https://host:1/log/river\"\n");
        let config = Config::parse(&text).unwrap();
        let expected = ("wss://host:1/log/river".to_owned(), "river".to_owned());
        assert_eq!(config.sources[0].log_space(), Some(expected));
    }

    #[test]
    fn a_zero_limit_is_refused() {
        refused(&format!("{BASE}[intake]\npending_max = 0\n"), "pending_max");
    }

    #[test]
    fn a_feed_of_the_short_form_follows_the_subject_and_publishes_under_the_author() {
        let text = format!("{BASE}[feeds.timeline]\nfollow = \"follow\"\ntargets = [\"post\"]\n");
        let config = Config::parse(&text).unwrap();
        let feed = &config.feeds["timeline"];
        assert_eq!(feed.follows()[0].subject, "subject");
        assert_eq!(feed.targets()[0].keys, ["author"]);
        assert_eq!(feed.targets()[0].max_items, 200);
    }

    #[test]
    fn a_list_of_follow_collections_is_a_list_and_not_one_with_a_subject() {
        let text =
            format!("{BASE}[feeds.both]\nfollow = [\"follow\", \"post\"]\ntargets = [\"post\"]\n");
        let follows = Config::parse(&text).unwrap().feeds["both"].follows();
        let names: Vec<&str> = follows
            .iter()
            .map(|follow| follow.collection.as_str())
            .collect();
        assert_eq!(names, ["follow", "post"]);
        assert!(follows.iter().all(|follow| follow.subject == "subject"));
    }

    /// The template shows every key at its default, commented out where the
    /// default stands; so uncommenting them must change nothing.
    #[test]
    fn the_template_documents_the_defaults_that_are_in_force() {
        let plain = Config::parse(TEMPLATE).unwrap();
        let spelled: String = TEMPLATE
            .lines()
            .map(|line| match line.strip_prefix("#: ") {
                Some(default) => format!("{default}\n"),
                None => format!("{line}\n"),
            })
            .collect();
        let spelled = Config::parse(&spelled).unwrap();
        assert_eq!(format!("{:?}", plain.store), format!("{:?}", spelled.store));
        assert_eq!(
            format!("{:?}", plain.intake),
            format!("{:?}", spelled.intake)
        );
        assert_eq!(
            format!("{:?}", plain.timelines),
            format!("{:?}", spelled.timelines)
        );
        assert_eq!(
            format!("{:?}", plain.settle),
            format!("{:?}", spelled.settle)
        );
        assert_eq!(format!("{:?}", plain.serve), format!("{:?}", spelled.serve));
        assert_eq!(
            format!("{:?}", plain.identity),
            format!("{:?}", spelled.identity)
        );
        assert_eq!(
            format!("{:?}", plain.direct),
            format!("{:?}", spelled.direct)
        );
        assert_eq!(format!("{:?}", plain.log), format!("{:?}", spelled.log));
        assert_eq!(format!("{:?}", plain.feeds), format!("{:?}", spelled.feeds));
        assert_eq!(
            format!("{:?}", plain.collections),
            format!("{:?}", spelled.collections)
        );
    }
}
