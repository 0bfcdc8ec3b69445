//! A link: one connection after the other, for ever.
//!
//! In:    something that connects and reads until that ends.
//! Out:   a pause, and the next connection.
//! Never: an end without a word in the log; a pause that outlasts the wish to stop.

use std::time::Duration;

use tokio::sync::watch;
use tracing::warn;

use crate::config::Intake;
use crate::pause::{Pauses, chance};
use crate::status::SourceState;

/// What is connected again and again.
pub(super) trait Link: Send {
    /// Why a connection ended.
    type Ended: std::error::Error + Send + Sync + 'static;

    /// Connects, and reads until that ends. Pauses begin anew whenever something was read.
    fn read(&mut self, pauses: &mut Pauses) -> impl Future<Output = Self::Ended> + Send;

    /// Whether nobody wants what is read any more.
    fn is_over(ended: &Self::Ended) -> bool;

    /// The source's name, and the address that was read last.
    fn place(&self) -> (&str, &str);
}

/// Reads until `stop` is set. Every end but that is followed by a pause and a new connection.
pub(super) async fn read_for_ever<L: Link>(
    mut link: L,
    intake: &Intake,
    state: &SourceState,
    mut stop: watch::Receiver<bool>,
) {
    let mut pauses = Pauses::new(
        Duration::from_millis(intake.reconnect_ms),
        Duration::from_millis(intake.reconnect_ms_max),
    );
    while !*stop.borrow() {
        state.attempt();
        let ended = tokio::select! {
            ended = link.read(&mut pauses) => ended,
            _ = stop.changed() => break,
        };
        let error = crate::check::chain(&ended);
        state.lose(error.clone());
        if L::is_over(&ended) {
            return;
        }
        let pause = pauses.next(chance());
        let (source, url) = link.place();
        warn!(
            source,
            url,
            error,
            pause_ms = pause.as_millis() as u64,
            "stream ended"
        );
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = stop.changed() => break,
        }
    }
}
