//! `feedmill publish-feed` and `unpublish-feed`: the record by which Bluesky
//! clients find a feed, in the operator's own repository.
//!
//! The app password comes from the environment and goes to the operator's own
//! host alone.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::{Ending, say};
use crate::clock::Clock;
use crate::config::{Config, Overrides};
use crate::host::Cause;
use crate::identity::Resolver;
use crate::reach::fetch::{Ask, Fetcher, PAGE_BYTES_MAX};

/// The environment variable that holds the app password.
const PASSWORD: &str = "FEEDMILL_APP_PASSWORD";
const COLLECTION: &str = "app.bsky.feed.generator";
/// What the network allows for a name and a description, in characters.
const NAME_MAX: usize = 24;
const DESCRIPTION_MAX: usize = 300;

pub(super) const ENVIRONMENT: &str = "Environment only:
  FEEDMILL_APP_PASSWORD   an app password of the account (never its own password)";

/// Whose repository, which record.
#[derive(Debug, Args)]
pub(super) struct Account {
    /// Configuration file
    file: PathBuf,
    /// Name of the feed in the configuration
    feed: String,
    /// The account that publishes: its handle or DID
    #[arg(long)]
    account: String,
    /// Where clients reach us, as the server was told
    #[arg(long, env = "PUBLIC_URL")]
    public_url: Option<String>,
    /// The account's host, instead of the one its DID document names
    #[arg(long)]
    pds: Option<String>,
    /// Record key; the feed's name unless set
    #[arg(long)]
    rkey: Option<String>,
}

/// What to publish.
#[derive(Debug, Args)]
#[command(after_help = ENVIRONMENT)]
pub(super) struct Publish {
    #[command(flatten)]
    account: Account,
    /// The name that people see
    #[arg(long)]
    name: String,
    /// The description that people see
    #[arg(long)]
    description: Option<String>,
}

/// What to take back.
#[derive(Debug, Args)]
#[command(after_help = ENVIRONMENT)]
pub(super) struct Unpublish {
    #[command(flatten)]
    account: Account,
}

/// How long the account's host may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A session with the account's host.
struct Session {
    fetcher: Arc<Fetcher>,
    /// The operator named the host.
    is_named: bool,
    host: String,
    did: String,
    token: String,
}

impl Publish {
    pub(super) fn run(self) -> Result<(), Ending> {
        let config = self.account.config()?;
        let service = config.service_did().ok_or(
            "set serve.public_url or serve.service_did: the record names who serves the feed",
        )?;
        if self.name.is_empty() || self.name.chars().count() > NAME_MAX {
            return Err(format!("--name takes 1 to {NAME_MAX} characters").into());
        }
        let description = self.description.as_deref().unwrap_or_default();
        if description.chars().count() > DESCRIPTION_MAX {
            return Err(format!("--description takes at most {DESCRIPTION_MAX} characters").into());
        }
        let mut record = json!({
            "$type": COLLECTION,
            "did": service,
            "displayName": self.name,
            "createdAt": record::datetime::format_us(Clock::Wall.now_us()),
        });
        if let (Some(text), Value::Object(fields)) = (&self.description, &mut record) {
            fields.insert("description".into(), text.clone().into());
        }
        let rkey = self.account.rkey();
        let answer = super::runtime()?.block_on(async {
            let session = self.account.session(&config).await?;
            let body = json!({"repo": session.did, "collection": COLLECTION, "rkey": rkey, "record": record});
            session.call("com.atproto.repo.putRecord", &body).await
        })?;
        let uri = answer.get("uri").and_then(Value::as_str);
        let uri = uri.ok_or("the host did not say where the record stands")?;
        say(&format!("published as {uri}"));
        let known = config.feeds.get(&self.account.feed);
        if known.and_then(|feed| feed.publish_as.as_deref()) != Some(uri) {
            say(&format!(
                "set it in {}, so that we answer for it:\n\n[feeds.{}]\npublish_as = {uri:?}",
                self.account.file.display(),
                self.account.feed
            ));
        }
        Ok(())
    }
}

impl Unpublish {
    pub(super) fn run(self) -> Result<(), Ending> {
        let config = self.account.config()?;
        let rkey = self.account.rkey();
        let did = super::runtime()?.block_on(async {
            let session = self.account.session(&config).await?;
            let body = json!({"repo": session.did, "collection": COLLECTION, "rkey": rkey});
            session.call("com.atproto.repo.deleteRecord", &body).await?;
            Ok::<_, Ending>(session.did)
        })?;
        say(&format!("at://{did}/{COLLECTION}/{rkey} is gone"));
        Ok(())
    }
}

impl Account {
    fn config(&self) -> Result<Config, Ending> {
        let config = Config::load_with(
            &self.file,
            &Overrides::reached_at(self.public_url.as_deref()),
        )?;
        if !config.feeds.contains_key(&self.feed) {
            let known: Vec<&str> = config.feeds.keys().map(String::as_str).collect();
            return Err(format!("no feed {:?}; there are: {}", self.feed, known.join(", ")).into());
        }
        if !record::ids::RecordKey::is_valid(&self.rkey()) {
            return Err(format!("{:?} is not a record key; set --rkey", self.rkey()).into());
        }
        Ok(config)
    }

    fn rkey(&self) -> String {
        self.rkey.clone().unwrap_or_else(|| self.feed.clone())
    }

    async fn session(&self, config: &Config) -> Result<Session, Ending> {
        let password = std::env::var(PASSWORD)
            .map_err(|_| format!("set {PASSWORD} to an app password of {}", self.account))?;
        let fetcher = Fetcher::new(config, Clock::Wall)?;
        let fetcher = match &self.pds {
            Some(pds) => fetcher.naming(pds)?,
            None => fetcher,
        };
        let fetcher = Arc::new(fetcher);
        let resolver = Resolver::with(config, Arc::clone(&fetcher));
        let host = match &self.pds {
            Some(pds) => pds.trim_end_matches('/').to_owned(),
            None => {
                let did = match record::ids::Did::is_valid(&self.account) {
                    true => Some(self.account.clone()),
                    false => resolver.did_of(&self.account).await?,
                };
                let did = did.ok_or_else(|| format!("{:?} is nobody's handle", self.account))?;
                resolver.host(&did).await?
            }
        };
        let mut session = Session {
            fetcher,
            is_named: self.pds.is_some(),
            host,
            did: String::new(),
            token: String::new(),
        };
        let body = json!({"identifier": self.account, "password": password});
        let answer = session
            .call("com.atproto.server.createSession", &body)
            .await?;
        let field = |name: &str| -> Result<String, Ending> {
            let text = answer.get(name).and_then(Value::as_str);
            Ok(text.ok_or("the host's session is not complete")?.to_owned())
        };
        session.did = field("did")?;
        session.token = field("accessJwt")?;
        Ok(session)
    }
}

impl Session {
    async fn call(&self, method: &str, body: &Value) -> Result<Value, Ending> {
        let address = format!("{}/xrpc/{method}", self.host);
        let ask = Ask::new(Cause::Command, &address).posting(body.to_string());
        let ask = ask.bearing(&self.token).within(TIMEOUT);
        let ask = match self.is_named {
            true => ask.named(),
            false => ask,
        };
        let reply = self.fetcher.fetch(ask.bytes_max(PAGE_BYTES_MAX)).await?;
        let (status, answer) = (reply.status, reply.json::<Value>().unwrap_or_default());
        if reply.is_success() {
            return Ok(answer);
        }
        let word = |name: &str| {
            answer
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or("no reason")
        };
        Err(format!("{method}: {status}: {}: {}", word("error"), word("message")).into())
    }
}
