//! Gathering: the next frame of a channel, or the end of the time for it.
//!
//! In:    a channel that async code fills, and a moment.
//! Out:   a frame as soon as there is one, on a plain thread.
//! Never: a look at the channel while nothing was sent and the moment has not come.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Instant;

use tokio::sync::mpsc;

/// Wakes the thread that gathers.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The next frame; `None` when the channel has ended or `deadline` is over.
pub(super) fn next_before<T>(frames: &mut mpsc::Receiver<T>, deadline: Instant) -> Option<T> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(frame) = frames.poll_recv(&mut context) {
            return frame;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        std::thread::park_timeout(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_frame_that_comes_later_ends_the_wait() {
        let (sender, mut frames) = mpsc::channel(1);
        let far = Instant::now() + Duration::from_secs(600);
        let sending = std::thread::spawn(move || {
            for n in 0..1000 {
                sender.blocking_send(n).unwrap();
            }
        });
        for n in 0..1000 {
            assert_eq!(next_before(&mut frames, far), Some(n));
        }
        sending.join().unwrap();
        assert_eq!(next_before(&mut frames, far), None, "the channel has ended");
    }

    #[test]
    fn a_deadline_that_is_over_ends_the_wait() {
        let (_sender, mut frames) = mpsc::channel::<u8>(1);
        assert_eq!(next_before(&mut frames, Instant::now()), None);
    }
}
