//! Which records a route takes: an exact kind, a prefix, or every other.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The kinds that a route takes.
///
/// ```
/// use outbox_core::Pattern;
///
/// assert!("order.placed".parse::<Pattern>()?.matches("order.placed"));
/// assert!("order.*".parse::<Pattern>()?.matches("order.line.added"));
/// assert!("*".parse::<Pattern>()?.matches("anything"));
/// assert!("order.*.added".parse::<Pattern>().is_err());
/// # Ok::<(), outbox_core::InvalidPattern>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Pattern {
    /// This kind alone: `order.placed`.
    Exact(String),
    /// Every kind that starts with this text, which ends in a dot: `order.*` holds `order.`.
    Prefix(String),
    /// Every kind that no other route takes: `*`.
    Default,
}

/// A text that is no [`Pattern`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no pattern: write a kind, a prefix as `order.*`, or `*` for every other kind")]
pub struct InvalidPattern {
    text: String,
}

impl Pattern {
    /// Whether a record of this kind falls under the pattern. Where several do, the most specific
    /// wins: an exact kind before any prefix, a long prefix before a short one, the default last.
    pub fn matches(&self, kind: &str) -> bool {
        match self {
            Self::Exact(exact) => exact == kind,
            Self::Prefix(prefix) => kind.starts_with(prefix.as_str()),
            Self::Default => true,
        }
    }
}

impl FromStr for Pattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || InvalidPattern { text: text.to_owned() };
        match text.strip_suffix('*') {
            Some("") => Ok(Self::Default),
            Some(prefix) if prefix.ends_with('.') && prefix.len() > 1 && !prefix.contains('*') => {
                Ok(Self::Prefix(prefix.to_owned()))
            }
            None if !text.is_empty() && !text.contains(['*', '\0']) => Ok(Self::Exact(text.to_owned())),
            _ => Err(refused()),
        }
    }
}

impl TryFrom<String> for Pattern {
    type Error = InvalidPattern;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.to_string()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(kind) => f.write_str(kind),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
            Self::Default => f.write_str("*"),
        }
    }
}

/// What belongs to each pattern, found by kind: the most specific pattern wins.
#[derive(Clone, Debug)]
pub struct Router<T> {
    entries: Vec<(Pattern, T)>,
    exact: BTreeMap<String, usize>,
    /// Longest first.
    prefixes: Vec<(String, usize)>,
    default: Option<usize>,
}

impl<T> Default for Router<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), exact: BTreeMap::new(), prefixes: Vec::new(), default: None }
    }
}

impl<T> Router<T> {
    /// Adds `value` under `pattern`.
    ///
    /// # Errors
    ///
    /// Gives the value back when the pattern is taken.
    pub fn insert(&mut self, pattern: Pattern, value: T) -> Result<(), T> {
        if self.entries.iter().any(|(taken, _)| *taken == pattern) {
            return Err(value);
        }
        let at = self.entries.len();
        match &pattern {
            Pattern::Exact(kind) => {
                self.exact.insert(kind.clone(), at);
            }
            Pattern::Prefix(prefix) => {
                let place = self.prefixes.partition_point(|(other, _)| other.len() >= prefix.len());
                self.prefixes.insert(place, (prefix.clone(), at));
            }
            Pattern::Default => self.default = Some(at),
        }
        self.entries.push((pattern, value));
        Ok(())
    }

    /// The place of the entry that takes `kind`, in the order of insertion.
    pub fn resolve(&self, kind: &str) -> Option<usize> {
        self.exact
            .get(kind)
            .or_else(|| {
                self.prefixes.iter().find(|(prefix, _)| kind.starts_with(prefix.as_str())).map(|(_, at)| at)
            })
            .copied()
            .or(self.default)
    }

    /// The value that takes `kind`.
    pub fn get(&self, kind: &str) -> Option<&T> {
        self.resolve(kind).and_then(|at| self.entries.get(at)).map(|(_, value)| value)
    }

    /// Every pattern with its value, in the order of insertion.
    pub fn entries(&self) -> &[(Pattern, T)] {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(patterns: &[&str]) -> Router<usize> {
        let mut router = Router::default();
        for (at, text) in patterns.iter().enumerate() {
            router.insert(text.parse().unwrap(), at).unwrap();
        }
        router
    }

    #[test]
    fn the_most_specific_pattern_wins_whatever_the_order() {
        let router = router(&["*", "order.*", "order.line.*", "order.placed"]);
        let check = |kind, expected| assert_eq!(router.get(kind), Some(&expected), "{kind}");
        check("order.placed", 3);
        check("order.placed.late", 1);
        check("order.line.added", 2);
        check("order", 0);
        check("ordering", 0);
        check("mail.welcome", 0);
    }

    #[test]
    fn a_kind_without_a_route_resolves_to_nothing() {
        assert_eq!(router(&["order.*"]).get("mail.welcome"), None);
    }

    #[test]
    fn a_pattern_is_taken_once() {
        let mut router = router(&["order.*"]);
        assert_eq!(router.insert(Pattern::Prefix("order.".into()), 9), Err(9));
    }

    #[test]
    fn patterns_read_as_they_are_written() {
        for text in ["order.placed", "order.*", "*"] {
            assert_eq!(text.parse::<Pattern>().unwrap().to_string(), text);
        }
        for text in ["", "order*", ".*", "o.*.x", "**", "a*b", "nul\0"] {
            assert!(text.parse::<Pattern>().is_err(), "{text:?}");
        }
    }
}
