//! To whom we talk: names and addresses that strangers give us never lead to
//! this machine or its network; handles are believed only when both sides say so.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::response::Redirect;
use axum::routing::get;
use feedmill::check::chain;
use feedmill::config::Config;
use feedmill::identity::{IdentityError, Resolver};
use feedmill::reach::Reach;
use serde_json::json;

use crate::names::{self, Held};

const HERE: Held = Held::Address(Ipv4Addr::LOCALHOST);
const PATIENCE: Duration = Duration::from_secs(10);

/// A server on this machine, and how often it was asked.
async fn server(router: Router) -> (SocketAddr, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = router.layer(axum::middleware::from_fn(
        move |request, next: axum::middleware::Next| {
            count.fetch_add(1, Ordering::SeqCst);
            next.run(request)
        },
    ));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (address, asked)
}

fn config(extra: &str, dns: SocketAddr) -> Config {
    let text =
        format!("namespace = \"com.example\"\n{extra}\n[identity]\ndns_server = \"{dns}\"\n");
    Config::parse(&text).unwrap()
}

fn allowing(mut config: Config, private: bool) -> Config {
    config.identity.allow_private = Some(private);
    config
}

#[tokio::test]
async fn a_public_name_that_resolves_to_this_machine_is_not_connected_to() {
    let dns = names::serve(&[("evil.example.com", HERE)]);
    let (address, asked) = server(Router::new().route("/", get(async || "secret"))).await;
    let url = format!("http://evil.example.com:{}/", address.port());

    let reach = Reach::new(&config("", dns));
    let error = reach.client(PATIENCE).unwrap().get(&url).send().await;
    let error = chain(&error.unwrap_err());
    assert!(error.contains("private address"), "{error}");
    assert_eq!(asked.load(Ordering::SeqCst), 0);

    // The same name is reached where that is allowed, and where the operator named it.
    let reach = Reach::new(&allowing(config("", dns), true));
    let found = reach.client(PATIENCE).unwrap().get(&url).send().await;
    assert_eq!(found.unwrap().text().await.unwrap(), "secret");
    let reach = Reach::new(&config("", dns));
    let named = reach.named_client(PATIENCE, &[&url]).unwrap();
    assert!(named.get(&url).send().await.unwrap().status().is_success());
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

/// Labels come over a WebSocket, which no HTTP client connects.
#[tokio::test]
async fn a_line_is_judged_by_the_address_it_would_lead_to() {
    let dns = names::serve(&[("labels.example.com", HERE)]);
    let (address, _) = server(Router::new()).await;
    let by_name = format!("https://labels.example.com:{}", address.port());
    let by_number = format!("https://{address}");
    let reach = Reach::new(&config("", dns));
    for url in [&by_name, &by_number] {
        let error = chain(&reach.connect(url, false).await.unwrap_err());
        assert!(error.contains("private address"), "{error}");
        assert!(reach.connect(url, true).await.is_ok(), "the operator may");
    }
    let reach = Reach::new(&allowing(config("", dns), true));
    assert!(reach.connect(&by_name, false).await.is_ok());
}

#[tokio::test]
async fn a_redirect_to_this_machine_is_not_followed() {
    let dns = names::serve(&[("plc.example.com", HERE), ("inner.example.com", HERE)]);
    let (inner, asked) = server(Router::new().route("/", get(async || "secret"))).await;
    let by_number = format!("https://{inner}/");
    let by_name = format!("https://inner.example.com:{}/", inner.port());
    let plain = format!("http://inner.example.com:{}/", inner.port());
    for target in [by_number, by_name, plain] {
        let to = target.clone();
        let router = Router::new().route("/", get(async move || Redirect::temporary(&to)));
        let (outer, _) = server(router).await;
        let url = format!("http://plc.example.com:{}/", outer.port());
        let reach = Reach::new(&config("", dns));
        let client = reach.named_client(PATIENCE, &[&url]).unwrap();
        let error = client.get(&url).send().await.unwrap_err();
        assert!(!error.is_timeout(), "{target}: {}", chain(&error));
        // A strict client shows the redirect instead of following it.
        let reach = Reach::new(&allowing(config("", dns), true));
        let answer = reach
            .strict_client(PATIENCE)
            .unwrap()
            .get(&url)
            .send()
            .await;
        assert_eq!(answer.unwrap().status(), 307);
    }
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

/// A directory in which one account says that it lives at `host`, under `handle`.
async fn directory(did: &str, host: &str, handle: &str) -> String {
    let document = json!({
        "id": did,
        "alsoKnownAs": [format!("at://{handle}")],
        "service": [{"id": "#atproto_pds", "type": "AtprotoPersonalDataServer", "serviceEndpoint": host}],
    });
    let router = Router::new().route(&format!("/{did}"), get(async move || document.to_string()));
    let (address, _) = server(router).await;
    format!("[intake]\nplc_url = \"http://{address}\"")
}

#[tokio::test]
async fn a_host_in_a_did_document_is_not_asked_if_it_is_private() {
    let dns = names::serve(&[("pds.example.com", HERE)]);
    for (host, private) in [
        ("https://10.0.0.1", true),
        ("https://[::1]:8443", true),
        ("http://pds.example.com", true),
        ("https://169.254.169.254", true),
        ("https://pds.example.com", false), // by its words; at the connection it is
    ] {
        let text = directory("did:plc:a", host, "a.example.com").await;
        let resolver = Resolver::new(&allowing(config(&text, dns), false)).unwrap();
        let found = resolver.host("did:plc:a").await;
        assert_eq!(
            matches!(found, Err(IdentityError::Forbidden(_))),
            private,
            "{host}: {found:?}"
        );
        if let Ok(host) = found {
            let error = resolver.client().get(host).send().await.unwrap_err();
            assert!(
                chain(&error).contains("private address"),
                "{}",
                chain(&error)
            );
        }
        // A network in a box says so by its directory, or by a setting.
        let resolver = Resolver::new(&config(&text, dns)).unwrap();
        assert_eq!(resolver.host("did:plc:a").await.unwrap(), host);
    }
    let resolver = Resolver::new(&config("", dns)).unwrap();
    for did in [
        "did:web:127.0.0.1",
        "did:web:localhost",
        "did:web:localhost%3A80",
    ] {
        let found = resolver.key(did).await.unwrap_err();
        assert!(
            matches!(found, IdentityError::Forbidden(_)),
            "{did}: {found:?}"
        );
    }
    let found = resolver.key("did:web:pds.example.com").await.unwrap_err();
    assert!(
        chain(&found).contains("private address"),
        "{}",
        chain(&found)
    );
}

#[tokio::test]
async fn a_handle_is_its_accounts_only_if_both_say_so() {
    let dns = names::serve(&[
        ("_atproto.anna.example.com", Held::Text("did=did:plc:anna")),
        ("_atproto.eve.example.com", Held::Text("did=did:plc:anna")),
        ("_atproto.two.example.com", Held::Text("did=did:plc:anna")),
        ("_atproto.two.example.com", Held::Text("did=did:plc:bob")),
        ("_atproto.bad.example.com", Held::Text("did=nonsense")),
        (
            "_atproto.nobody.example.com",
            Held::Text("did=did:plc:nobody"),
        ),
    ]);
    let text = directory(
        "did:plc:anna",
        "https://pds.example.com",
        "Anna.example.com",
    )
    .await;
    let resolver = Resolver::new(&config(&text, dns)).unwrap();
    let did = async |handle: &str| resolver.did_of(handle).await;
    assert_eq!(
        did("anna.example.com").await.unwrap().as_deref(),
        Some("did:plc:anna")
    );
    assert_eq!(
        did("ANNA.example.com").await.unwrap().as_deref(),
        Some("did:plc:anna")
    );
    for handle in [
        "eve.example.com",
        "two.example.com",
        "bad.example.com",
        "nobody.example.com",
    ] {
        assert_eq!(did(handle).await.unwrap(), None, "{handle}");
    }
    // Not in DNS, and its host cannot be asked: nobody knows.
    assert!(did("gone.example.com").await.is_err());
}

#[tokio::test]
async fn handles_of_the_simulated_network_are_found_by_https() {
    let network = crate::bed::network(11, sim::network::NetworkOptions::default()).await;
    let config = crate::bed::config(&network, "sqlite::memory:", &[]);
    let resolver = Resolver::new(&config).unwrap();
    let known: Vec<(String, String)> = network.world(|world| {
        let active = world
            .accounts()
            .iter()
            .filter(|account| account.standing == sim::model::Standing::Active);
        active
            .map(|account| (account.handle.clone(), account.did.to_string()))
            .collect()
    });
    assert!(known.len() > 5);
    for (handle, did) in known {
        assert_eq!(resolver.did_of(&handle).await.unwrap(), Some(did));
    }
    assert_eq!(resolver.did_of("nobody.example").await.unwrap(), None);
    network.stop().await;
}
