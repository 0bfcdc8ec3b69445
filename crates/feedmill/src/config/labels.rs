//! `[labels]`: who says what of records and accounts, and whose word is shown.

use serde::{Deserialize, Serialize};

/// Labels beside records and profiles.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Labels {
    /// Labelers that are listened to.
    #[serde(rename = "source")]
    pub sources: Vec<LabelSource>,
    /// Those whose labels are shown where a request names none; all unless set.
    pub defaults: Option<Vec<String>>,
    /// Labelers of one request at most; those beyond are passed over.
    pub per_request_max: usize,
}

/// One labeler.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LabelSource {
    /// Its DID.
    pub did: String,
    /// Where its stream is; what its DID document names unless set.
    pub endpoint: Option<String>,
    /// Labels without a signature by the key in its DID document are refused.
    #[serde(default = "yes")]
    pub verify: bool,
}

fn yes() -> bool {
    true
}

impl Default for Labels {
    fn default() -> Self {
        Self {
            sources: Vec::new(),
            defaults: None,
            per_request_max: 20,
        }
    }
}

impl Labels {
    /// The labelers of a request that names none.
    pub fn usual(&self) -> Vec<String> {
        let all = || self.sources.iter().map(|source| source.did.clone());
        self.defaults.clone().unwrap_or_else(|| all().collect())
    }

    pub(super) fn fault(&self) -> Option<(String, String)> {
        for (index, source) in self.sources.iter().enumerate() {
            let at = |key: &str| format!("labels.source.{index}.{key}");
            if !record::ids::Did::is_valid(&source.did) {
                return Some((at("did"), format!("{:?} is not a DID", source.did)));
            }
            let before = self.sources.iter().take(index);
            if before.into_iter().any(|other| other.did == source.did) {
                return Some((at("did"), format!("{:?} stands here twice", source.did)));
            }
            let schemes = ["ws://", "wss://", "http://", "https://"];
            if let Some(url) = &source.endpoint
                && !schemes.iter().any(|scheme| url.starts_with(scheme))
            {
                return Some((at("endpoint"), format!("{url:?} is not an address")));
            }
        }
        let unknown = |did: &&String| !self.sources.iter().any(|source| source.did == **did);
        if let Some(did) = self.defaults.iter().flatten().find(unknown) {
            let problem = format!("{did:?} is none of the labelers listened to");
            return Some(("labels.defaults".into(), problem));
        }
        (self.per_request_max == 0)
            .then(|| ("labels.per_request_max".into(), "must be at least 1".into()))
    }
}
