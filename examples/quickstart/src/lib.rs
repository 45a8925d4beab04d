#![doc = include_str!("../README.md")]
//!
//! What follows is the README of the workspace, whose code is compiled here.
#![doc = include_str!("../../../README.md")]
