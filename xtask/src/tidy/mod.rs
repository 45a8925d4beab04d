//! `cargo xtask tidy`: what a compiler does not check.

mod contracts;
mod dependency_rule;
mod layout;
mod manifest;
mod rust_file;
mod test_code;
mod text;

use crate::failure::{Failure, Result};
use crate::workspace::{self, Workspace};

pub(crate) fn run(workspace: &Workspace) -> Result {
    let files = workspace::files(&[".rs", ".md", ".toml", ".sql", ".sh", ".yml"])?;
    let mut problems = layout::check(&workspace::top_level()?, &files);
    problems.extend(contracts::check(&files));
    problems.extend(files.iter().flat_map(text::check));
    problems.extend(rust_file::check(&files));
    problems.extend(test_code::check(&files));
    problems.extend(manifest::check(workspace, &files));
    problems.extend(dependency_rule::check(workspace)?);
    for problem in &problems {
        eprintln!("tidy: {problem}");
    }
    match problems.len() {
        0 => Ok(()),
        count => Err(Failure::new(format!("tidy found {count} problems"))),
    }
}

/// The lines of a text with their numbers, as editors count.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

#[cfg(test)]
fn file(path: &str, text: &str) -> workspace::SourceFile {
    workspace::SourceFile { path: path.into(), text: text.into() }
}
