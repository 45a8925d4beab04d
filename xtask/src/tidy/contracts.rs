//! The contracts of `outbox-core/CONTRACTS.md` and the checks that show them, held together both ways.

use std::collections::BTreeMap;

use super::lines;
use super::test_code::TestCode;
use crate::workspace::SourceFile;

const CONTRACTS: &str = "outbox-core/CONTRACTS.md";

pub(super) fn check(files: &[SourceFile]) -> Vec<String> {
    let Some(page) = files.iter().find(|file| file.path == CONTRACTS) else {
        return vec![format!("{CONTRACTS}: is missing")];
    };
    let mut problems = Vec::new();
    let mut contracts: BTreeMap<&str, usize> = BTreeMap::new();
    for (number, line) in lines(&page.text) {
        if let Some(contract) = stated(line)
            && contracts.insert(contract, number).is_some()
        {
            problems.push(format!("{CONTRACTS}:{number}: {contract} is stated twice"));
        }
    }
    let tests = TestCode::of(files);
    let mut shown: Vec<&str> = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        for tag in tags(file).into_iter().filter(|tag| tests.contains(file, tag.line)) {
            let at = format!("{}:{}", file.path, tag.line);
            if !tag.on_function {
                problems.push(format!("{at}: a contract is shown by a test, and this is none"));
                continue;
            }
            for contract in tag.contracts {
                if !contracts.contains_key(contract) {
                    problems.push(format!("{at}: {contract} is not in {CONTRACTS}"));
                }
                shown.push(contract);
            }
        }
    }
    for (contract, number) in contracts {
        if !shown.contains(&contract) {
            problems.push(format!("{CONTRACTS}:{number}: no test or conformance check shows {contract}"));
        }
    }
    problems
}

/// The contract that a line like `- **S3** Every mark …` states.
fn stated(line: &str) -> Option<&str> {
    let (contract, _) = line.strip_prefix("- **")?.split_once("**")?;
    is_contract(contract).then_some(contract)
}

fn is_contract(word: &str) -> bool {
    let mut chars = word.chars();
    let letter = chars.next().is_some_and(|char| "ASKR".contains(char));
    letter && !chars.as_str().is_empty() && chars.all(|char| char.is_ascii_digit())
}

struct Tag<'a> {
    line: usize,
    contracts: Vec<&'a str>,
    on_function: bool,
}

/// The doc comments that begin like `/// S3, S6: …`.
fn tags(file: &SourceFile) -> Vec<Tag<'_>> {
    let texts: Vec<&str> = file.text.lines().map(str::trim_start).collect();
    let mut found = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        let begins = index == 0 || !texts[index - 1].starts_with("///");
        let Some(contracts) = begins.then(|| contracts_of(text)).flatten() else {
            continue;
        };
        found.push(Tag { line: index + 1, contracts, on_function: is_on_function(&texts[index..]) });
    }
    found
}

fn contracts_of(doc: &str) -> Option<Vec<&str>> {
    let (words, _) = doc.strip_prefix("/// ")?.split_once(':')?;
    let words: Vec<&str> = words.split(", ").collect();
    words.iter().all(|word| is_contract(word)).then_some(words)
}

/// Whether the first line behind doc comments and attributes declares a function. An attribute of several lines ends at the
/// line that closes it.
fn is_on_function(texts: &[&str]) -> bool {
    let mut in_attribute = false;
    for text in texts {
        if in_attribute {
            in_attribute = !text.ends_with(")]");
        } else if text.starts_with("#[") {
            in_attribute = !text.ends_with(']');
        } else if !text.starts_with("//") {
            return text.split(' ').any(|word| word == "fn");
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::file;

    fn check(page: &str, test: &str, expected: &[&str]) {
        let files = [file(CONTRACTS, page), file("k/tests/it/main.rs", test)];
        let found = super::check(&files);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found}");
        }
    }

    #[test]
    fn each_contract_is_shown_and_each_number_shown_exists() {
        let page = "- **S3** A late mark changes nothing.\n- **S10** Retention is bounded.\n";
        let both = "/// S3, S10: both.\n#[test]\nfn a() {}\n";
        check(page, both, &[]);
        check(page, "/// S3: one.\n#[test]\nfn a() {}\n", &["no test or conformance check shows S10"]);
        check(page, &format!("{both}/// S4: strange.\nfn b() {{}}\n"), &["S4 is not in"]);
        check("- **S3** One.\n- **S3** Two.\n", "/// S3: x.\nfn a() {}\n", &["stated twice"]);
    }

    #[test]
    fn only_a_function_shows_a_contract() {
        let page = "- **S3** One.\n";
        check(page, "/// S3: x.\nstruct A;\n", &["this is none", "shows S3"]);
        check(page, "/// Of S3: x.\nfn a() {}\n", &["shows S3"]);
        check(page, "/// More.\n/// S3: x.\nfn a() {}\n", &["shows S3"]);
        check(page, "/// S3: x.\n/// More.\n#[tokio::test(\n    a = 1,\n)]\nasync fn a() {}\n", &[]);
    }

    #[test]
    fn code_that_is_no_test_shows_nothing() {
        let files = [file(CONTRACTS, "- **K1** One.\n"), file("k/src/lib.rs", "/// K1: x.\nfn a() {}\n")];
        assert_eq!(super::check(&files).len(), 1);
        assert_eq!(super::check(&[]).len(), 1, "a missing page is no pass");
    }
}
