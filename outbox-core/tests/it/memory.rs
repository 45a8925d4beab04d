//! The reference store and sink under the conformance suite.

mod store {
    use outbox_core::conformance::MemoryHarness;

    outbox_core::store_conformance!(MemoryHarness::new());
}

mod sink {
    use outbox_core::conformance::MemorySinkHarness;

    outbox_core::sink_conformance!(MemorySinkHarness::new());
}

mod own {
    use std::time::Duration;

    use futures_util::{FutureExt, future::join};
    use outbox_core::{Dedup, ManualClock, MemoryStore, NewRecord, Store, StoreErrorKind, Wake};

    const SECOND: Duration = Duration::from_secs(1);

    fn record() -> NewRecord {
        NewRecord::json("a", &1).unwrap()
    }

    #[tokio::test]
    async fn a_commit_wakes_who_waits_and_the_next_who_does() {
        let store = MemoryStore::with_clock(ManualClock::new());
        let enqueue = async || {
            let mut tx = store.begin();
            store.enqueue(&mut tx, record()).await.unwrap();
            tx.commit();
        };
        let (wake, ()) = join(store.wait(SECOND), enqueue()).await;
        assert_eq!(wake.unwrap(), Wake::Hint);
        enqueue().await;
        assert_eq!(store.wait(SECOND).now_or_never().unwrap().unwrap(), Wake::Hint);
        assert!(store.wait(SECOND).now_or_never().is_none(), "a hint is given once");
    }

    #[tokio::test]
    async fn a_wait_that_was_dropped_takes_no_hint_away() {
        let store = MemoryStore::with_clock(ManualClock::new());
        assert!(store.wait(SECOND).now_or_never().is_none());
        store.wake();
        assert_eq!(store.wait(SECOND).now_or_never().unwrap().unwrap(), Wake::Hint);
    }

    #[tokio::test]
    async fn transactions_that_wait_for_each_other_end_in_a_conflict() {
        let store = MemoryStore::new();
        let once = |key: &str| record().dedup(Dedup::new(key));
        let (mut one, mut two) = (store.begin(), store.begin());
        store.enqueue(&mut one, once("x")).await.unwrap();
        store.enqueue(&mut two, once("y")).await.unwrap();
        let first = async {
            let waited = store.enqueue(&mut one, once("y")).await;
            one.commit();
            waited
        };
        let second = async {
            let waited = store.enqueue(&mut two, once("x")).await;
            two.rollback();
            waited
        };
        let (first, second) = join(first, second).await;
        assert_eq!(second.unwrap_err().kind(), StoreErrorKind::Conflict);
        assert!(first.unwrap().is_new(), "the other goes on once it is rolled back");
    }

    #[tokio::test]
    async fn a_transaction_belongs_to_one_outbox() {
        let mut tx = MemoryStore::new().begin();
        let refused = MemoryStore::new().enqueue(&mut tx, record()).await;
        assert_eq!(refused.unwrap_err().kind(), StoreErrorKind::Config);
    }
}
