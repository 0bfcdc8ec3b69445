//! Tap: how its channel is asked, and how its messages are acknowledged.
//!
//! In:    an address; then numbers of messages whose transaction is done.
//! Out:   acknowledgements, each after its work is durable.
//! Never: an acknowledgement before the transaction that holds the work; one
//!        over another connection than its message came.
//!
//! A Tap keeps the cursor itself: what is not acknowledged comes again, on this
//! connection after ten seconds or on the next at once. What comes again is
//! recognised by the store. A Tap that starts with nothing kept counts from one
//! again, so a number means something on the connection it came over alone.

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::http::HeaderValue;

use base64::Engine as _;

use crate::clock::Micros;

/// Where the password of a guarded Tap is found in the environment.
const PASSWORD: &str = "TAP_ADMIN_PASSWORD";

/// Where to connect: `ws://host:2480` or with its `/channel`.
pub(super) fn address(url: &str) -> String {
    let url = url.trim_end_matches('/');
    match url.ends_with("/channel") {
        true => url.to_owned(),
        false => format!("{url}/channel"),
    }
}

/// The password of a guarded Tap, where one is set.
pub(super) fn password() -> Option<String> {
    std::env::var(PASSWORD).ok()
}

/// Adds the password.
pub(super) fn authorize(request: &mut Request, password: &str) {
    let pair = base64::engine::general_purpose::STANDARD.encode(format!("admin:{password}"));
    if let Ok(value) = HeaderValue::from_str(&format!("Basic {pair}")) {
        request.headers_mut().insert("authorization", value);
    }
}

/// Numbers of messages that are done, on their way back to the Tap.
#[derive(Debug, Default)]
pub struct Acks {
    line: Mutex<Line>,
    some: Notify,
}

/// The connection that is open, by the time it was opened, and what is done of it.
#[derive(Debug, Default)]
struct Line {
    since_us: Micros,
    done: Vec<i64>,
}

impl Acks {
    /// A connection was opened: what came over an earlier one comes again.
    pub fn begin(&self, since_us: Micros) {
        *self.line.lock() = Line {
            since_us,
            done: Vec::new(),
        };
    }

    /// These are durable, each with the connection it came over.
    pub fn done(&self, told: impl IntoIterator<Item = (Micros, i64)>) {
        let mut line = self.line.lock();
        let since_us = line.since_us;
        let ours = told.into_iter().filter(|(line_us, _)| *line_us == since_us);
        line.done.extend(ours.map(|(_, id)| id));
        if !line.done.is_empty() {
            self.some.notify_one();
        }
    }

    /// Takes what is done by now.
    pub fn done_now(&self) -> Vec<i64> {
        std::mem::take(&mut self.line.lock().done)
    }

    /// Waits until some are, and takes them.
    pub(super) async fn take(&self) -> Vec<i64> {
        loop {
            let taken = self.done_now();
            if !taken.is_empty() {
                return taken;
            }
            self.some.notified().await;
        }
    }
}

/// The acknowledgement of a message.
pub(super) fn ack(id: i64) -> String {
    format!("{{\"type\":\"ack\",\"id\":{id}}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_channel_is_found_at_its_path() {
        assert_eq!(address("ws://tap:2480"), "ws://tap:2480/channel");
        assert_eq!(address("ws://tap:2480/channel/"), "ws://tap:2480/channel");
    }

    #[test]
    fn a_guarded_tap_is_told_the_password() {
        let mut request = Request::new(());
        authorize(&mut request, "secret");
        let said = request.headers().get("authorization").unwrap();
        assert_eq!(said, "Basic YWRtaW46c2VjcmV0");
    }

    #[tokio::test]
    async fn acknowledgements_are_taken_once() {
        let acks = Acks::default();
        acks.begin(7);
        acks.done([(7, 1), (7, 2)]);
        acks.done([(7, 3)]);
        assert_eq!(acks.take().await, [1, 2, 3]);
        acks.done([]);
        let none = tokio::time::timeout(std::time::Duration::from_millis(10), acks.take()).await;
        assert!(none.is_err());
    }

    #[test]
    fn what_came_over_an_earlier_connection_is_not_acknowledged_over_this_one() {
        let acks = Acks::default();
        acks.begin(7);
        acks.done([(7, 1)]);
        acks.begin(8);
        acks.done([(7, 2), (8, 3)]);
        assert_eq!(acks.done_now(), [3]);
    }
}
