//! An order and its webhook leave together.
fn main() {}
