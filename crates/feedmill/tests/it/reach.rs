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
use feedmill::clock::Clock;
use feedmill::config::Config;
use feedmill::host::Cause;
use feedmill::identity::{IdentityError, Resolver};
use feedmill::reach::fetch::{Ask, FetchError, Fetcher};
use serde_json::json;

use crate::names::{self, Held};
use crate::strangers;

const HERE: Held = Held::Address(Ipv4Addr::LOCALHOST);

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

/// A configuration that asks this directory.
pub(crate) fn config_of(plc: &str) -> Config {
    let text = format!("namespace = \"com.example\"\n[intake]\nplc_url = \"{plc}\"\n");
    Config::parse(&text).unwrap()
}

fn fetcher(config: &Config) -> Fetcher {
    Fetcher::new(config, Clock::Wall).unwrap()
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

    let fetcher = fetcher(&config("", dns));
    for (url, why) in [
        (&url, "without TLS"),
        (&url.replace("http", "https"), "private address"),
    ] {
        let error = fetcher.fetch(Ask::new(Cause::Identity, url)).await;
        let error = error.unwrap_err();
        assert!(matches!(error, FetchError::Forbidden(_)), "{error:?}");
        assert!(chain(&error).contains(why), "{}", chain(&error));
    }
    assert_eq!(asked.load(Ordering::SeqCst), 0);

    // The same name is reached where that is allowed, and where the operator named it.
    let named = fetcher.naming(&url).unwrap();
    let found = named.fetch(Ask::new(Cause::Identity, &url).named()).await;
    assert!(found.unwrap().is_success());
    let fetcher = self::fetcher(&allowing(config("", dns), true));
    let found = fetcher.fetch(Ask::new(Cause::Identity, &url)).await;
    assert_eq!(found.unwrap().body, b"secret");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

/// Labels come over a WebSocket, which no HTTP client connects.
#[tokio::test]
async fn a_line_is_judged_by_the_address_it_would_lead_to_and_heeds_pauses() {
    let dns = names::serve(&[("labels.example.com", HERE)]);
    let (address, _) = server(Router::new()).await;
    let by_name = format!("https://labels.example.com:{}", address.port());
    let by_number = format!("https://{address}");
    let fetcher = fetcher(&config("", dns));
    for url in [&by_name, &by_number] {
        let error = fetcher.connect(Cause::Label, url, false).await;
        let error = chain(&error.unwrap_err());
        assert!(error.contains("private address"), "{error}");
        let named = fetcher.connect(Cause::Label, url, true).await;
        assert!(named.is_ok(), "the operator may");
    }
    let fetcher = self::fetcher(&allowing(config("", dns), true));
    let connect = || fetcher.connect(Cause::Label, &by_name, false);
    assert!(connect().await.is_ok());
    let mut headers = axum::http::HeaderMap::new();
    headers.insert("retry-after", "3600".parse().unwrap());
    fetcher.heed(&by_name, 429, &headers);
    let refused = connect().await;
    assert!(matches!(refused, Err(FetchError::Later(_))), "{refused:?}");
}

/// Whoever is told to pause is not asked, so what is refused then goes through the limits of hosts.
#[tokio::test]
async fn the_directory_and_dns_are_hosts_with_limits_like_any_other() {
    let dns = names::serve(&[]);
    let (directory, asked) = server(Router::new()).await;
    let plc = format!("http://{directory}");
    let config = config(&format!("[intake]\nplc_url = \"{plc}\"\n"), dns);
    let fetcher = Arc::new(fetcher(&config));
    let resolver = Resolver::with(&config, Arc::clone(&fetcher));
    assert!(fetcher.texts(Cause::Handle, "a.example.com").await.is_ok());
    let missing = resolver.key("did:plc:first").await;
    assert!(
        matches!(missing, Err(IdentityError::Missing)),
        "{missing:?}"
    );
    for url in ["dns://", &plc] {
        fetcher.heed(url, 429, &axum::http::HeaderMap::new());
    }
    let names = fetcher.texts(Cause::Handle, "b.example.com").await;
    assert!(matches!(names, Err(FetchError::Later(_))), "{names:?}");
    let handle = resolver.did_of("somebody.example.com").await;
    assert!(matches!(handle, Err(IdentityError::Later(_))), "{handle:?}");
    let second = resolver.key("did:plc:second").await;
    assert!(matches!(second, Err(IdentityError::Later(_))), "{second:?}");
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_repository_that_takes_too_long_is_cut_however_steadily_it_comes() {
    let count = Arc::new(strangers::Count::default());
    let pause = Duration::from_millis(20);
    let steady = move || {
        let body = strangers::endless(&count, "", pause);
        async { body }
    };
    let (address, asked) = server(Router::new().route("/", get(steady))).await;
    let url = format!("http://{address}/");
    let mut config = config_of(&url);
    (config.intake.repo_s_max, config.intake.speed_bytes_min) = (1, 1);
    let fetcher = fetcher(&config);
    let fetching = fetcher.archive(Ask::new(Cause::Repair, &url).named());
    let fetched = tokio::time::timeout(crate::bed::PATIENCE, fetching).await;
    let error = fetched.expect("it is cut").unwrap_err();
    assert!(matches!(error, FetchError::TooSlow), "{error:?}");
    assert_eq!(asked.load(Ordering::SeqCst), 1);
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
        let fetcher = fetcher(&config("", dns)).naming(&url).unwrap();
        let ask = Ask::new(Cause::Identity, &url).named();
        let error = fetcher.fetch(ask.clone()).await.unwrap_err();
        assert!(
            matches!(error, FetchError::Forbidden(_)),
            "{target}: {error:?}"
        );
        // Who follows no redirects is shown them.
        let answer = fetcher.fetch(ask.without_redirects()).await;
        assert_eq!(answer.unwrap().status, 307);
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
            let ask = Ask::new(Cause::Repair, &host);
            let error = resolver.fetcher().fetch(ask).await.unwrap_err();
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
