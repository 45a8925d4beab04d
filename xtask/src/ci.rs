//! `cargo xtask ci`: every check in turn, with its time. The first that fails ends it.

use std::time::Instant;

use crate::failure::{Failure, Result};
use crate::workspace::Workspace;
use crate::{features, run, test, tidy};

pub(crate) fn run(workspace: &Workspace) -> Result {
    let whole = Instant::now();
    step("fmt", || run::see(&mut run::cargo(&["fmt", "--all", "--", "--check"])))?;
    step("tidy", || tidy::run(workspace))?;
    step("clippy", || clippy(workspace))?;
    step("docs", || docs(workspace))?;
    step("features", || features::run(workspace))?;
    step("test", || test::run(workspace, &[]))?;
    eprintln!("== ci: passed in {:.1} s", whole.elapsed().as_secs_f64());
    Ok(())
}

fn step(name: &str, work: impl FnOnce() -> Result) -> Result {
    eprintln!("== {name}");
    let begun = Instant::now();
    let outcome = work();
    let seconds = begun.elapsed().as_secs_f64();
    match outcome {
        Ok(()) => {
            eprintln!("== {name}: passed in {seconds:.1} s");
            Ok(())
        }
        Err(failure) => Err(Failure::new(format!("step {name} failed after {seconds:.1} s: {failure}"))),
    }
}

// Warnings become errors by an argument of clippy's, not by RUSTFLAGS, which would build every dependency again.
fn clippy(workspace: &Workspace) -> Result {
    let features = workspace.all_features(&workspace.packages);
    run::see(&mut run::cargo(&[
        "clippy",
        "--locked",
        "--workspace",
        "--all-targets",
        "--features",
        &features,
        "--",
        "-D",
        "warnings",
    ]))
}

fn docs(workspace: &Workspace) -> Result {
    let features = workspace.all_features(&workspace.packages);
    let mut command = run::cargo(&["doc", "--locked", "--workspace", "--no-deps", "--features", &features]);
    run::see(command.env("RUSTDOCFLAGS", "-D warnings"))
}
