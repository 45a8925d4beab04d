//! `cargo xtask test`: every test of the workspace, doc tests included, with the services that they need.

use std::collections::BTreeSet;

use crate::failure::{Failure, Result};
use crate::run;
use crate::services::{self, Service};
use crate::workspace::{self, Package, Workspace};

/// Set when every test must run: one whose service is missing then fails, and does not skip.
const REQUIRE: &str = "OUTBOX_TEST_REQUIRE_SERVICES";

pub(crate) fn run(workspace: &Workspace, args: &[&str]) -> Result {
    let (without, args) = split_without(args)?;
    let packages = selected(workspace, args)?;
    let needed: Vec<&Service> =
        needed_by(&packages)?.into_iter().filter(|service| !without.contains(service.name)).collect();
    let held = services::Held::start(&needed)?;

    let mut command = run::cargo(&["test", "--locked", "--no-fail-fast"]);
    if packages.len() == workspace.packages.len() {
        command.arg("--workspace");
    }
    let features = workspace.all_features(packages.iter().copied());
    command.args(["--features", &features]).args(args).envs(held.variables());
    if without.is_empty() {
        command.env(REQUIRE, "1");
    } else {
        // Also where the caller's environment asks for every service, as CI does: leaving one out was asked for here.
        command.env_remove(REQUIRE).env_remove("CI");
    }
    let outcome = run::see(&mut command);
    drop(held);
    if !without.is_empty() {
        let names = without.into_iter().collect::<Vec<_>>().join(", ");
        eprintln!("xtask: tests that need {names} did not run");
    }
    outcome
}

/// Takes `--without NAME[,NAME]` from the front of the arguments.
fn split_without<'a>(args: &'a [&'a str]) -> Result<(BTreeSet<&'a str>, &'a [&'a str])> {
    let ["--without", names, rest @ ..] = args else {
        return Ok((BTreeSet::new(), args));
    };
    let names: BTreeSet<&str> = names.split(',').collect();
    match names.iter().find(|name| services::by_name(name).is_none()) {
        Some(name) => Err(Failure::new(format!("there is no service named {name}"))),
        None => Ok((names, rest)),
    }
}

/// The packages that cargo's `-p` names, or all of them.
fn selected<'a>(workspace: &'a Workspace, args: &[&str]) -> Result<Vec<&'a Package>> {
    let mut names = Vec::new();
    let mut args = args.iter().take_while(|arg| **arg != "--");
    while let Some(arg) = args.next() {
        match *arg {
            "-p" | "--package" => names.extend(args.next().copied()),
            _ => names.extend(arg.strip_prefix("--package=").or_else(|| arg.strip_prefix("-p"))),
        }
    }
    if names.is_empty() {
        return Ok(workspace.packages.iter().collect());
    }
    let found = |name| {
        let package = workspace.package(name);
        package.ok_or_else(|| Failure::new(format!("the workspace has no package named {name}")))
    };
    names.into_iter().map(found).collect()
}

/// A package needs a service when its code names one of the service's variables.
fn needed_by(packages: &[&Package]) -> Result<Vec<&'static Service>> {
    let files = workspace::files(&[".rs"])?;
    let of_packages = files.iter().filter(|file| {
        let of = |package: &&Package| {
            let rest = file.path.strip_prefix(&package.folder);
            rest.is_some_and(|rest| rest.starts_with('/')) && package.name != "xtask"
        };
        packages.iter().any(of)
    });
    Ok(services::needed_by(of_packages.map(|file| file.text.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packages_are_those_that_cargo_is_told() {
        let package = |name: &str| Package { name: name.into(), ..Package::default() };
        let workspace = Workspace { packages: ["a", "b", "c"].map(package).into() };
        let check = |args: &[&str], expected: &[&str]| {
            let packages = selected(&workspace, args).unwrap();
            assert_eq!(packages.iter().map(|package| package.name.as_str()).collect::<Vec<_>>(), expected);
        };
        check(&[], &["a", "b", "c"]);
        check(&["--lib", "--", "-p"], &["a", "b", "c"]);
        check(&["-p", "b", "some_test"], &["b"]);
        check(&["-pc", "--package=a", "--package", "b"], &["c", "a", "b"]);
        assert!(selected(&workspace, &["-p", "d"]).is_err());
    }

    #[test]
    fn services_to_leave_out_are_named_in_front() {
        let (without, rest) = split_without(&["--without", "postgres,pgbouncer", "-p", "a"]).unwrap();
        assert_eq!((without.len(), rest), (2, ["-p", "a"].as_slice()));
        assert!(split_without(&["--without", "oracle"]).is_err());
        assert!(split_without(&["-p", "a"]).unwrap().0.is_empty());
    }
}
