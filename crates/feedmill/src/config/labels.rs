//! `[labels]`: who says what of records and accounts, and whose word is shown.

use serde::{Deserialize, Serialize};

use super::fault::Found;

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

    pub(super) fn faults(&self, found: &mut Found) {
        for (index, source) in self.sources.iter().enumerate() {
            let at = |key: &str| format!("labels.source.{index}.{key}");
            found.unless(record::ids::Did::is_valid(&source.did), at("did"), || {
                format!("{:?} is not a DID", source.did)
            });
            let mut before = self.sources.iter().take(index);
            found.unless(
                before.all(|other| other.did != source.did),
                at("did"),
                || format!("{:?} stands here twice", source.did),
            );
            let schemes = ["ws://", "wss://", "http://", "https://"];
            if let Some(url) = &source.endpoint {
                let known = schemes.iter().any(|scheme| url.starts_with(scheme));
                found.unless(known, at("endpoint"), || {
                    format!("{url:?} is not an address")
                });
            }
        }
        for did in self.defaults.iter().flatten() {
            let known = self.sources.iter().any(|source| source.did == *did);
            found.unless(known, "labels.defaults", || {
                format!("{did:?} is none of the labelers listened to")
            });
        }
        found.unless(self.per_request_max > 0, "labels.per_request_max", || {
            "must be at least 1".into()
        });
    }
}
