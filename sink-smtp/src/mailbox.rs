//! An address as people write it, and its JSON forms.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// An address, with the name of its owner or without.
///
/// In text and JSON `Ann Lee <ann@example.com>` or `ann@example.com`; in JSON also
/// `{"name": "Ann Lee", "address": "ann@example.com"}`. The name is taken as it stands: it needs no
/// quotes for a comma, and those around it are dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Mailbox {
    /// The name.
    pub name: Option<String>,
    /// The address.
    pub address: String,
}

impl Mailbox {
    /// An address with the name of its owner.
    pub fn named(name: impl Into<String>, address: impl Into<String>) -> Self {
        Self { name: Some(name.into()), address: address.into() }
    }
}

impl From<&str> for Mailbox {
    fn from(text: &str) -> Self {
        let text = text.trim_matches(' ');
        let Some((name, address)) = text.strip_suffix('>').and_then(|text| text.rsplit_once('<')) else {
            return Self { name: None, address: text.to_owned() };
        };
        let name = name.trim_matches(' ');
        let name = match name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
            Some(quoted) => quoted.replace("\\\"", "\"").replace("\\\\", "\\"),
            None => name.to_owned(),
        };
        Self { name: Some(name).filter(|name| !name.is_empty()), address: address.to_owned() }
    }
}

impl From<String> for Mailbox {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl<N: Into<String>, A: Into<String>> From<(N, A)> for Mailbox {
    fn from((name, address): (N, A)) -> Self {
        Self::named(name, address)
    }
}

/// Shows nobody.
impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").finish_non_exhaustive()
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    #[serde(default)]
    name: Option<String>,
    address: String,
}

impl Serialize for Mailbox {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.name {
            Some(name) => {
                Named { name: Some(name.clone()), address: self.address.clone() }.serialize(serializer)
            }
            None => self.address.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Mailbox {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Text(String),
            Named(Named),
        }
        // The library's own text would repeat what it found.
        match Form::deserialize(deserializer).map_err(|_| D::Error::custom("a mailbox of neither form"))? {
            Form::Text(text) => Ok(text.into()),
            Form::Named(named) => Ok(Self { name: named.name, address: named.address }),
        }
    }
}

pub(crate) fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Mailbox>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Many(Vec<Mailbox>),
        One(Mailbox),
    }
    match Form::deserialize(deserializer)
        .map_err(|_| D::Error::custom("neither a mailbox nor a list of mailboxes"))?
    {
        Form::Many(many) => Ok(many),
        Form::One(one) => Ok(vec![one]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mailboxes_have_a_name_or_none() {
        let parsed = |text: &str| {
            let mailbox = Mailbox::from(text);
            (mailbox.name, mailbox.address)
        };
        let named = |name: &str| (Some(name.to_owned()), "ann@example.com".to_owned());
        assert_eq!(parsed("ann@example.com"), (None, "ann@example.com".into()));
        assert_eq!(parsed("<ann@example.com>"), (None, "ann@example.com".into()));
        assert_eq!(parsed("Ann Lee <ann@example.com>"), named("Ann Lee"));
        assert_eq!(parsed("Lee, Ann <ann@example.com>"), named("Lee, Ann"));
        assert_eq!(parsed(r#""Ann \"A\" Lee" <ann@example.com>"#), named(r#"Ann "A" Lee"#));
    }
}
