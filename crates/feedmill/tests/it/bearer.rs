//! A reader who proves who he is: his key in a directory, and the tokens that
//! his host makes for him.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use record::key::SigningKey;
use serde_json::{Value, json};

pub(crate) const READER: &str = "did:plc:reader";
pub(crate) const AUTHOR: &str = "did:web:author.test";
/// Who we are, where the configuration says `public_url = "https://feeds.example"`.
pub(crate) const US: &str = "did:web:feeds.example";

/// A plc directory that knows the reader's present key.
pub(crate) struct Directory {
    pub(crate) url: String,
    key: Arc<Mutex<SigningKey>>,
}

impl Directory {
    pub(crate) fn start(key: SigningKey) -> Self {
        let key = Arc::new(Mutex::new(key));
        let shown = Arc::clone(&key);
        let document = move || {
            let key = shown.lock().unwrap().public().to_multikey();
            let method = json!({"id": format!("{READER}#atproto"), "type": "Multikey", "publicKeyMultibase": key});
            async move {
                json!({"id": READER, "alsoKnownAs": ["at://reader.test"], "verificationMethod": [method]}).to_string()
            }
        };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let router =
                    axum::Router::new().route(&format!("/{READER}"), axum::routing::get(document));
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                axum::serve(listener, router).await.unwrap();
            });
        });
        Self { url, key }
    }

    /// The reader has a new key.
    pub(crate) fn now_signs_with(&self, key: SigningKey) {
        *self.key.lock().unwrap() = key;
    }
}

pub(crate) fn now() -> i64 {
    feedmill::clock::Clock::Wall.now_us() / 1_000_000
}

/// A token of the reader for a method, with its claims changed.
pub(crate) fn token(key: &SigningKey, method: &str, change: impl Fn(&mut Value)) -> String {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let jti = NEXT
        .fetch_add(1, std::sync::atomic::Ordering::SeqCst)
        .to_string();
    let mut claims = json!({"iss": READER, "aud": US, "exp": now() + 60, "iat": now(), "lxm": method, "jti": jti});
    change(&mut claims);
    let alg = match key {
        SigningKey::K256(_) => "ES256K",
        SigningKey::P256(_) => "ES256",
    };
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!(
        "{}.{}",
        part(json!({"alg": alg, "typ": "JWT"})),
        part(claims)
    );
    let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}
