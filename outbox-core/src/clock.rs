//! Where time comes from: the trait, and a clock for each runtime.

use std::{
    collections::BTreeMap,
    fmt,
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
    time::{Duration, Instant, SystemTime},
};

use futures_util::future::BoxFuture;

/// A source of time that never goes back.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time since a start that stays the same for the life of the clock.
    fn now(&self) -> Duration;

    /// Completes once `time` has passed.
    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()>;

    /// The date at the reading `at`. By default the readings count from 1970.
    fn date(&self, at: Duration) -> SystemTime {
        date_from(SystemTime::UNIX_EPOCH, at)
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Duration {
        (**self).now()
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        (**self).sleep(time)
    }

    fn date(&self, at: Duration) -> SystemTime {
        (**self).date(at)
    }
}

/// A date that no calendar of any platform holds is cut to the year 9999 or so.
fn date_from(start: SystemTime, at: Duration) -> SystemTime {
    const FAR: Duration = Duration::from_secs(253_402_300_799);
    start.checked_add(at).unwrap_or(SystemTime::UNIX_EPOCH + FAR)
}

/// The machine's monotonic clock, with a timer of its own: needs no runtime.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: Instant,
    start_date: SystemTime,
}

impl SystemClock {
    /// A clock that starts at zero now.
    pub fn new() -> Self {
        Self { start: Instant::now(), start_date: SystemTime::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        Box::pin(futures_timer::Delay::new(time))
    }

    fn date(&self, at: Duration) -> SystemTime {
        date_from(self.start_date, at)
    }
}

/// A clock that moves only when told to. Clones are the same clock.
///
/// ```
/// use std::time::Duration;
/// use outbox_core::{Clock, ManualClock};
///
/// let clock = ManualClock::new();
/// clock.advance(Duration::from_secs(3));
/// assert_eq!(clock.now(), Duration::from_secs(3));
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<Mutex<Hands>>);

#[derive(Debug, Default)]
struct Hands {
    now: Duration,
    /// Who sleeps, by when to wake and by the order of lying down.
    sleepers: BTreeMap<(Duration, u64), Option<Waker>>,
    sleeps: u64,
}

impl ManualClock {
    /// A clock that stands at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock on, and wakes who has slept long enough.
    pub fn advance(&self, time: Duration) {
        let woken: Vec<Waker> = {
            let mut hands = self.hands();
            hands.now = hands.now.saturating_add(time);
            let after_now = (hands.now.saturating_add(Duration::from_nanos(1)), 0);
            let later = hands.sleepers.split_off(&after_now);
            let due = std::mem::replace(&mut hands.sleepers, later);
            due.into_values().flatten().collect()
        };
        woken.into_iter().for_each(Waker::wake);
    }

    /// When the next sleeper wakes, on this clock; a simulation advances to it.
    pub fn next_wake(&self) -> Option<Duration> {
        self.hands().sleepers.keys().next().map(|(at, _)| *at)
    }

    fn hands(&self) -> MutexGuard<'_, Hands> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a sleeper out again when its future is dropped.
struct Asleep {
    clock: ManualClock,
    place: (Duration, u64),
}

impl Drop for Asleep {
    fn drop(&mut self) {
        self.clock.hands().sleepers.remove(&self.place);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        self.hands().now
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        let place = {
            let mut hands = self.hands();
            hands.sleeps += 1;
            let place = (hands.now.saturating_add(time), hands.sleeps);
            hands.sleepers.insert(place, None);
            place
        };
        let asleep = Asleep { clock: self.clone(), place };
        Box::pin(poll_fn(move |cx| {
            let mut hands = asleep.clock.hands();
            if hands.now >= asleep.place.0 {
                return Poll::Ready(());
            }
            hands.sleepers.insert(asleep.place, Some(cx.waker().clone()));
            Poll::Pending
        }))
    }
}

/// The clock of the tokio runtime, which tests can pause. Made and used inside a runtime.
#[cfg(any(feature = "relay", feature = "conformance"))]
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    start: tokio::time::Instant,
    start_date: SystemTime,
}

#[cfg(any(feature = "relay", feature = "conformance"))]
impl TokioClock {
    /// A clock that starts at zero now.
    pub fn new() -> Self {
        Self { start: tokio::time::Instant::now(), start_date: SystemTime::now() }
    }
}

#[cfg(any(feature = "relay", feature = "conformance"))]
impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(any(feature = "relay", feature = "conformance"))]
impl Clock for TokioClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(time))
    }

    fn date(&self, at: Duration) -> SystemTime {
        date_from(self.start_date, at)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, future::join};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_sleeper_wakes_when_the_clock_passes_it_and_not_before() {
        let clock = ManualClock::new();
        let mut sleep = clock.sleep(2 * SECOND);
        assert_eq!((&mut sleep).now_or_never(), None);
        assert_eq!(clock.next_wake(), Some(2 * SECOND));
        clock.advance(SECOND);
        assert_eq!((&mut sleep).now_or_never(), None);
        clock.advance(SECOND);
        assert_eq!((&mut sleep).now_or_never(), Some(()));
    }

    #[test]
    fn a_dropped_sleep_leaves_nothing_behind() {
        let clock = ManualClock::new();
        drop(clock.sleep(SECOND));
        assert_eq!(clock.next_wake(), None);
        drop(clock.sleep(Duration::MAX));
    }

    #[tokio::test]
    async fn advancing_wakes_a_task() {
        let clock = ManualClock::new();
        let other = clock.clone();
        join(clock.sleep(SECOND), async move {
            tokio::task::yield_now().await;
            other.advance(SECOND);
        })
        .await;
    }

    #[test]
    fn a_date_beyond_the_calendar_is_cut() {
        assert!(SystemClock::new().date(Duration::MAX) > SystemTime::now());
    }
}
