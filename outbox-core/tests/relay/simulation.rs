//! Whole runs from a seed: relays that come and go, sinks that fail in every way, and the promises checked at
//! the end. A failing seed replays the same run.

use std::{
    collections::HashMap,
    num::NonZeroU32,
    ops::RangeInclusive,
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use outbox_core::{
    Backoff, ErrorScope, OnDead, Operate, PauseScope, SendError, State,
    relay::{RateLimit, Relay, Route},
};

use crate::{shaky::Shaky, world::*};

const RECORDS: usize = 400;

fn misbehaving(seed: u64) -> TestSink {
    let random = Mutex::new(fastrand::Rng::with_seed(seed));
    TestSink::new(move |_| {
        let mut random = random.lock().unwrap();
        let time = random.u32(0..200) * MILLI;
        match random.u32(0..100) {
            0..70 => Do::Accept(time),
            70..80 => Do::Fail(time, SendError::transient("odd")),
            80..84 => Do::Fail(time, SendError::unavailable("down")),
            84..86 => Do::Fail(time, SendError::unavailable("all down").with_scope(ErrorScope::Sink)),
            86..88 => Do::Fail(time, SendError::throttled("slow down").with_retry_after(time)),
            88..90 => Do::Hang,
            90..92 => Do::Panic("bug"),
            92..94 => Do::Forget,
            94 => Do::Fail(time, SendError::permanent("no")),
            _ => Do::Accept(Duration::ZERO),
        }
    })
}

async fn run(seed: u64, failing: u32) {
    let mut random = fastrand::Rng::with_seed(seed);
    let store = outbox();
    let mut sink = misbehaving(seed);
    if random.bool() {
        sink = sink.in_batches(random.usize(2..20));
    }
    let shaky = Shaky::new(&store, seed, failing);
    let mut route = Route::to_shared(Arc::new(sink.clone()))
        .attempts_max(40)
        .on_dead(OnDead::Skip)
        .concurrency(random.usize(1..30))
        .backoff(Backoff::new(100 * MILLI, 2 * SECOND));
    if failing > 0 && random.bool() {
        let limit = RateLimit::per_second(NonZeroU32::new(random.u32(5..100)).unwrap());
        route = route.destination_rate_limit(limit);
    }
    let lease_for = random.u32(1..6) * SECOND;
    let config = config()
        .with_lease_for(lease_for)
        .with_send_timeout(lease_for / 2)
        .with_breaker(Backoff::new(50 * MILLI, SECOND))
        .with_grace(if failing > 0 { random.u32(0..2_000) * MILLI } else { 2 * SECOND });
    // Two routes share a sink.
    let relay = |seed| {
        let relay = Relay::new(shaky.clone()).config(config.clone()).seed(seed);
        start(relay.route("*", route.clone()).route("b.x", route.clone()))
    };
    let mut relays: Vec<Running> = (0..random.u64(1..4)).map(relay).collect();

    let mut enqueued = 0;
    let mut next_seed = 100;
    while enqueued < RECORDS {
        let mut batch = Vec::new();
        for _ in 0..random.usize(1..40).min(RECORDS - enqueued) {
            let mut new = record(["a", "b.x", "b.y"][random.usize(0..3)]);
            if random.bool() {
                new = new.key(format!("k{}", random.u32(0..6)));
            }
            if random.bool() {
                new = new.destination(format!("d{}", random.u32(0..4)));
            }
            if failing > 0 && random.u32(0..10) == 0 {
                new = new.delay(random.u32(0..5_000) * MILLI).hold_key();
            }
            batch.push(new);
        }
        enqueued += batch.len();
        enqueue(&store, batch).await;
        pass(random.u32(0..1_000) * MILLI).await;
        match random.u32(0..10) {
            0 => {
                let at = random.usize(0..relays.len());
                relays.swap_remove(at).kill().await;
                relays.push(relay(next_seed));
                next_seed += 1;
            }
            1 => {
                let at = random.usize(0..relays.len());
                relays.swap_remove(at).stop().await.unwrap();
                relays.push(relay(next_seed));
                next_seed += 1;
            }
            2 => {
                let scope = PauseScope::Destination("d1".into());
                store.pause(&scope, "seeded").await.unwrap();
                pass(random.u32(0..3_000) * MILLI).await;
                store.resume(&scope).await.unwrap();
            }
            3 if failing > 0 => {
                shaky.away.store(true, Ordering::Relaxed);
                pass(random.u32(0..8_000) * MILLI).await;
                shaky.away.store(false, Ordering::Relaxed);
            }
            4 if failing > 0 => {
                shaky.seen.store(false, Ordering::Relaxed);
                pass(random.u32(0..3_000) * MILLI).await;
                shaky.seen.store(true, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    let over = within(1_200 * SECOND, async || {
        count(&store, State::Sent).await + count(&store, State::Dead).await == RECORDS
    })
    .await;
    let left = in_state(&store, State::Pending).await;
    assert!(over, "seed {seed}: stuck, {} pending, the first {:?}", left.len(), left.first());

    // A1: nothing is lost: what is marked sent was accepted, and what is dead was handed over.
    let log = sink.log();
    let copies = sink.copies();
    for view in in_state(&store, State::Sent).await {
        assert!(copies.contains_key(&view.id), "seed {seed}: {} is sent and never arrived", view.seq);
    }
    for view in in_state(&store, State::Dead).await {
        assert!(log.iter().any(|sent| sent.id == view.id), "seed {seed}: {} died unsent", view.seq);
        assert!(view.lapses < 5, "seed {seed}: {} died by lapses", view.seq);
    }
    // S7: no record of a key is begun before an earlier one that was begun before it has ended for good.
    let mut furthest: HashMap<&str, i64> = HashMap::new();
    let mut first_begun: HashMap<i64, usize> = HashMap::new();
    for (place, sent) in log.iter().enumerate() {
        let Some(key) = sent.key.as_deref() else { continue };
        let fresh = first_begun.insert(sent.seq, place).is_none();
        let furthest = furthest.entry(key).or_default();
        if fresh {
            assert!(sent.seq > *furthest, "seed {seed}: {} of {key} begun after {furthest}", sent.seq);
            *furthest = sent.seq;
        } else if failing == 0 {
            // What is sent while its outcome cannot be written goes again, and later ones may have gone.
            assert_eq!(sent.seq, *furthest, "seed {seed}: {} of {key} again after {furthest}", sent.seq);
        }
    }
    for relay in relays {
        relay.stop().await.unwrap();
    }
    assert_eq!(count(&store, State::Claimed).await, 0, "seed {seed}");
}

/// A1, S7, R1, R4, R5, R7: they are kept as well on a store that is slow, away at times, and loses answers.
#[test]
fn every_seed_keeps_the_promises_on_a_shaky_store() {
    play(1..=25, 4);
}

/// A1, S2, S7, R1, R2, R5, R8: every seed keeps the promises.
#[test]
fn every_seed_keeps_the_promises() {
    play(1..=60, 0);
}

fn play(seeds: RangeInclusive<u64>, failing: u32) {
    let seeds = match std::env::var("OUTBOX_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..=seed,
        None => seeds,
    };
    // A panic in a sink is part of the play.
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref::<&str>() != Some(&"bug")
            && info.payload().downcast_ref::<String>().is_none_or(|text| text != "bug")
        {
            told(info);
        }
    }));
    for seed in seeds {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(run(seed, failing));
    }
}
