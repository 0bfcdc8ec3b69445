//! `docs/protocol.md` is true: its session is held with the binary, message by message.

use std::collections::BTreeMap;

use blocklog::block::{Block, Payload, Predecessor};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio_tungstenite::tungstenite::Message;

use super::peers::Demo;

const PROTOCOL: &str = include_str!("../../../../docs/protocol.md");

/// What the server makes up: the document's word stands for the server's from then on.
const MADE_UP: [&str; 5] = [
    "epoch",
    "subscriptionId",
    "expiresAt",
    "nextCursor",
    "message",
];

/// One line that begins with `>` or `<`, and the message below it.
struct Step {
    sent: bool,
    head: String,
    message: Value,
}

fn steps() -> Vec<Step> {
    let fences = PROTOCOL.split("```session\n").skip(1);
    let lines = fences.flat_map(|rest| rest.split("```").next().unwrap().lines());
    let mut steps: Vec<(String, String)> = Vec::new();
    for line in lines {
        match line.starts_with(['>', '<']) {
            true => steps.push((line.to_owned(), String::new())),
            false => steps.last_mut().unwrap().1.push_str(line),
        }
    }
    let step = |(head, text): (String, String)| Step {
        sent: head.starts_with('>'),
        head: head[2..].to_owned(),
        message: serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")),
    };
    steps.into_iter().map(step).collect()
}

/// The words of the document, and what the server said instead.
#[derive(Default)]
struct Words(BTreeMap<String, Value>);

impl Words {
    /// What the server must be told where the document says `message`.
    fn put_in(&self, message: &Value) -> Value {
        let mut message = message.clone();
        if let Value::Object(fields) = &mut message {
            for value in fields.values_mut() {
                if let Some(said) = value.as_str().and_then(|word| self.0.get(word)) {
                    *value = said.clone();
                }
            }
        }
        message
    }

    #[track_caller]
    fn compare(&mut self, name: &str, written: &Value, said: &Value) {
        match (written, said) {
            (_, _) if MADE_UP.contains(&name) => {
                let word = written.as_str().filter(|word| *word != "…");
                let Some(word) = word else { return };
                let before = self.0.entry(word.to_owned()).or_insert(said.clone());
                assert_eq!(before, said, "{name} is another than before");
            }
            (Value::Object(written), Value::Object(said)) => {
                let names = |fields: &serde_json::Map<String, Value>| -> Vec<String> {
                    fields.keys().cloned().collect()
                };
                assert_eq!(names(written), names(said), "{written:?} {said:?}");
                for (name, written) in written {
                    self.compare(name, written, &said[name]);
                }
            }
            (Value::Array(written), Value::Array(said)) => {
                assert_eq!(written.len(), said.len(), "{name}: {said:?}");
                for (written, said) in written.iter().zip(said) {
                    self.compare("", written, said);
                }
            }
            (written, said) => assert_eq!(written, said, "{name}"),
        }
    }
}

#[tokio::test]
async fn the_session_of_the_protocol_is_what_the_binary_says() {
    feedmill::identity::provide_tls();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("feedmill.toml");
    let text = "namespace = \"com.example\"\n[store]\nurl = \"sqlite::memory:\"\n\
                [log]\nfile = \"log.db\"\nread = \"anyone\"\nappend = \"anyone\"\ncreate = \"anyone\"\n[serve]\nbind = \"127.0.0.1:0\"\n";
    std::fs::write(&file, text).unwrap();
    let server = Demo::start(&["serve", file.to_str().unwrap()], "serving on ");
    let url = server.word("serving on ").trim_end_matches('/').to_owned();
    let socket = format!("{}/log/demo", url.replacen("http", "ws", 1));
    let (mut socket, _) = tokio_tungstenite::connect_async(socket).await.unwrap();
    let (mut words, mut answer) = (Words::default(), None);
    let steps = steps();
    assert!(steps.len() > 25, "the session was found");
    for step in steps {
        let Step {
            sent,
            head,
            message,
        } = step;
        if sent {
            let message = words.put_in(&message);
            answer = match head.strip_prefix("POST ") {
                None => {
                    let text = Message::text(message.to_string());
                    socket.send(text).await.unwrap();
                    None
                }
                Some(path) => {
                    let request = reqwest::Client::new().post(format!("{url}{path}"));
                    Some(request.json(&message).send().await.unwrap())
                }
            };
            continue;
        }
        let said: Value = match answer.take() {
            Some(answer) => {
                assert_eq!(answer.status().as_str(), head, "{message}");
                answer.json().await.unwrap()
            }
            // Hints may come at any time, and say how far the space is at that time.
            None => loop {
                let text = socket.next().await.unwrap().unwrap();
                let said: Value = serde_json::from_str(text.to_text().unwrap()).unwrap();
                if said.get("type").is_none() || said == message {
                    break said;
                }
            },
        };
        words.compare("", &message, &said);
    }
}

#[test]
fn the_block_of_the_protocol_has_the_hash_it_says() {
    let block = Block {
        feed: "feed".into(),
        actor: "ada".into(),
        sequence: 7,
        predecessor: Some(Predecessor {
            sequence: 6,
            actor: "bob".into(),
            hash: None,
        }),
        timestamp_ms: 1_700_000_000_000,
        payload: Payload::Bytes(b"hello".to_vec()),
        signature: None,
    };
    let hash = block.hash("space").to_string();
    assert!(PROTOCOL.contains(&format!("`{hash}`")), "{hash}");
}
