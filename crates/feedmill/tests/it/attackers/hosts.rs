//! Hosts that mean harm, and the directory that names them.

use std::collections::BTreeMap;

use axum::Router;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use record::key::SigningKey;
use serde_json::json;

use super::invented;
use crate::strangers::{Manner, host, listen};

/// The key of every hostile account.
pub(super) fn key() -> SigningKey {
    SigningKey::k256([7; 32]).unwrap()
}

/// Hosts that mean harm, and the accounts that live there.
pub(crate) async fn hostile() -> BTreeMap<String, String> {
    let manners = [
        Manner::EndlessStatus,
        Manner::EndlessRepo,
        Manner::Trickle,
        Manner::Garbage(1 << 20),
        Manner::Later("retry-after", "0"),
        Manner::Later("retry-after", "99999999999999999999"),
    ];
    let mut accounts = BTreeMap::new();
    for (number, manner) in (1..).zip(manners) {
        let (url, _) = host(manner).await;
        accounts.insert(invented(number << 40), url);
    }
    accounts
}

/// A plc directory that knows hostile accounts beside those of another directory.
pub(crate) async fn directory(behind: &str, hostile: BTreeMap<String, String>) -> String {
    let (client, behind) = (reqwest::Client::new(), behind.to_owned());
    let answer = move |uri: Uri| {
        let did = uri.path().trim_start_matches('/').to_owned();
        let url = format!("{behind}{uri}");
        let (host, client) = (hostile.get(&did).cloned(), client.clone());
        async move {
            let Some(host) = host else {
                return forward(client.get(url)).await;
            };
            let pds = json!({"id": "#atproto_pds", "type": "AtprotoPersonalDataServer", "serviceEndpoint": host});
            let method = json!({"id": "#atproto", "type": "Multikey", "publicKeyMultibase": key().public().to_multikey()});
            json!({"id": did, "alsoKnownAs": [], "service": [pds], "verificationMethod": [method]})
                .to_string()
                .into_response()
        }
    };
    listen(Router::new().fallback(answer)).await
}

/// A web in which names that begin with `slow` are never answered for.
pub(crate) async fn web(behind: &str) -> String {
    let (client, behind) = (reqwest::Client::new(), behind.to_owned());
    let answer = move |uri: Uri, headers: HeaderMap| {
        let name = headers.get("host").and_then(|host| host.to_str().ok());
        let name = name.unwrap_or_default().to_owned();
        let request = client.get(format!("{behind}{uri}")).header("host", &name);
        async move {
            if name.starts_with("slow") {
                std::future::pending::<()>().await;
            }
            forward(request).await
        }
    };
    listen(Router::new().fallback(answer)).await
}

async fn forward(request: reqwest::RequestBuilder) -> Response {
    match request.send().await {
        Ok(answer) => {
            let status = StatusCode::from_u16(answer.status().as_u16()).unwrap();
            (status, answer.bytes().await.unwrap_or_default()).into_response()
        }
        Err(_) => StatusCode::BAD_GATEWAY.into_response(),
    }
}
