//! What lies where: the top level, and names that say nothing.

use crate::workspace::SourceFile;

/// The visible entries of the top level. Tool configuration is in dot-files.
const TOP_LEVEL: &[&str] = &[
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "examples",
    "outbox-core",
    "outbox-postgres",
    "outbox-sqlite",
    "sink-http",
    "sink-kafka",
    "sink-nats",
    "sink-smtp",
    "sink-sqs",
    "target",
    "xtask",
];

/// Names under which anything could lie.
const SAY_NOTHING: &[&str] =
    &["common", "helper", "helpers", "manager", "managers", "misc", "types", "util", "utils"];

pub(super) fn check(top_level: &[String], files: &[SourceFile]) -> Vec<String> {
    let visible = top_level.iter().filter(|name| !name.starts_with('.'));
    let strange = visible.filter(|name| !TOP_LEVEL.contains(&name.as_str()));
    let mut problems: Vec<String> =
        strange.map(|name| format!("{name}: has no place at the top level")).collect();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        let mut names = file.path.trim_end_matches(".rs").split('/');
        if let Some(name) = names.find(|name| SAY_NOTHING.contains(name)) {
            problems.push(format!("{}: `{name}` does not say what is in it", file.path));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::file;

    #[test]
    fn the_top_level_holds_what_it_may() {
        let check = |name: &str| check(&[name.to_owned()], &[]).len();
        assert_eq!([check("README.md"), check(".ci"), check("docs")], [0, 0, 1]);
    }

    #[test]
    fn names_say_what_is_there() {
        let check = |path: &str| check(&[], &[file(path, "")]).len();
        assert_eq!(check("sink-http/src/utils.rs"), 1);
        assert_eq!(check("sink-http/tests/common/mod.rs"), 1);
        assert_eq!(check("sink-http/src/common_name.rs"), 0);
        assert_eq!(check("sink-http/common.md"), 0);
    }
}
