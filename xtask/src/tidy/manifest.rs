//! What each package must have: inherited settings, dependencies from the workspace's table, a README that is its front page.

use super::lines;
use crate::workspace::{Package, SourceFile, Workspace};

const INHERITED: &[&str] = &["version", "edition", "rust-version", "license", "publish"];

pub(super) fn check(workspace: &Workspace, files: &[SourceFile]) -> Vec<String> {
    let find = |path: &str| files.iter().find(|file| file.path == path);
    let mut problems = Vec::new();
    for package in &workspace.packages {
        match find(&format!("{}/Cargo.toml", package.folder)) {
            Some(manifest) => problems.extend(check_manifest(manifest)),
            None => problems.push(format!("{}: no manifest", package.folder)),
        }
        problems.extend(check_readme(package, find));
    }
    if let Some(manifest) = find("Cargo.toml") {
        problems.extend(check_table(manifest));
    }
    problems
}

/// The README is compiled as the front page of a library's documentation.
fn check_readme<'a>(package: &Package, find: impl Fn(&str) -> Option<&'a SourceFile>) -> Option<String> {
    let path = format!("{}/README.md", package.folder);
    let Some(readme) = find(&path) else {
        return Some(format!("{path}: is missing"));
    };
    if readme.text.lines().next() != Some(format!("# {}", package.name).as_str()) {
        return Some(format!("{path}:1: is not headed `# {}`", package.name));
    }
    let library = format!("{}/src/lib.rs", package.folder);
    let included = "#![doc = include_str!(\"../README.md\")]";
    let includes = |file: &SourceFile| file.text.lines().any(|line| line == included);
    (package.has_library && !find(&library).is_some_and(includes))
        .then(|| format!("{library}: does not include its README: {included}"))
}

fn check_manifest(manifest: &SourceFile) -> Vec<String> {
    let mut missing: Vec<&str> = INHERITED.to_vec();
    let mut lints = false;
    let mut problems = Vec::new();
    let mut section = "";
    for (number, line) in lines(&manifest.text) {
        let mut at = |what: &str| problems.push(format!("{}:{number}: {what}", manifest.path));
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']');
            if section.contains("dependencies.") {
                at("one line a dependency, not a section");
            }
            continue;
        }
        let key = line.split([' ', '=']).next().unwrap_or_default();
        let is_entry = !line.is_empty() && line.starts_with(|char: char| char.is_ascii_alphanumeric());
        if section == "package" {
            missing.retain(|name| key != format!("{name}.workspace"));
        } else if section == "lints" {
            lints |= line == "workspace = true";
        } else if section.ends_with("dependencies") && is_entry {
            let inherits = key.ends_with(".workspace") || line.contains("{ workspace = true");
            if !inherits {
                at("a dependency that is not from the workspace's table");
            }
        }
    }
    let inherits = missing.into_iter().map(|name| format!("{}: no `{name}.workspace = true`", manifest.path));
    problems.extend(inherits);
    if !lints {
        problems.push(format!("{}: does not inherit the lints", manifest.path));
    }
    problems
}

/// Third-party dependencies come without their default features, so that each one wanted is named.
fn check_table(manifest: &SourceFile) -> Vec<String> {
    let mut problems = Vec::new();
    let mut section = "";
    for (number, line) in lines(&manifest.text) {
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']');
        } else if section == "workspace.dependencies"
            && (line.contains("= \"*\"") || line.contains("git = ") || line.contains("version = \"*\""))
        {
            problems.push(format!("{}:{number}: a dependency without a version", manifest.path));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::file;

    const GOOD: &str = "[package]\nname = \"k\"\nversion.workspace = true\nedition.workspace = true\n\
        rust-version.workspace = true\nlicense.workspace = true\npublish.workspace = true\n\n\
        [dependencies]\n# Why.\na.workspace = true\nb = { workspace = true, features = [\n  \"x\",\n] }\n\n\
        [lints]\nworkspace = true\n";

    #[test]
    fn a_member_takes_from_the_workspace() {
        let check = |text: &str| check_manifest(&file("k/Cargo.toml", text)).len();
        assert_eq!(check(GOOD), 0);
        assert_eq!(check(&GOOD.replace("license.workspace = true", "license = \"MIT\"")), 1);
        assert_eq!(check(&GOOD.replace("[lints]", "[other]")), 1);
        assert_eq!(check(&GOOD.replace("a.workspace = true", "a = \"1\"")), 1);
        assert_eq!(check(&GOOD.replace("a.workspace = true", "[dependencies.a]\nversion = \"1\"")), 1);
        let for_unix = GOOD.replace("[dependencies]", "[target.'cfg(unix)'.dev-dependencies]\nc = \"2\"");
        assert_eq!(check(&for_unix), 1);
    }

    #[test]
    fn a_readme_is_the_front_page() {
        let readme = file("k/README.md", "# k\n");
        let package =
            Package { name: "k".into(), folder: "k".into(), has_library: true, ..Package::default() };
        let check = |files: &[SourceFile]| {
            check_readme(&package, |path| files.iter().find(|file| file.path == path)).is_none()
        };
        let with = file("k/src/lib.rs", "#![doc = include_str!(\"../README.md\")]\n");
        assert!(check(&[readme.clone(), with.clone()]));
        assert!(!check(std::slice::from_ref(&with)));
        assert!(!check(&[file("k/README.md", "# other\n"), with]));
        assert!(!check(&[readme, file("k/src/lib.rs", "//! K.\n")]));
    }

    #[test]
    fn a_dependency_has_a_version() {
        let check =
            |line: &str| check_table(&file("Cargo.toml", &format!("[workspace.dependencies]\n{line}\n")));
        assert!(check("a = \"1.2\"").is_empty());
        assert_eq!(check("a = \"*\"").len(), 1);
        assert_eq!(check("a = { git = \"https://example.test/a\" }").len(), 1);
    }
}
