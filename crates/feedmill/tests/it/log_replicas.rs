//! `[[log.replicate]]`: one process keeps replicas of several spaces, both ways.

use std::path::Path;

use serde_json::{Value, json};

use super::peers::Demo;

pub(crate) fn serve(
    folder: &Path,
    name: &str,
    log: &str,
    environment: &[(&str, &str)],
) -> (Demo, String) {
    feedmill::identity::provide_tls();
    let file = folder.join(format!("{name}.toml"));
    let text = format!(
        "namespace = \"com.example\"\n[store]\nurl = \"sqlite::memory:\"\n\
         [serve]\nbind = \"127.0.0.1:0\"\n[log]\nfile = \"{name}.db\"\n{log}"
    );
    std::fs::write(&file, text).unwrap();
    let arguments = ["serve", file.to_str().unwrap()];
    let server = Demo::start_in(environment, &arguments, "serving on ");
    let url = server.word("serving on ").trim_end_matches('/').to_owned();
    (server, url)
}

pub(crate) async fn ask(url: &str, path: &str, message: &Value) -> Value {
    let request = reqwest::Client::new().post(format!("{url}/log/{path}"));
    let request = request.bearer_auth("secret").json(message);
    request.send().await.unwrap().json().await.unwrap()
}

fn block(actor: &str, sequence: u64) -> Value {
    let block = json!({"actorId": actor, "sequence": sequence, "timestamp": 1, "data": "eA=="});
    json!({"requestId": 1, "blocks": [block]})
}

/// The actors of a space's blocks that have a position, once there are so many.
pub(crate) async fn actors(url: &str, space: &str, count: usize) -> Vec<String> {
    for _ in 0..600 {
        let page = ask(url, &format!("{space}/query"), &json!({"requestId": 1})).await;
        let blocks = page["blocks"].as_array().cloned().unwrap_or_default();
        if blocks.len() == count {
            let actor = |block: &Value| block["actorId"].as_str().unwrap().to_owned();
            return blocks.iter().map(actor).collect();
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("{space} never had {count} blocks");
}

#[tokio::test]
async fn one_process_replicates_several_spaces_that_its_file_names() {
    let folder = tempfile::tempdir().unwrap();
    let token = [("FEEDMILL_LOG_TOKEN", "secret"), ("THEIRS", "secret")];
    let (_first, origin) = serve(folder.path(), "first", "", &token);
    for space in ["one", "two"] {
        let answer = ask(&origin, &format!("{space}/append"), &block("there", 1)).await;
        assert_eq!(answer["positions"], json!([1]), "{answer}");
    }
    let replicas = format!(
        "[[log.replicate]]\nlog = \"{origin}/log/one\"\ntoken_env = \"THEIRS\"\n\
         [[log.replicate]]\nlog = \"{origin}/log/two\"\ntoken_env = \"THEIRS\"\nfeeds = [\"there\"]\n\
         [[log.replicate]]\nlog = \"{origin}/log/new\"\ntoken_env = \"THEIRS\"\n"
    );
    let (_second, replica) = serve(folder.path(), "second", &replicas, &token);
    assert_eq!(actors(&replica, "one", 1).await, ["there"]);
    assert_eq!(actors(&replica, "two", 1).await, ["there"]);
    // What is written to the replica comes to the authority, also in a space that is new there.
    for space in ["one", "new"] {
        ask(&replica, &format!("{space}/append"), &block("here", 7)).await;
    }
    assert_eq!(actors(&origin, "one", 2).await, ["there", "here"]);
    assert_eq!(actors(&origin, "new", 1).await, ["here"]);
}

#[test]
fn a_replica_that_makes_no_sense_is_an_error_of_the_configuration() {
    let check = |log: &str, key: &str, problem: &str| {
        let text = format!("namespace = \"com.example\"\n[log]\n{log}");
        let error = feedmill::config::Config::parse(&text)
            .unwrap_err()
            .to_string();
        assert!(error.contains(key) && error.contains(problem), "{error}");
    };
    let replica = |rest: &str| format!("file = \"log.db\"\n[[log.replicate]]\n{rest}");
    check(
        &replica("log = \"nowhere\"\n"),
        "log.replicate",
        "http://host:port/log/space",
    );
    let space = "log = \"http://a/log/s\"\n";
    let twice = format!("{}[[log.replicate]]\n{space}", replica(space));
    check(&twice, "log.replicate", "replicated already");
    check(
        &replica(&format!("{space}tail = true\nfrom = 7\n")),
        "log.replicate",
        "more than one",
    );
    check(
        &format!("[[log.replicate]]\n{space}"),
        "log.replicate",
        "needs log.file",
    );
}
