//! Who is let in: names, tokens, origins and shares, at the doors of the running binary.

use std::process::Command;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{Message, client::IntoClientRequest as _};

use super::peers::Demo;

/// A server, and the folder it lives in.
struct Served {
    _folder: tempfile::TempDir,
    url: String,
    _server: Demo,
}

const TOKEN: (&str, &str) = ("FEEDMILL_LOG_TOKEN", "secret");

fn served(log: &str, serve: &str) -> Served {
    served_by(&format!(
        "namespace = \"com.example\"\n[store]\nurl = \"sqlite::memory:\"\n\
         [log]\nfile = \"log.db\"\n{log}[serve]\nbind = \"127.0.0.1:0\"\n{serve}"
    ))
}

fn served_by(text: &str) -> Served {
    feedmill::identity::provide_tls();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("feedmill.toml");
    std::fs::write(&file, text).unwrap();
    let arguments = ["serve", file.to_str().unwrap()];
    let server = Demo::start_in(&[TOKEN], &arguments, "serving on ");
    Served {
        _folder: folder,
        url: server.word("serving on ").trim_end_matches('/').to_owned(),
        _server: server,
    }
}

impl Served {
    async fn send(&self, path: &str, headers: &[(&str, &str)]) -> reqwest::Response {
        let mut request = reqwest::Client::new().post(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let message = json!({"requestId": 1});
        request.json(&message).send().await.unwrap()
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> reqwest::Response {
        let mut request = reqwest::Client::new().get(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap()
    }

    fn log(&self, arguments: &[&str], token: Option<&str>) -> (bool, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_feedmill"));
        command
            .arg("log")
            .args(arguments)
            .args(["--server", &self.url]);
        command.env_remove("FEEDMILL_LOG_KEY").env_remove(TOKEN.0);
        if let Some(token) = token {
            command.env(TOKEN.0, token);
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complained = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), said + &complained)
    }
}

#[tokio::test]
async fn the_command_line_shows_its_token_and_is_refused_without_one() {
    let served = served("", "");
    let (done, said) = served.log(&["append", "notes", "hello", "--actor", "cli"], None);
    assert!(!done && said.contains("unauthorized"), "{said}");
    let (done, said) = served.log(
        &["append", "notes", "hello", "--actor", "cli"],
        Some("secret"),
    );
    assert!(done && said.trim() == "1", "{said}");
    let (done, said) = served.log(&["query", "notes", "--text"], Some("secret"));
    assert!(done && said.trim() == "hello", "{said}");
    let (done, said) = served.log(&["create", "more"], Some("secret"));
    assert!(done && said.contains("\"changed\":1"), "{said}");
    let (done, said) = served.log(&["purge", "notes", "cli"], Some("secret"));
    assert!(done && said.contains("\"changed\":1"), "{said}");
    let (done, said) = served.log(&["delete", "notes"], Some("secret"));
    assert!(done && said.contains("\"changed\":1"), "{said}");
    let (done, said) = served.log(&["query", "notes"], Some("secret"));
    assert!(!done && said.contains("spaceDeleted"), "{said}");
}

#[tokio::test]
async fn a_replica_shows_its_token_and_ends_at_once_where_nothing_is() {
    let served = served("", "");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("copy.db");
    let file = file.to_str().unwrap();
    for _ in 0..2 {
        let (done, said) = served.log(&["replicate", "new", file, "--once"], Some("secret"));
        assert!(done && said.contains("\"maxPosition\":0"), "{said}");
    }
    let (done, said) = served.log(&["replicate", "other", file, "--once"], None);
    assert!(!done && said.contains("unauthorized"), "{said}");
}

#[tokio::test]
async fn a_loopback_server_does_not_answer_to_a_strangers_name() {
    let served = served("", "hosts = [\"mill.example\"]\n");
    for (host, status) in [
        ("localhost", 200),
        ("mill.example:1", 200),
        ("evil.example", 421),
    ] {
        for path in ["/", "/health", "/log.js"] {
            let answer = served.get(path, &[("host", host)]).await;
            assert_eq!(answer.status(), status, "{host} {path}");
        }
    }
}

#[tokio::test]
async fn the_page_carries_the_headers_that_keep_it_what_it_is() {
    let answer = served("", "").get("/", &[]).await;
    let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
    let policy = header("content-security-policy");
    for part in ["default-src 'none'", "frame-ancestors 'none'", "'sha256-"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(header("x-content-type-options"), "nosniff");
    assert_eq!(header("referrer-policy"), "no-referrer");
}

#[tokio::test]
async fn the_log_takes_from_the_same_share_as_everything_else() {
    let open = "read = \"anyone\"\nappend = \"anyone\"\ncreate = \"anyone\"\n";
    let limits = "rate_max = 4\nrate_s = 3600\nproxy_header = \"x-forwarded-for\"\n";
    let served = served(open, limits);
    let ada = [("x-forwarded-for", "9.9.9.9")];
    assert_eq!(served.send("/log/s/create", &ada).await.status(), 200);
    let health = served.get("/xrpc/com.example.describeFeeds", &ada).await;
    assert_ne!(health.status(), 429);
    let url = format!("{}/log/s", served.url.replacen("http", "ws", 1));
    let mut request = url.into_client_request().unwrap();
    let (name, value) = ada[0];
    request.headers_mut().insert(name, value.parse().unwrap());
    let (mut socket, _) = tokio_tungstenite::connect_async(request).await.unwrap();
    let mut answers = Vec::new();
    for id in 1..=2 {
        let message = json!({"type": "list", "requestId": id}).to_string();
        socket.send(Message::text(message)).await.unwrap();
        let answer = socket.next().await.unwrap().unwrap();
        let answer: Value = serde_json::from_str(answer.to_text().unwrap()).unwrap();
        answers.push((answer["requestId"].clone(), answer["error"].clone()));
    }
    let expected = [(json!(1), Value::Null), (json!(2), json!("rateLimited"))];
    assert_eq!(
        answers, expected,
        "one call, one page, one connection, one message"
    );
    let refused = served.send("/log/s/list", &ada).await;
    assert_eq!(refused.status(), 429);
    assert!(refused.headers().contains_key("retry-after"));
    let bob = [("x-forwarded-for", "9.9.9.8")];
    assert_eq!(served.send("/log/s/list", &bob).await.status(), 200);
}

#[tokio::test]
async fn a_direct_api_without_a_token_is_not_written_by_pages_of_other_origins() {
    let served = served_by(
        "namespace = \"com.example\"\n[store]\nurl = \"sqlite::memory:\"\n\
         [collections.note]\ncollection = \"com.example.note\"\nvalidate = false\ndirect = true\n\
         [direct]\nopen = true\norigins = [\"http://localhost:5173\"]\n\
         [serve]\nbind = \"127.0.0.1:0\"\n",
    );
    let put = async |headers: &[(&str, &str)]| {
        let mut request = reqwest::Client::new().put(format!("{}/records/note/1", served.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.json(&json!({"user_id": 1})).send().await.unwrap();
        answer.status().as_u16()
    };
    assert_eq!(put(&[("origin", "https://evil.example")]).await, 403);
    assert_eq!(put(&[("sec-fetch-site", "cross-site")]).await, 403);
    let foreign = [("origin", "null")];
    assert_eq!(served.get("/records/note/1", &foreign).await.status(), 403);
    assert_eq!(served.get("/records/note/1", &[]).await.status(), 404);
    assert_eq!(put(&[]).await, 200);
    assert_eq!(put(&[("origin", &served.url)]).await, 200);
    assert_eq!(put(&[("origin", "http://localhost:5173")]).await, 200);
}
