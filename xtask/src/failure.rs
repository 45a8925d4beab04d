//! Why a command of xtask did not succeed, as text for people.

use std::fmt;

/// What most functions here return.
pub(crate) type Result<T = ()> = std::result::Result<T, Failure>;

/// One message; nothing here is handled by its kind.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Says what was being done when an error came up.
pub(crate) trait While<T> {
    fn or_fail(self, doing: impl fmt::Display) -> Result<T>;
}

impl<T, E: fmt::Display> While<T> for std::result::Result<T, E> {
    fn or_fail(self, doing: impl fmt::Display) -> Result<T> {
        self.map_err(|error| Failure(format!("failed to {doing}: {error}")))
    }
}
