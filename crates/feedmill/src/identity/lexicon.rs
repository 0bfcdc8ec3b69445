//! Lexicons of the network: from an NSID to the schema that its authority published.
//!
//! In:    an NSID.
//! Out:   the lexicon: the text `did=` of `_lexicon.<authority>` in DNS names an
//!        account, and that account's repository holds the schema.

use serde_json::Value;

use super::{IdentityError, Resolver};
use crate::host::Cause;
use crate::reach::fetch::{Ask, PAGE_BYTES_MAX};

/// The collection in which schemas are published.
const COLLECTION: &str = "com.atproto.lexicon.schema";

impl Resolver {
    /// The published lexicon of a name.
    pub async fn lexicon(&self, nsid: &str) -> Result<Value, IdentityError> {
        let parsed = record::ids::Nsid::parse(nsid)
            .map_err(|_| IdentityError::Unresolvable("not an NSID"))?;
        let mut labels: Vec<&str> = parsed.as_str().split('.').collect();
        labels.pop(); // the name within the authority
        labels.reverse();
        let name = format!("_lexicon.{}", labels.join("."));
        let texts = self.fetcher.texts(Cause::Lexicon, &name).await?;
        let dids: Vec<&str> = texts
            .iter()
            .filter_map(|text| text.strip_prefix("did="))
            .collect();
        let [did] = dids.as_slice() else {
            let why = "its authority names no account (or several) in DNS under _lexicon";
            return Err(IdentityError::Unresolvable(why));
        };
        let host = self.host_for(did, Cause::Lexicon).await?;
        let address = format!(
            "{host}/xrpc/com.atproto.repo.getRecord?repo={did}&collection={COLLECTION}&rkey={nsid}"
        );
        let ask = Ask::new(Cause::Lexicon, &address).bytes_max(PAGE_BYTES_MAX);
        let reply = self.fetcher.fetch(ask).await?;
        if !reply.is_success() {
            return Err(IdentityError::Unresolvable(
                "its authority's account holds no such schema",
            ));
        }
        let answer: Value = reply
            .json()
            .map_err(|_| IdentityError::Unresolvable("the host's answer is not JSON"))?;
        let mut lexicon = answer.get("value").cloned().unwrap_or_default();
        let id = lexicon.get("id").and_then(Value::as_str);
        if id != Some(nsid) {
            return Err(IdentityError::Unresolvable("the schema is of another name"));
        }
        if let Value::Object(fields) = &mut lexicon {
            fields.remove("$type"); // it says what record this is, not what lexicon
        }
        Ok(lexicon)
    }
}
