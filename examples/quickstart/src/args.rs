//! What the command line says.

use std::path::PathBuf;

/// How to call it.
const USAGE: &str = "usage: quickstart [--url URL] [--db FILE] [--crash]
  --url URL   send to your own receiver instead of the one started inside
  --db FILE   keep the database in FILE
  --crash     die right after a commit; run again with the same --db to see it sent";

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Args {
    pub(crate) url: Option<String>,
    pub(crate) db: Option<PathBuf>,
    pub(crate) crash: bool,
}

impl Args {
    pub(crate) fn read(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut args = Self::default();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} wants a value\n{USAGE}"));
            match word.as_str() {
                "--url" => args.url = Some(value()?),
                "--db" => args.db = Some(value()?.into()),
                "--crash" => args.crash = true,
                _ => return Err(format!("{word} is not known\n{USAGE}")),
            }
        }
        if args.crash && args.db.is_none() {
            return Err(format!(
                "--crash wants --db: a temporary file would be gone with the process\n{USAGE}"
            ));
        }
        Ok(args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &[&str], expected: Result<Args, &str>) {
        match (Args::read(words.iter().map(ToString::to_string)), expected) {
            (Ok(args), Ok(expected)) => assert_eq!(args, expected),
            (Err(error), Err(expected)) => assert!(error.starts_with(expected), "{error}"),
            (got, expected) => panic!("{got:?} for {expected:?}"),
        }
    }

    #[test]
    fn words_are_read_or_refused_by_name() {
        check(&[], Ok(Args::default()));
        let all = Args { url: Some("http://h/".into()), db: Some("f".into()), crash: true };
        check(&["--crash", "--url", "http://h/", "--db", "f"], Ok(all));
        check(&["--db"], Err("--db wants a value"));
        check(&["--crash"], Err("--crash wants --db"));
        check(&["--fast"], Err("--fast is not known"));
    }
}
