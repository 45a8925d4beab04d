//! The reference store under the conformance suite.

mod store {
    use outbox_core::conformance::MemoryHarness;

    outbox_core::store_conformance!(MemoryHarness::new());
}
