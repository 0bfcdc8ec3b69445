//! `feedmill lexicons`: what code generators read, written, fetched and compared.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::Value;

use super::{Ending, say};
use crate::check::chain;
use crate::config::{Config, Overrides};
use crate::identity::Resolver;
use crate::serve::methods;

/// Lexicons: generate, pull, check.
#[derive(Debug, Subcommand)]
pub(super) enum Lexicons {
    /// Write lexicons for the methods that a configuration serves
    Generate(Generate),
    /// Fetch published lexicons by their names: DNS names an account, its repository holds the schema
    Pull(Pull),
    /// Say which lexicons on disk differ from what the configuration serves today
    Check(Check),
}

/// What to compare.
#[derive(Debug, Args)]
pub(super) struct Check {
    #[command(flatten)]
    generated: Generate,
    /// Compare the lexicons in the configuration's folders with those published on the network, too
    #[arg(long)]
    network: bool,
}

/// What to fetch.
#[derive(Debug, Args)]
pub(super) struct Pull {
    /// Names such as app.bsky.feed.post
    #[arg(required = true)]
    nsids: Vec<String>,
    /// Folder to write to
    #[arg(long, default_value = "lexicons")]
    out: PathBuf,
    /// Configuration file that says how names are resolved
    #[arg(long)]
    config: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
}

/// Which lexicons, and where they are written.
#[derive(Debug, Args)]
pub(super) struct Generate {
    /// Configuration file
    file: PathBuf,
    /// Folder of the written lexicons
    #[arg(long, default_value = "lexicons/generated")]
    out: PathBuf,
    /// Where clients reach us, as the server was told
    #[arg(long, env = "PUBLIC_URL")]
    public_url: Option<String>,
}

impl Lexicons {
    pub(super) fn run(self) -> Result<(), Ending> {
        match self {
            Self::Generate(asked) => asked.generate(),
            Self::Pull(asked) => asked.pull(),
            Self::Check(asked) => asked.check(),
        }
    }
}

/// Where a lexicon's file stands in a folder: one folder for each part of its name.
fn place(folder: &Path, nsid: &str) -> PathBuf {
    let mut path = folder.to_owned();
    path.extend(nsid.split('.'));
    path.set_extension("json"); // an NSID's last part holds no point
    path
}

fn text(lexicon: &Value) -> Result<String, Ending> {
    Ok(format!("{}\n", serde_json::to_string_pretty(lexicon)?))
}

impl Generate {
    fn config(&self) -> Result<Config, Ending> {
        let overrides = Overrides::reached_at(self.public_url.as_deref());
        Ok(Config::load_with(&self.file, &overrides)?)
    }

    fn documents(&self) -> Result<BTreeMap<String, Value>, Ending> {
        let config = self.config()?;
        Ok(methods::lexicon::documents(&methods::table(&config)))
    }

    fn generate(&self) -> Result<(), Ending> {
        let documents = self.documents()?;
        for (nsid, document) in &documents {
            write(&place(&self.out, nsid), document)?;
        }
        say(&format!(
            "wrote {} lexicons to {}",
            documents.len(),
            self.out.display()
        ));
        Ok(())
    }
}

impl Pull {
    fn pull(&self) -> Result<(), Ending> {
        let config = match &self.config {
            Some(file) => Config::load_with(file, &self.overrides)?,
            None => Config::parse("namespace = \"com.example\"")?,
        };
        let found = published(&config, &self.nsids)?;
        let mut failed = Vec::new();
        for (nsid, found) in found {
            match found {
                Ok(lexicon) => {
                    write(&place(&self.out, &nsid), &lexicon)?;
                    say(&format!("{nsid}: {}", place(&self.out, &nsid).display()));
                }
                Err(why) => failed.push(format!("{nsid}: {why}")),
            }
        }
        match failed.is_empty() {
            true => Ok(()),
            false => Err(failed.join("\n").into()),
        }
    }
}

/// A name, and its published lexicon or why there is none.
type Published = (String, Result<Value, String>);

fn published(config: &Config, nsids: &[String]) -> Result<Vec<Published>, Ending> {
    let resolver = Resolver::new(config)?;
    super::runtime()?.block_on(async {
        let mut all = Vec::new();
        for nsid in nsids {
            let found = resolver.lexicon(nsid).await;
            let found = found.map_err(|error| chain(&error)).and_then(|lexicon| {
                match record::lexicon::Document::parse(&lexicon.to_string()) {
                    Ok(_) => Ok(lexicon),
                    Err(error) => Err(format!("what is published is no lexicon: {error}")),
                }
            });
            all.push((nsid.clone(), found));
        }
        Ok(all)
    })
}

impl Check {
    fn check(&self) -> Result<(), Ending> {
        let documents = self.generated.documents()?;
        let mut drift = Vec::new();
        for (nsid, document) in &documents {
            let path = place(&self.generated.out, nsid);
            let written = std::fs::read_to_string(&path);
            match written.map(|text| serde_json::from_str::<Value>(&text).ok()) {
                Ok(Some(written)) if written == *document => {}
                Ok(_) => drift.push(format!("{nsid} differs from {}", path.display())),
                Err(_) => drift.push(format!("{nsid} is not in {}", path.display())),
            }
        }
        let mut compared = documents.len();
        if self.network {
            let config = self.generated.config()?;
            let kept = kept(&config)?;
            let names: Vec<String> = kept.keys().cloned().collect();
            compared += names.len();
            for (nsid, found) in published(&config, &names)? {
                match found {
                    Ok(lexicon) if kept.get(&nsid) == Some(&lexicon) => {}
                    Ok(_) => drift.push(format!("{nsid} differs from what is published")),
                    Err(why) => drift.push(format!("{nsid}: {why}")),
                }
            }
        }
        settle(
            &drift,
            &format!("{compared} lexicons are as they should be"),
        )
    }
}

/// The lexicons in the configuration's folders, by name.
fn kept(config: &Config) -> Result<BTreeMap<String, Value>, Ending> {
    let mut found = BTreeMap::new();
    for folder in &config.lexicons {
        crate::serve::service::gather(folder, &mut found)
            .map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
    }
    Ok(found)
}

/// Says what drifted, as an error; or that nothing did.
fn settle(drift: &[String], good: &str) -> Result<(), Ending> {
    if drift.is_empty() {
        say(good);
        return Ok(());
    }
    for line in drift {
        say(line);
    }
    Err(format!("{} lexicons drifted", drift.len()).into())
}

fn write(path: &Path, document: &Value) -> Result<(), Ending> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
    }
    std::fs::write(path, text(document)?)
        .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    Ok(())
}
