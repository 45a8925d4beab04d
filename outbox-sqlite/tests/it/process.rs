//! Other processes on the same file: this test binary, run again as a child.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use outbox_core::{ClaimRequest, Mark, NewRecord, Owner, Pattern, Record, RouteDemand, Settlement, Store};
use outbox_sqlite::{SqliteConfig, SqliteStore};

const ROLE: &str = "OUTBOX_TEST_ROLE";
const FILE: &str = "OUTBOX_TEST_FILE";

/// What a child does; its output says what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Writes 50 records, each in a transaction with a change of its own.
    Write,
    /// Claims and marks until nothing is left, and prints the ids.
    Relay,
    /// Claims what there is and stays until it is killed.
    Hold,
    /// Commits one record and dies on the spot.
    Abort,
    /// Opens the file, which brings its tables up to date.
    Open,
}

const ROLES: [Role; 5] = [Role::Write, Role::Relay, Role::Hold, Role::Abort, Role::Open];

/// Starts a child in this role on this file.
pub(crate) fn start(role: Role, file: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "process::as_a_child", "--nocapture", "--test-threads=1"])
        .env(ROLE, format!("{role:?}"))
        .env(FILE, file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What a child printed between its marks, once it has ended well.
pub(crate) fn ended(child: Child) -> Vec<String> {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "a child failed: {text}\n{errors}");
    said(&text)
}

pub(crate) fn said(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.rsplit_once("child: ")).map(|(_, said)| said.to_owned()).collect()
}

/// The children's own entry. Alone it has nothing to do.
#[test]
fn as_a_child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let role = ROLES.into_iter().find(|known| format!("{known:?}") == role).expect("a known role");
    let file = std::env::var(FILE).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(act(role, Path::new(&file)));
}

async fn act(role: Role, file: &Path) {
    let store = SqliteStore::connect(file, SqliteConfig::new()).await.unwrap();
    let owner = Owner::from_random(std::process::id().into());
    match role {
        Role::Open => {}
        Role::Write => {
            for n in 0..50 {
                enqueue(&store, NewRecord::json("order.placed", &n).unwrap()).await;
            }
        }
        Role::Relay => loop {
            let taken = take(&store, owner, Duration::from_secs(600), 100).await;
            if taken.is_empty() {
                break;
            }
            end(&store, &taken).await;
            for record in &taken {
                println!("child: {}", record.id);
            }
        },
        Role::Hold => {
            let run = store.enter(owner).await.unwrap();
            let taken = take(&store, owner, Duration::from_secs(600), 100).await;
            println!("child: holds {}", taken.len());
            // real time: the parent kills it.
            tokio::time::sleep(Duration::from_secs(600)).await;
            drop(run);
        }
        Role::Abort => {
            let id = enqueue(&store, NewRecord::json("order.placed", &1).unwrap()).await;
            println!("child: {id}");
            std::process::abort();
        }
    }
}

/// Commits a record together with a row of the application's.
pub(crate) async fn enqueue(store: &SqliteStore, record: NewRecord) -> outbox_core::Uuid {
    let mut transaction = store.pool().begin().await.unwrap();
    let enqueued = store.enqueue(&mut transaction, record).await.unwrap();
    let table = "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, note TEXT)";
    sqlx::query(table).execute(&mut *transaction).await.unwrap();
    sqlx::query("INSERT INTO orders (note) VALUES ('placed')").execute(&mut *transaction).await.unwrap();
    transaction.commit().await.unwrap();
    enqueued.id()
}

pub(crate) async fn take(
    store: &SqliteStore,
    owner: Owner,
    lease_for: Duration,
    limit: usize,
) -> Vec<Record> {
    let routes = vec![RouteDemand::new(Pattern::Default, limit)];
    store.claim(&ClaimRequest::new(owner, lease_for, limit, routes)).await.unwrap().records
}

pub(crate) async fn end(store: &SqliteStore, records: &[Record]) {
    let marks: Vec<Mark> =
        records.iter().map(|record| Mark::new(record.lease(), Settlement::Sent { receipt: None })).collect();
    assert_eq!(store.mark(&marks).await.unwrap().lost(), 0);
}
