//! SIGHUP: what can change in a running process does, and what cannot is named.

use std::process::Command;

use sim::network::NetworkOptions;

use crate::bed;
use crate::life::{Home, Life, PATIENCE};

fn hang_up(life: &Life) {
    let pid = life.process().to_string();
    let sent = Command::new("kill").args(["-HUP", &pid]).status();
    assert!(sent.unwrap().success());
}

/// The status with which the operator's part answers a token.
async fn admin(home: &Home, token: &str) -> Option<u16> {
    let url = format!("http://{}/admin/dlq", home.address);
    let asked = reqwest::Client::new().get(url).bearer_auth(token).send();
    Some(asked.await.ok()?.status().as_u16())
}

/// The rate that an address elsewhere is told.
async fn policy(home: &Home) -> Option<String> {
    let url = format!("http://{}/xrpc/com.example.post.listRecords", home.address);
    let asked = reqwest::Client::new()
        .get(url)
        .header("x-real-ip", "192.0.2.7");
    let answer = asked.send().await.ok()?;
    let policy = answer.headers().get("ratelimit-policy")?;
    Some(policy.to_str().ok()?.to_owned())
}

async fn until(life: &Life, mut holds: impl AsyncFnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < PATIENCE, "{:#?}", life.said(""));
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hangup_reloads_tokens_limits_and_logging_and_names_what_needs_a_restart() {
    let network = bed::network(37, NetworkOptions::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "one\n").unwrap();
    let proxied = "[serve]\nproxy_header = \"x-real-ip\"\n";
    let home = Home::new(&network, &[("[serve]\n", proxied)]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_feedmill"));
    command.arg("run").arg(&home.file);
    command.env("FEEDMILL_ADMIN_TOKEN_FILE", &token);
    command.env_remove("RUST_LOG");
    let mut life = Life::of(command);
    home.settled(0, &mut [&mut life]).await.expect("it lives");
    assert_eq!(admin(&home, "one").await, Some(200));
    assert_eq!(admin(&home, "two").await, Some(401));
    assert_eq!(policy(&home).await.as_deref(), Some("3000;w=300"));

    std::fs::write(&token, "two").unwrap();
    let text = std::fs::read_to_string(&home.file).unwrap();
    let changed = text.replacen("[intake]\n", "[intake]\nbatch_max = 7\n", 1);
    assert_ne!(text, changed);
    let limits = "[serve]\nrate_max = 70\nrate_s = 77\n";
    let changed = changed.replacen("[serve]\n", limits, 1);
    std::fs::write(&home.file, format!("logging = \"warn\"\n{changed}")).unwrap();
    hang_up(&life);
    life.says("not reloaded: restart the process").await;
    let named = life
        .said("not reloaded: restart the process")
        .swap_remove(0);
    assert!(
        named.contains("intake.batch_max") && !named.contains("rate_s"),
        "{named}"
    );
    until(&life, async || admin(&home, "two").await == Some(200)).await;
    assert_eq!(admin(&home, "one").await, Some(401));
    assert_eq!(policy(&home).await.as_deref(), Some("70;w=77"));
    // Information is not logged any more, but what is refused is.
    std::fs::write(&home.file, "nonsense").unwrap();
    hang_up(&life);
    life.says("what was in force before still is").await;
    assert_eq!(admin(&home, "two").await, Some(200));
    assert!(
        life.said("reloaded; tokens were read").is_empty(),
        "{:#?}",
        life.said("")
    );
    assert!(life.end().success());
}
