//! Real processes and real signals: an application that is killed, relays that are killed, relays side by side.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use outbox_core::{
    NewRecord, OnDead, Receipt, Record, SendContext, SendError, Sink, State, async_trait,
    relay::{Relay, Route},
};
use outbox_sqlite::{SqliteConfig, SqliteStore};
use sink_http::{HttpConfig, HttpSink};

use crate::receiver::{Arrived, enqueue, is_done, outbox, stats, until, with_state};

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
            "fragile" => {
                let route = Route::to(Fragile(file.clone())).attempts_max(1).on_dead(OnDead::Skip);
                Relay::new(outbox).route("*", route).run(std::future::pending()).await.unwrap();
            }
            other => panic!("no role {other}"),
        }
    });
}

/// A sink with a bug: one kind of record takes the whole process down.
struct Fragile(String);

#[async_trait]
impl Sink for Fragile {
    async fn send(&self, record: &Record, _: &SendContext) -> Result<Receipt, SendError> {
        if record.kind == "order.fatal" {
            std::process::abort();
        }
        // real time: several are under way when one is fatal.
        tokio::time::sleep(Duration::from_millis(5)).await;
        Ok(Receipt::new(&self.0))
    }
}

/// A child process that is killed when the test lets go of it.
struct Process(Child);

impl Process {
    fn start(role: &str, file: &Path, url: &str) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["processes::child", "--exact", "--nocapture"])
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

/// R9: a record that aborts the process each time, among five hundred good ones, with `attempts_max` at its lowest:
/// only it dies, by its lapses; every good one is sent; its key goes on.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_record_that_aborts_its_process_dies() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shop.db");
    let outbox = outbox(&file).await;
    enqueue(&outbox, 250).await;
    let mut tx = outbox.pool().begin().await.unwrap();
    let fatal = NewRecord::json("order.fatal", &0).unwrap().key("k");
    let fatal = outbox.enqueue(&mut tx, fatal).await.unwrap().id();
    outbox.enqueue(&mut tx, NewRecord::json("order.placed", &0).unwrap().key("k")).await.unwrap();
    tx.commit().await.unwrap();
    enqueue(&outbox, 250).await;

    let mut aborts = 0;
    let mut relay = Process::start("fragile", &file, "");
    until("all settled", Duration::from_secs(60), async || {
        if relay.0.try_wait().unwrap().is_some() {
            aborts += 1;
            relay = Process::start("fragile", &file, "");
        }
        is_done(&outbox).await
    })
    .await;
    let dead = with_state(&outbox, State::Dead).await;
    assert_eq!(dead.iter().map(|view| view.id).collect::<Vec<_>>(), [fatal]);
    assert!(dead[0].last_error.as_deref().unwrap().contains("dead or silent relay"));
    assert_eq!((aborts, stats(&outbox).await.sent.value), (5, 501));
}
