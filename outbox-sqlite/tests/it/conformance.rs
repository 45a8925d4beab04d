//! Every check that all stores must pass.

outbox_core::store_conformance!(crate::harness::Files::new());
