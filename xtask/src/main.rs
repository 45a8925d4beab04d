#![doc = include_str!("../README.md")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool speaks on both")]

mod ci;
mod failure;
mod features;
mod run;
mod services;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

use failure::{Failure, Result};
use workspace::Workspace;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test [ARGS]                        run every test, with the services that they need; ARGS go to cargo test
  test --without NAME[,NAME] [ARGS]  the same without these services: tests that need them skip, and say so
  ci                                 format, tidy, clippy, docs, features, test
  tidy                               contracts and checks, shape of files, manifests, dependency rule
  features                           each feature of each package alone compiles
  services up|down|status [NAMES]    keep services running in the background; `up` prints what to export";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&args.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &[&str]) -> Result {
    match args {
        ["test", rest @ ..] => test::run(&Workspace::load()?, rest),
        ["ci"] => ci::run(&Workspace::load()?),
        ["tidy"] => tidy::run(&Workspace::load()?),
        ["features"] => features::run(&Workspace::load()?),
        ["services", "up", names @ ..] => services::up(names),
        ["services", "down", names @ ..] => services::down(names),
        ["services", "status", names @ ..] => services::status(names),
        [services::HOLD, names @ ..] => services::hold(names),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => Err(Failure::new(USAGE)),
    }
}
