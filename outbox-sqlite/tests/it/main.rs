//! The store on real files: the shared checks, and what SQLite alone can do wrong.

mod conformance;
mod harness;
mod process;
mod processes;
mod sqlite;
