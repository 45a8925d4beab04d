//! Every text: white space, notes to oneself, and mentions of what readers do not have.

use super::lines;
use crate::workspace::SourceFile;

/// Words in capitals that mark what is not finished. Written so that this file does not hold them.
const UNFINISHED: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];

/// Where the project was worked on, and what only those who did can look up.
const NOT_THERE: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/tmp", "/w/"),
    concat!("issue", " #"),
    concat!("DESIGN", ".md"),
    concat!("DESIGN", " §"),
    concat!("STYLE", ".md"),
    concat!("SERVICES", ".md"),
];

/// Code blocks that would not be compiled.
const NOT_COMPILED: &[&str] = &[concat!("```", "ignore"), concat!("```rust,", "ignore")];

pub(super) fn check(file: &SourceFile) -> Vec<String> {
    let mut problems = Vec::new();
    let mut at = |line: usize, what: String| problems.push(format!("{}:{line}: {what}", file.path));
    for (number, line) in lines(&file.text) {
        if line.contains('\t') {
            at(number, "a tab".into());
        }
        if line.ends_with(char::is_whitespace) {
            at(number, "white space at the end".into());
        }
        if let Some(strange) = line.chars().find(|char| char.is_whitespace() && !char.is_ascii()) {
            at(number, format!("white space that is not a space: U+{:04X}", u32::from(strange)));
        }
        for word in UNFINISHED.iter().filter(|word| has_word(line, word)) {
            at(number, format!("{word}: finish it, or leave it out"));
        }
        for words in NOT_THERE.iter().filter(|words| line.contains(**words)) {
            at(number, format!("`{words}` is nothing that a reader has"));
        }
        if NOT_COMPILED.iter().any(|fence| line.contains(fence)) {
            at(number, "a code block that is not compiled: use no_run or text".into());
        }
    }
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        at(lines(&file.text).count(), "no newline at the end".into());
    }
    problems
}

fn has_word(line: &str, word: &str) -> bool {
    let mut words = line.split(|char: char| !char.is_alphanumeric() && char != '_');
    words.any(|found| found == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let found = super::check(&crate::tidy::file("a.rs", text));
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found}");
        }
    }

    #[test]
    fn text_is_clean() {
        check("//! Ä, – and § are text.\n", &[]);
        check("", &[]);
        check("a \n\tb\nc", &["a.rs:1: white space", "a.rs:2: a tab", "a.rs:3: no newline"]);
        check("a\u{a0}b\n", &["U+00A0"]);
    }

    #[test]
    fn nothing_is_left_for_later() {
        check(&format!("// {}: more\n", UNFINISHED[0]), &["finish it"]);
        check(&format!("mktemp a.{}X\n", UNFINISHED[2]), &[]);
    }

    #[test]
    fn the_project_speaks_of_itself_alone() {
        check(&format!("see {}x and {}2\n", NOT_THERE[0], NOT_THERE[2]), &["reader", "reader"]);
        check("a session of the server, an issue of trust\n", &[]);
        check(&format!("/// {}\n", NOT_COMPILED[0]), &["not compiled"]);
        check("/// ```no_run\n", &[]);
    }
}
