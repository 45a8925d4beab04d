//! The reference store and sink under the conformance suite.

mod store {
    use outbox_core::conformance::MemoryHarness;

    outbox_core::store_conformance!(MemoryHarness::new());
}

mod sink {
    use outbox_core::conformance::MemorySinkHarness;

    outbox_core::sink_conformance!(MemorySinkHarness::new());
}
