//! Real processes and real signals: an application that is killed, relays that are killed, relays side by side.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and children talk to it"
)]

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use outbox_core::{NewRecord, Stats, Store, Uuid, relay::Relay};
use outbox_sqlite::{SqliteConfig, SqliteStore};
use sink_http::{HttpConfig, HttpSink};

const ROLE: &str = "PROCESSES_ROLE";
const FILE: &str = "PROCESSES_FILE";
const URL: &str = "PROCESSES_URL";

/// Not a test of its own: what the children of the others run.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let file = std::env::var(FILE).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let outbox = SqliteStore::connect(&file, SqliteConfig::new()).await.unwrap();
        match role.as_str() {
            "application" => {
                let mut tx = outbox.pool().begin().await.unwrap();
                outbox.enqueue(&mut tx, NewRecord::json("order.placed", &17).unwrap()).await.unwrap();
                tx.commit().await.unwrap();
                println!("committed");
                std::io::stdout().flush().unwrap();
                std::future::pending().await
            }
            "relay" => {
                let url = std::env::var(URL).unwrap();
                let config = HttpConfig::to(url).with_plain_http().with_loopback();
                let sink = HttpSink::connect(config).unwrap();
                Relay::new(outbox).route("*", sink).run(std::future::pending()).await.unwrap();
            }
            other => panic!("no role {other}"),
        }
    });
}

/// A child process that is killed when the test lets go of it.
struct Process(Child);

impl Process {
    fn start(role: &str, file: &Path, url: &str) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["child", "--exact", "--nocapture"])
            .env(ROLE, role)
            .env(FILE, file)
            .env(URL, url)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// Reads until the child says this.
    fn wait_for(&mut self, word: &str) {
        let lines = BufReader::new(self.0.stdout.take().unwrap()).lines();
        // The test runner begins its own lines without a newline.
        let said = lines.map(Result::unwrap).any(|line| line.ends_with(word));
        assert!(said, "the child ended without a word");
    }

    /// SIGKILL.
    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What has arrived, by id, and whether answers are held back.
#[derive(Clone, Default)]
struct Arrived {
    copies: Arc<Mutex<HashMap<Uuid, usize>>>,
    holds_answers: Arc<std::sync::atomic::AtomicBool>,
}

impl Arrived {
    async fn listen(&self) -> String {
        async fn receive(State(arrived): State<Arrived>, headers: HeaderMap) -> StatusCode {
            let id = headers.get("webhook-id").unwrap().to_str().unwrap().parse().unwrap();
            *arrived.copies.lock().unwrap().entry(id).or_default() += 1;
            if arrived.holds_answers.load(std::sync::atomic::Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            StatusCode::NO_CONTENT
        }
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let app = Router::new().route("/", post(receive)).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        url
    }

    fn hold_answers(&self, hold: bool) {
        self.holds_answers.store(hold, std::sync::atomic::Ordering::Relaxed);
    }

    fn ids(&self) -> usize {
        self.copies.lock().unwrap().len()
    }

    fn second_copies(&self) -> usize {
        self.copies.lock().unwrap().values().map(|copies| copies - 1).sum()
    }
}

async fn until(what: &str, time: Duration, mut test: impl AsyncFnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !test().await {
        assert!(begun.elapsed() < time, "{what}: not within {time:?}");
        // real time: other processes work.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    begun.elapsed()
}

async fn outbox(file: &Path) -> SqliteStore {
    let outbox = SqliteStore::connect(file, SqliteConfig::new()).await.unwrap();
    outbox.migrate().await.unwrap();
    outbox
}

async fn enqueue(outbox: &SqliteStore, records: usize) {
    let mut tx = outbox.pool().begin().await.unwrap();
    let records: Vec<_> = (0..records).map(|n| NewRecord::json("order.placed", &n).unwrap()).collect();
    for batch in records.chunks(1_000) {
        outbox.enqueue_all(&mut tx, batch).await.unwrap();
    }
    tx.commit().await.unwrap();
}

async fn stats(outbox: &SqliteStore) -> Stats {
    outbox.stats(&[]).await.unwrap()
}

async fn is_done(outbox: &SqliteStore) -> bool {
    let stats = stats(outbox).await;
    stats.pending.value + stats.claimed.value == 0
}

/// A1: SIGKILL right after the commit; on restart the pending webhook is sent, once.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_committed_before_a_kill_is_sent_after_the_restart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shop.db");
    let outbox = outbox(&file).await;
    let mut application = Process::start("application", &file, "");
    application.wait_for("committed");
    application.kill();

    let arrived = Arrived::default();
    let url = arrived.listen().await;
    let _relay = Process::start("relay", &file, &url);
    until("sent", Duration::from_secs(10), async || is_done(&outbox).await).await;
    assert_eq!((arrived.ids(), arrived.second_copies()), (1, 0));
    assert_eq!(stats(&outbox).await.sent.value, 1);
}

/// S2: two relays at once on one file, twenty thousand records: none is sent by both, none is lost, and neither
/// relay is idle.
#[tokio::test(flavor = "multi_thread")]
async fn two_relays_on_one_file_never_send_the_same_record() {
    const RECORDS: usize = 20_000;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shop.db");
    let outbox = outbox(&file).await;
    enqueue(&outbox, RECORDS).await;
    let (first, second) = (Arrived::default(), Arrived::default());
    let (one, two) = (first.listen().await, second.listen().await);
    let _relays = [Process::start("relay", &file, &one), Process::start("relay", &file, &two)];
    until("all sent", Duration::from_secs(120), async || is_done(&outbox).await).await;
    let (by_first, by_second) = (first.ids(), second.ids());
    assert_eq!((first.second_copies(), second.second_copies()), (0, 0));
    let both = first
        .copies
        .lock()
        .unwrap()
        .keys()
        .filter(|id| second.copies.lock().unwrap().contains_key(id))
        .count();
    assert_eq!((both, by_first + by_second), (0, RECORDS));
    assert!(by_first > RECORDS / 20 && by_second > RECORDS / 20, "{by_first} and {by_second}");
}

/// R8: a relay is killed in the middle and another started at once: everything is sent within 15 s of a kill, and
/// only what was in flight can have gone out twice.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_kill_in_the_middle_everything_is_sent() {
    const RECORDS: usize = 5_000;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shop.db");
    let outbox = outbox(&file).await;
    enqueue(&outbox, RECORDS).await;
    let arrived = Arrived::default();
    let url = arrived.listen().await;
    let relay = Process::start("relay", &file, &url);
    until("a part sent", Duration::from_secs(30), async || arrived.ids() > 1_000).await;
    relay.kill();
    let _relay = Process::start("relay", &file, &url);
    until("all sent", Duration::from_secs(30), async || is_done(&outbox).await).await;
    assert_eq!(arrived.ids(), RECORDS);
    // The most that one relay holds.
    assert!(arrived.second_copies() <= 4_064, "{} second copies", arrived.second_copies());
    assert_eq!(stats(&outbox).await.dead.value, 0);
}

/// R8: SIGKILL between send and mark: sent again under the same id, within 3 s, since the store sees the death.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_send_and_mark_sends_again_under_the_same_id() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shop.db");
    let outbox = outbox(&file).await;
    enqueue(&outbox, 1).await;
    let arrived = Arrived::default();
    let url = arrived.listen().await;
    arrived.hold_answers(true);
    let relay = Process::start("relay", &file, &url);
    until("sent", Duration::from_secs(10), async || arrived.ids() == 1).await;
    arrived.hold_answers(false);
    relay.kill();
    let _relay = Process::start("relay", &file, &url);
    until("sent again", Duration::from_secs(4), async || is_done(&outbox).await).await;
    assert_eq!((arrived.ids(), arrived.second_copies()), (1, 1));
}
