//! The code that the workspace's README shows, compiled.
#![doc = include_str!("../../../README.md")]
