//! The page at `/`, driven in a real browser.
//!
//! The script is `tests/peers/page.mjs`; here the real binary is started for
//! it, as a newcomer would, and stopped again.

use crate::peers::{Demo, node};

#[test]
fn a_newcomer_sees_a_living_feed_in_a_browser() {
    let demo = Demo::start(
        &["demo", "--port", "0", "--accounts", "400", "--rate", "60"],
        "  open ",
    );
    let address = demo.word("  open ");
    let shots = tempfile::tempdir().unwrap();
    // FEEDMILL_SHOTS=folder keeps the screenshots for a look.
    let folder =
        std::env::var("FEEDMILL_SHOTS").unwrap_or_else(|_| shots.path().display().to_string());
    let Some(found) = node("page.mjs", &[&address, &folder]) else {
        return;
    };
    assert_eq!(found["console_errors"], 0);
    assert!(found["shown"].as_i64().unwrap() > 30, "{found}");
    demo.stop();
}
