//! An outbox in memory: the reference that every other store is measured against.
//!
//! It applies the table "The row" of `ARCHITECTURE.md` to the letter, so this is where to read what a contract
//! means. It is also what tests, simulations and benches of applications run on. It holds nothing past the
//! life of the process, so it is no outbox for production.
//!
//! ```
//! use outbox_core::{MemoryStore, NewRecord};
//!
//! # futures_util::FutureExt::now_or_never(async {
//! let outbox = MemoryStore::new();
//! let mut tx = outbox.begin();
//! outbox.enqueue(&mut tx, NewRecord::json("order.placed", &17)?).await?;
//! tx.commit();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).expect("nothing to wait for").expect("enqueued");
//! ```

mod bell;
mod by_hand;
mod claim;
mod lanes;
mod locks;
mod mark;
mod operate;
mod row;
mod sink;
mod stats;
mod store;
mod sweep;
mod table;
mod transaction;

pub use by_hand::{ByHand, SetDue};
pub use sink::{MemorySink, Scripted};
pub use store::MemoryStore;
pub use transaction::MemoryTransaction;
