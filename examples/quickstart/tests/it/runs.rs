//! The example as a user runs it, crash and all.

use std::process::{Command, Output};

fn quickstart(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_quickstart")).args(args).output().unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn a_run_ends_well_only_when_every_count_is_right() {
    let output = quickstart(&[]);
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    for line in [
        "webhooks sent               5",
        "received and booked         5",
        "refused at first            1",
        "second copies dropped       1",
        "every count is right",
    ] {
        assert!(text.contains(line), "{line:?} is missing in\n{text}");
    }
}

/// A1: a process that dies right after its commit has its webhook sent by the next one.
#[test]
fn what_was_committed_before_a_crash_is_sent_by_the_next_run() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shop.db");
    let file = file.to_str().unwrap();
    let crashed = quickstart(&["--db", file, "--crash"]);
    assert!(!crashed.status.success());
    assert!(text(&crashed).contains("now the process dies"), "{}", text(&crashed));

    let output = quickstart(&["--db", file]);
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 webhooks of an earlier run are pending"), "{text}");
    assert!(text.contains("received and booked         6"), "{text}");
}

#[test]
fn a_call_that_cannot_be_understood_says_how() {
    let output = quickstart(&["--crash"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("usage: quickstart"), "{}", text(&output));
}
