//! Holds the lists of checks and the checks themselves together: one that is not listed is run by nobody.

use std::{fs, path::Path};

use outbox_core::conformance::{sink, store};

/// The checks that stand in the files of a folder, each with the doc line above it.
fn written(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/conformance").join(folder);
    let mut checks = Vec::new();
    for file in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            if let Some(name) = line.strip_prefix("pub async fn ").and_then(|rest| rest.split('<').next()) {
                let doc = lines[..at].iter().rev().take_while(|line| line.starts_with("///")).last();
                checks.push((name.to_owned(), doc.unwrap_or(&"").to_string()));
            }
        }
    }
    checks
}

fn check(folder: &str, listed: &[&str]) {
    let written = written(folder);
    for (name, doc) in &written {
        assert!(listed.contains(&name.as_str()), "{name} is run by nobody");
        let number =
            doc.strip_prefix("/// ").and_then(|doc| doc.split_once(": ")).map_or("", |(number, _)| number);
        let is_contract = number.starts_with(['A', 'S', 'K', 'R']) && number[1..].parse::<u8>().is_ok();
        assert!(is_contract, "{name} does not start with the number of its contract: {doc:?}");
    }
    assert_eq!(written.len(), listed.len(), "a check is listed twice");
}

#[test]
fn every_store_check_is_listed_and_numbered() {
    check("store", store::CHECKS);
}

#[test]
fn every_sink_check_is_listed_and_numbered() {
    check("sink", sink::CHECKS);
}
