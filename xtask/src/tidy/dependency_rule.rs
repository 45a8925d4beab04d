//! Who may depend on what: on our own packages, and on those of others.

use std::collections::{BTreeMap, BTreeSet};

use crate::failure::Result;
use crate::run;
use crate::workspace::{Package, Workspace};

/// What plain core must not bring to those who write a store or a sink of their own.
const HEAVY: &[&str] = &[
    "async-std",
    "hyper",
    "openssl-sys",
    "reqwest",
    "ring",
    "rustls",
    "aws-lc-rs",
    "smol",
    "sqlx",
    "sqlx-core",
    "tokio",
    "tracing",
    "metrics",
];

/// What a program that uses SQLite and webhooks alone must not have to build.
const OTHER_TRANSPORTS: &[&str] =
    &["async-nats", "aws-config", "aws-sdk-sqs", "lettre", "rdkafka", "rdkafka-sys", "sqlx-postgres"];

/// Two of one of these would double the build, and what passes between them would not fit.
const ONE_VERSION: &[&str] = &[
    "aws-lc-rs",
    "axum",
    "hyper",
    "reqwest",
    "rustls",
    "serde",
    "sqlx",
    "sqlx-core",
    "tokio",
    "tokio-rustls",
    "uuid",
];

/// One TLS library serves all: rustls with aws-lc-rs.
const OTHER_TLS: &[&str] = &["boring", "mbedtls", "native-tls", "openssl", "openssl-sys", "ring"];

pub(super) fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let mut problems = check_own(&workspace.packages);
    let core = tree(&["-p", "outbox-core", "--no-default-features", "-e", "normal"])?;
    problems.extend(absent("plain outbox-core", &core, HEAVY));
    let small = tree(&["-p", "outbox-sqlite", "-p", "sink-http", "-e", "normal"])?;
    problems.extend(absent("outbox-sqlite with sink-http", &small, OTHER_TRANSPORTS));
    let features = workspace.all_features(&workspace.packages);
    let all = tree(&["--workspace", "--features", &features, "-e", "normal,build,dev"])?;
    problems.extend(absent("the workspace", &all, OTHER_TLS));
    problems.extend(one_version(&all));
    Ok(problems)
}

/// Libraries depend on core alone, core on none of ours, and nothing on examples or on this package. What tests use
/// may be any library.
fn check_own(packages: &[Package]) -> Vec<String> {
    let is_leaf = |package: &Package| package.is_example() || package.name == "xtask";
    let mut problems = Vec::new();
    for package in packages {
        for dependency in &package.dependencies {
            let Some(on) = packages.iter().find(|package| package.name == dependency.name) else {
                continue;
            };
            let of_core = package.name == "outbox-core";
            let on_core = on.name == "outbox-core";
            let for_tests = dependency.for_tests && !of_core;
            let allowed = !is_leaf(on) && (is_leaf(package) || for_tests || (on_core && !of_core));
            if !allowed {
                problems.push(format!("{}: must not depend on {}", package.name, on.name));
            }
        }
    }
    problems
}

/// Names and versions of everything that cargo would build.
fn tree(args: &[&str]) -> Result<BTreeSet<(String, String)>> {
    let mut command = run::cargo(&["tree", "--locked", "--quiet", "--prefix", "none", "--format", "{p}"]);
    Ok(read_tree(&run::read(command.args(args))?))
}

fn read_tree(text: &str) -> BTreeSet<(String, String)> {
    let pair = |line: &str| {
        let mut words = line.split(' ');
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    };
    text.lines().filter_map(pair).collect()
}

fn absent(from: &str, tree: &BTreeSet<(String, String)>, names: &[&str]) -> Vec<String> {
    if tree.is_empty() {
        return vec![format!("{from}: cargo tree shows nothing")];
    }
    let found = tree.iter().filter(|(name, _)| names.contains(&name.as_str()));
    found.map(|(name, version)| format!("{from}: must not bring {name} {version}")).collect()
}

fn one_version(tree: &BTreeSet<(String, String)>) -> Vec<String> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, version) in tree.iter().filter(|(name, _)| ONE_VERSION.contains(&name.as_str())) {
        versions.entry(name).or_default().push(version);
    }
    let several = versions.into_iter().filter(|(_, versions)| versions.len() > 1);
    several.map(|(name, versions)| format!("the workspace: {name} twice: {}", versions.join(", "))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    #[test]
    fn ours_depend_on_core_alone() {
        let check = |folder: &str, on: &str, for_tests: bool, expected: usize| {
            let name = |folder: &str| folder.rsplit('/').next().unwrap_or(folder).to_owned();
            let package = |folder: &str| Package {
                name: name(folder),
                folder: folder.to_owned(),
                ..Package::default()
            };
            let folders = ["outbox-core", "outbox-sqlite", "sink-http", "examples/quickstart", "xtask"];
            let mut packages: Vec<Package> = folders.into_iter().map(package).collect();
            let from = packages.iter_mut().find(|package| package.folder == folder).unwrap();
            from.dependencies = vec![Dependency { name: name(on), for_tests }];
            assert_eq!(check_own(&packages).len(), expected, "{folder} on {on}");
        };
        check("sink-http", "outbox-core", false, 0);
        check("sink-http", "outbox-sqlite", false, 1);
        check("sink-http", "outbox-sqlite", true, 0);
        check("outbox-core", "outbox-sqlite", true, 1);
        check("outbox-core", "outbox-sqlite", false, 1);
        check("examples/quickstart", "sink-http", false, 0);
        check("outbox-sqlite", "examples/quickstart", true, 1);
        check("examples/quickstart", "xtask", false, 1);
        check("sink-http", "serde", false, 0);
    }

    #[test]
    fn what_must_be_absent_is_found_by_its_whole_name() {
        let tree =
            read_tree("k v0.1.0 (/k)\ntokio v1.54.0\ntokio-util v0.7.1 (*)\nserde v1.0.1\nserde v2.0.0\n");
        assert_eq!(absent("k", &tree, &["tokio"]).len(), 1);
        assert_eq!(absent("k", &tree, &["util"]), Vec::<String>::new());
        assert_eq!(absent("k", &BTreeSet::new(), &["util"]).len(), 1, "nothing to look at is no pass");
        assert_eq!(one_version(&tree), ["the workspace: serde twice: v1.0.1, v2.0.0"]);
    }
}
