//! Keeps a connection to one address: connects, reports when it is up or down, and tries again with growing, jittered pauses.
//! [`Backoff`], which is pure, decides the pauses.

use crate::{
    error::LinkError,
    identity::ExpectPeer,
    quic::{Connection, Endpoint, LinkHandle},
};
use garrick_frame::LinkKind;
use std::{future::Future, pin::Pin, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep_until};

/// Pauses between attempts: doubling from `first` to `most`, each shortened by a random part of up to a half, so that a
/// thousand nodes do not come back in the same instant.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    failures: u32,
}

impl Default for Backoff {
    /// 0.2 s to 10 s: a restarted controller is found again within moments, and a dead one costs next to nothing.
    fn default() -> Self {
        Self::new(Duration::from_millis(200), Duration::from_secs(10))
    }
}

impl Backoff {
    /// From `first` to `most`.
    pub const fn new(first: Duration, most: Duration) -> Self {
        Self { first, most, failures: 0 }
    }

    /// The next pause. `random` is any random number.
    pub fn next(&mut self, random: u32) -> Duration {
        let full = self.first.saturating_mul(2u32.saturating_pow(self.failures.min(31))).min(self.most);
        self.failures = self.failures.saturating_add(1);
        full.mul_f64(1.0 - 0.5 * f64::from(random) / f64::from(u32::MAX))
    }

    /// An attempt succeeded.
    pub const fn reset(&mut self) {
        self.failures = 0;
    }
}

/// What happened to the connection.
#[derive(Debug)]
pub enum ReconnectEvent {
    /// It is up.
    Up(Box<Connection>),
    /// It went down, or an attempt failed; the next attempt comes after the pause.
    Down {
        /// Why.
        reason: LinkError,
        /// Until the next attempt.
        next_try_in: Duration,
    },
}

/// Keeps one connection.
pub struct Reconnect {
    endpoint: Arc<Endpoint>,
    address: String,
    link: LinkKind,
    program: String,
    expect: ExpectPeer,
    backoff: Backoff,
    state: State,
}

type Dialling = Pin<Box<dyn Future<Output = Result<Connection, LinkError>> + Send>>;

enum State {
    Waiting(Instant),
    Dialling(Dialling),
    Up(LinkHandle, Instant),
}

/// A connection that lasted this long was a good one: the next loss begins with the shortest pause again. One that is
/// lost right after it came up (a peer that refuses its messages) keeps its backoff.
const GOOD_TIME: Duration = Duration::from_secs(10);

impl std::fmt::Debug for Reconnect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reconnect").field("address", &self.address).field("link", &self.link).finish_non_exhaustive()
    }
}

impl Reconnect {
    /// To the expected peer at `address` (`host:port`, looked up at every attempt). The first attempt begins with the first call
    /// of [`Reconnect::next`].
    pub fn new(endpoint: Arc<Endpoint>, address: &str, link: LinkKind, program: &str, expect: ExpectPeer) -> Self {
        Self {
            endpoint,
            address: address.to_owned(),
            link,
            program: program.to_owned(),
            expect,
            backoff: Backoff::default(),
            state: State::Waiting(Instant::now()),
        }
    }

    /// With other pauses.
    #[must_use]
    pub const fn with_backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// The next event. May be dropped and called again without losing an attempt in progress.
    pub async fn next(&mut self) -> ReconnectEvent {
        loop {
            match &mut self.state {
                State::Waiting(until) => {
                    sleep_until(*until).await;
                    let (endpoint, address, link) = (Arc::clone(&self.endpoint), self.address.clone(), self.link);
                    let (program, expect) = (self.program.clone(), self.expect.clone());
                    self.state =
                        State::Dialling(Box::pin(
                            async move { endpoint.connect(&address, link, &program, &expect).await },
                        ));
                }
                State::Dialling(dialling) => match dialling.await {
                    Ok(connection) => {
                        self.state = State::Up(connection.handle(), Instant::now());
                        return ReconnectEvent::Up(Box::new(connection));
                    }
                    Err(reason) => return self.down(reason),
                },
                State::Up(handle, since) => {
                    let reason = handle.closed().await;
                    if since.elapsed() >= GOOD_TIME {
                        self.backoff.reset();
                    }
                    return self.down(reason);
                }
            }
        }
    }

    /// Tries at once instead of after the pause (an admin asks, or the address is known to be back).
    pub fn try_now(&mut self) {
        if let State::Waiting(until) = &mut self.state {
            *until = Instant::now();
        }
    }

    fn down(&mut self, reason: LinkError) -> ReconnectEvent {
        // Without random numbers the pause is the full one, which is no worse.
        let random = crate::identity::signing::random().map_or(0, u32::from_be_bytes);
        let next_try_in = self.backoff.next(random);
        self.state = State::Waiting(Instant::now() + next_try_in);
        ReconnectEvent::Down { reason, next_try_in }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_most_and_start_again_after_success() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        let full: Vec<u128> = (0..6).map(|_| backoff.next(0).as_millis()).collect();
        assert_eq!(full, [100, 200, 400, 800, 1000, 1000]);
        backoff.reset();
        assert_eq!(backoff.next(u32::MAX).as_millis(), 50, "jitter takes up to a half");
        for _ in 0..100 {
            assert!(backoff.next(u32::MAX / 2) <= Duration::from_secs(1));
        }
    }
}
