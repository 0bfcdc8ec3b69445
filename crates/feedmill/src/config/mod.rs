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

use crate::replicate::settings::LogSettings;

// A collection of records.
pub mod collection;
// Records written over HTTP.
pub mod direct;
// A feed: follows, targets, keys.
pub mod feed;
// Names of accounts, and what may be asked to resolve them.
pub mod identity;
// Labelers, and whose word is shown.
pub mod labels;
// Several records shown as one entry.
pub mod merge;
// The service's own methods, by name.
pub mod method;
// Where in the file a key stands.
mod place;
// Which records are worked on first.
pub mod queue;
// Business rules, and what a record requires.
pub mod rule;
// The HTTP server.
pub mod serve;
// What happens to records that cannot go on.
pub mod settle;
// Sections that are one stage's settings each.
pub mod stage;

pub use collection::Collection;
pub use direct::Direct;
pub use feed::Feed;
pub use identity::Identity;
pub use labels::Labels;
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
    /// The text is not TOML, or a key is unknown or of the wrong type.
    #[error("{0}")]
    Malformed(String),
    /// A key is well formed and makes no sense.
    #[error("line {line}: {key}: {problem}")]
    Wrong {
        line: usize,
        key: String,
        problem: String,
    },
}

impl Config {
    /// Reads and checks a file.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable {
            path: path.display().to_string(),
            source,
        })?;
        let mut config = Self::parse(&text)?;
        // Lexicon folders, the log and dictionaries are meant relative to the file that names them.
        let base = path.parent().unwrap_or(Path::new("."));
        for path in config.lexicons.iter_mut().chain(&mut config.log.file) {
            *path = base.join(&*path);
        }
        for dictionary in config
            .sources
            .iter_mut()
            .filter_map(|source| source.dictionary.as_mut())
        {
            if !dictionary.starts_with("http:") && !dictionary.starts_with("https:") {
                *dictionary = base.join(&*dictionary);
            }
        }
        Ok(config)
    }

    /// Reads and checks the text of a file.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let config: Config = toml::from_str(text)
            .map_err(|error| ConfigError::Malformed(error.to_string().trim_end().to_owned()))?;
        match config.fault() {
            None => Ok(config),
            Some((key, problem)) => Err(ConfigError::Wrong {
                line: place::line_of(text, &key),
                key,
                problem,
            }),
        }
    }

    /// Checks again what was changed after it was read.
    pub fn recheck(&self) -> Result<(), ConfigError> {
        match self.fault() {
            None => Ok(()),
            Some((key, problem)) => Err(ConfigError::Malformed(format!("{key}: {problem}"))),
        }
    }

    /// The first thing that makes no sense: its key and why.
    fn fault(&self) -> Option<(String, String)> {
        if record::ids::Nsid::parse(&format!("{}.getFeed", self.namespace)).is_err() {
            return Some((
                "namespace".into(),
                format!(
                    "{:?} is not an NSID prefix such as \"com.example\"",
                    self.namespace
                ),
            ));
        }
        self.collections
            .iter()
            .find_map(|(short, collection)| {
                let fault = collection.fault(short);
                fault.or_else(|| rule::fault(short, collection, &self.collections))
            })
            .or_else(|| {
                self.feeds
                    .iter()
                    .find_map(|(name, feed)| feed.fault(name, &self.collections))
            })
            .or_else(|| {
                self.sources
                    .iter()
                    .enumerate()
                    .find_map(|(index, source)| source.fault(index))
            })
            .or_else(|| self.store.fault())
            .or_else(|| self.intake.fault())
            .or_else(|| queue::fault(self))
            .or_else(|| self.settle.fault())
            .or_else(|| self.timelines.fault())
            .or_else(|| self.serve.fault())
            .or_else(|| self.serve.private_fault(self))
            .or_else(|| self.identity.fault())
            .or_else(|| self.labels.fault())
            .or_else(|| self.direct.fault(self))
            .or_else(|| self.log.fault())
            .or_else(|| collection::relations_fault(&self.collections))
            .or_else(|| {
                let unknown = |short: &&String| !self.collections.contains_key(*short);
                let short = self.profiles.iter().find(unknown)?;
                let problem = format!("{short:?} is not a collection's short name");
                Some(("profiles".into(), problem))
            })
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
    fn an_unknown_short_name_in_a_feed_is_named_with_its_line() {
        let text = format!("{BASE}[feeds.timeline]\nfollow = \"follow\"\ntargets = [\"pst\"]\n");
        refused(&text, "line 8: feeds.timeline.targets: ");
        refused(&text, "\"pst\"");
        refused(&text, "follow, post");
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
