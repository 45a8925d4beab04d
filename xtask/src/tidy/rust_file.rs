//! The shape of a Rust file: it opens by saying what it owns, and holds one idea.

use crate::workspace::SourceFile;

const LINES_MAX: usize = 600;

/// Files that are longer, each with a reason to be.
const LONGER: &[&str] = &[];

pub(super) fn check(files: &[SourceFile]) -> Vec<String> {
    check_but(files, LONGER)
}

fn check_but(files: &[SourceFile], longer: &[&str]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        let opening = file.text.lines().next().unwrap_or_default();
        if !opening.starts_with("//! ") && !opening.starts_with("#![doc = include_str!(") {
            problems.push(format!("{}:1: does not open with a `//!` line that says what it owns", file.path));
        }
        let count = file.text.lines().count();
        if count > LINES_MAX && !longer.contains(&file.path.as_str()) {
            problems.push(format!("{}: {count} lines, more than {LINES_MAX}", file.path));
        }
    }
    for path in longer {
        let found = files.iter().find(|file| file.path == *path);
        if found.is_none_or(|file| file.text.lines().count() <= LINES_MAX) {
            problems.push(format!("{path}: is allowed to be long and is not"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::file;

    #[test]
    fn a_file_says_first_what_it_owns() {
        let check = |text: &str| check_but(&[file("a.rs", text)], &[]).len();
        assert_eq!(check("//! The lease.\n"), 0);
        assert_eq!(check("#![doc = include_str!(\"../README.md\")]\n"), 0);
        assert_eq!(check("use std::fmt;\n//! The lease.\n"), 1);
        assert_eq!(check(""), 1);
    }

    #[test]
    fn a_long_file_is_named_and_a_short_one_is_not() {
        let of = |count: usize| file("a.rs", &"//! A line.\n".repeat(count));
        let check = |count: usize, longer: &[&str]| check_but(&[of(count)], longer).len();
        assert_eq!([check(600, &[]), check(601, &[]), check(601, &["a.rs"])], [0, 1, 0]);
        assert_eq!([check(600, &["a.rs"]), check(600, &["gone.rs"])], [1, 1]);
    }
}
