//! The parts of the code that are tests, and what must not be in them.

use std::collections::BTreeSet;

use super::lines;
use crate::workspace::SourceFile;

/// Attributes that switch a test off. Written so that this file does not hold them.
const SWITCHED_OFF: &[&str] = &[concat!("#[", "ignore"), concat!("cfg_attr(", "ignore")];

/// Calls that wait in real time unless a test's runtime is paused.
const SLEEPS: &[&str] = &[concat!("thread::", "sleep("), concat!("time::", "sleep(")];

/// What justifies one, on the same line or in the comment right before it.
const WHY: &[&str] = &["real time: ", "virtual time"];

pub(super) fn check(files: &[SourceFile]) -> Vec<String> {
    let tests = TestCode::of(files);
    let mut problems = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        let mut comment = String::new();
        for (number, line) in lines(&file.text) {
            if SWITCHED_OFF.iter().any(|attribute| line.contains(attribute)) {
                problems.push(format!("{}:{number}: a test that does not run", file.path));
            }
            let sleeps = SLEEPS.iter().any(|call| line.contains(call));
            let told = WHY.iter().any(|why| line.contains(why) || comment.contains(why));
            if sleeps && !told && tests.contains(file, number) {
                let why = "a test that sleeps: say why on the line before, as `// real time: why`";
                problems.push(format!("{}:{number}: {why}", file.path));
            }
            match line.trim_start().strip_prefix("//") {
                Some(words) => comment.push_str(words),
                None => comment.clear(),
            }
        }
    }
    problems
}

/// Which lines are test code: files in a `tests` folder, the conformance suite, and modules under `cfg(test)`.
pub(super) struct TestCode {
    modules: BTreeSet<String>,
}

impl TestCode {
    pub(super) fn of(files: &[SourceFile]) -> Self {
        Self { modules: files.iter().flat_map(outlined_modules).collect() }
    }

    pub(super) fn contains(&self, file: &SourceFile, line: usize) -> bool {
        let path = file.path.as_str();
        let in_module = |module: &String| {
            path.strip_prefix(module.as_str()).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        };
        path.contains("/tests/")
            || path.starts_with("outbox-core/src/conformance/")
            || self.modules.iter().any(in_module)
            || inlined_modules(&file.text).iter().any(|(first, last)| (*first..=*last).contains(&line))
    }
}

fn is_for_tests(attribute: &str) -> bool {
    let Some(condition) = attribute.trim_start().strip_prefix("#[cfg(") else {
        return false;
    };
    !condition.contains("not(test") && (condition.starts_with("test)") || condition.starts_with("all(test"))
}

/// The paths, without `.rs`, of the modules that `#[cfg(test)] mod name;` declares.
fn outlined_modules(file: &SourceFile) -> Vec<String> {
    let stem = file.path.trim_end_matches(".rs");
    let folder = match stem.rsplit_once('/') {
        Some((folder, "mod" | "lib" | "main")) => folder,
        _ => stem,
    };
    let texts: Vec<&str> = file.text.lines().collect();
    let name = |pair: &[&str]| {
        let [attribute, declared] = pair else { return None };
        let name = declared.trim_start().trim_start_matches("pub(crate) ").strip_prefix("mod ")?;
        is_for_tests(attribute).then_some(())?;
        Some(format!("{folder}/{}", name.strip_suffix(';')?))
    };
    texts.windows(2).filter_map(name).collect()
}

/// First and last line of each item under `cfg(test)`: formatted code closes it at its own indentation.
fn inlined_modules(text: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in lines(text) {
        if let Some((first, end)) = &open {
            if line == end || (number == first + 1 && line.ends_with(';')) {
                found.push((*first, number));
                open = None;
            }
        } else if is_for_tests(line) {
            let indentation = line.len() - line.trim_start().len();
            open = Some((number, format!("{}}}", " ".repeat(indentation))));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::file;

    #[test]
    fn test_code_is_told_from_the_rest() {
        let text =
            "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n#[cfg(test)]\nmod of_ours;\n";
        let source = file("k/src/lib.rs", text);
        let ours = file("k/src/of_ours/mod.rs", "//! Ours.\n");
        let tests = TestCode::of(&[source.clone(), ours.clone()]);
        let inside: Vec<usize> = (1..=8).filter(|line| tests.contains(&source, *line)).collect();
        assert_eq!(inside, [2, 3, 4, 5, 7, 8]);
        assert!(tests.contains(&ours, 1));
        assert!(tests.contains(&file("k/tests/it/main.rs", ""), 1));
        assert!(tests.contains(&file("outbox-core/src/conformance/store/claim.rs", ""), 1));
        assert!(!tests.contains(&file("k/src/of_ours_not.rs", ""), 1));
        assert!(!is_for_tests("#[cfg(not(test))]") && is_for_tests("#[cfg(all(test, unix))]"));
    }

    #[test]
    fn a_sleep_in_a_test_says_why() {
        let check = |path: &str, line: &str| check(&[file(path, line)]).len();
        let sleep = format!("    std::{}second);\n", SLEEPS[0]);
        assert_eq!(check("k/tests/a.rs", &sleep), 1);
        assert_eq!(check("k/src/a.rs", &sleep), 0);
        let told = format!("    // real time: the server counts\n    // seconds.\n{sleep}");
        assert_eq!(check("k/tests/a.rs", &told), 0);
        assert_eq!(check("k/tests/a.rs", &format!("// real time: it does\nfn a() {{\n{sleep}")), 1);
        assert_eq!(check("k/tests/a.rs", "    clock.sleep(SECOND).await;\n"), 0);
    }

    #[test]
    fn every_test_runs() {
        let text = format!("#[test]\n{}]\nfn a() {{}}\n", SWITCHED_OFF[0]);
        assert_eq!(check(&[file("k/src/a.rs", &text)]).len(), 1);
    }
}
