//! An email as an application writes it, and its JSON form.

use std::{collections::BTreeMap, fmt};

use outbox_core::NewRecord;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::{InvalidEmail, Mailbox, mailbox::one_or_many, message};

/// An email: the payload of a record that an [`SmtpSink`](crate::SmtpSink) sends.
///
/// Any language writes it as JSON with the fields' names; the README shows it.
///
/// # Examples
///
/// ```
/// use sink_smtp::Email;
///
/// let record = Email::new("Shop <shop@example.com>")
///     .to("Ann Lee <ann@example.com>")
///     .subject("Your order")
///     .text("It is on its way.\n")
///     .record("mail.order")?;
/// assert_eq!(record.kind, "mail.order");
///
/// let error = Email::new("shop@example.com").to("ann@example.com").subject("a\r\nBcc: eve@example.com");
/// assert_eq!(error.record("mail.order").unwrap_err().to_string(), "subject holds '\\r' at byte 1");
/// # Ok::<(), sink_smtp::InvalidEmail>(())
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Email {
    /// Who it is from.
    pub from: Mailbox,
    /// Where failures are reported to, when that is not `from`: the sender of the envelope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envelope_from: Option<String>,
    /// Who gets it.
    #[serde(default, deserialize_with = "one_or_many", skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<Mailbox>,
    /// Who gets a copy.
    #[serde(default, deserialize_with = "one_or_many", skip_serializing_if = "Vec::is_empty")]
    pub cc: Vec<Mailbox>,
    /// Who gets a copy that the others do not see: in the envelope and in no header.
    #[serde(default, deserialize_with = "one_or_many", skip_serializing_if = "Vec::is_empty")]
    pub bcc: Vec<Mailbox>,
    /// Who answers go to.
    #[serde(default, deserialize_with = "one_or_many", skip_serializing_if = "Vec::is_empty")]
    pub reply_to: Vec<Mailbox>,
    /// The subject.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// The plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The same in HTML.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
    /// Files that come with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// Files that the HTML shows, by `cid:`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inline: Vec<Inline>,
    /// Further headers, such as `In-Reply-To`. Those that the email or the transport sets are refused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// How a reader ends the subscription.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list_unsubscribe: Option<ListUnsubscribe>,
}

impl Email {
    /// An email from `from`, such as `"Shop <shop@example.com>"`.
    pub fn new(from: impl Into<Mailbox>) -> Self {
        Self {
            from: from.into(),
            envelope_from: None,
            to: Vec::new(),
            cc: Vec::new(),
            bcc: Vec::new(),
            reply_to: Vec::new(),
            subject: String::new(),
            text: None,
            html: None,
            attachments: Vec::new(),
            inline: Vec::new(),
            headers: BTreeMap::new(),
            list_unsubscribe: None,
        }
    }

    /// Reports failures to this address instead of to the author.
    #[must_use]
    pub fn envelope_from(mut self, address: impl Into<String>) -> Self {
        self.envelope_from = Some(address.into());
        self
    }

    /// Adds one who gets it.
    #[must_use]
    pub fn to(mut self, mailbox: impl Into<Mailbox>) -> Self {
        self.to.push(mailbox.into());
        self
    }

    /// Adds one who gets a copy.
    #[must_use]
    pub fn cc(mut self, mailbox: impl Into<Mailbox>) -> Self {
        self.cc.push(mailbox.into());
        self
    }

    /// Adds one who gets a copy that the others do not see.
    #[must_use]
    pub fn bcc(mut self, mailbox: impl Into<Mailbox>) -> Self {
        self.bcc.push(mailbox.into());
        self
    }

    /// Adds one who answers go to.
    #[must_use]
    pub fn reply_to(mut self, mailbox: impl Into<Mailbox>) -> Self {
        self.reply_to.push(mailbox.into());
        self
    }

    /// The subject.
    #[must_use]
    pub fn subject(mut self, subject: impl Into<String>) -> Self {
        self.subject = subject.into();
        self
    }

    /// The plain text.
    #[must_use]
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.text = Some(text.into());
        self
    }

    /// The same in HTML.
    #[must_use]
    pub fn html(mut self, html: impl Into<String>) -> Self {
        self.html = Some(html.into());
        self
    }

    /// Adds a file.
    #[must_use]
    pub fn attach(
        mut self,
        name: impl Into<String>,
        content_type: impl Into<String>,
        content: impl Into<Vec<u8>>,
    ) -> Self {
        self.attachments.push(Attachment {
            name: name.into(),
            content_type: content_type.into(),
            content: Content(content.into()),
        });
        self
    }

    /// Adds a file that the HTML shows as `cid:` and `id`.
    #[must_use]
    pub fn inline(
        mut self,
        id: impl Into<String>,
        content_type: impl Into<String>,
        content: impl Into<Vec<u8>>,
    ) -> Self {
        self.inline.push(Inline {
            id: id.into(),
            content_type: content_type.into(),
            content: Content(content.into()),
        });
        self
    }

    /// Adds a header, in the place of one of the same name.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// How a reader ends the subscription.
    #[must_use]
    pub fn list_unsubscribe(mut self, unsubscribe: ListUnsubscribe) -> Self {
        self.list_unsubscribe = Some(unsubscribe);
        self
    }

    /// The record to enqueue, after the checks that the sink makes: a mail that no server is asked to
    /// take fails here, inside the caller's transaction.
    ///
    /// # Errors
    ///
    /// Names the first field that cannot be sent.
    pub fn record(&self, kind: impl Into<String>) -> Result<NewRecord, InvalidEmail> {
        message::check(self)?;
        NewRecord::json(kind, self).map_err(|error| InvalidEmail::new("email", error.to_string()))
    }
}

/// Shows how many there are of each, and nobody.
impl fmt::Debug for Email {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Email")
            .field("recipients", &(self.to.len() + self.cc.len() + self.bcc.len()))
            .field("attachments", &self.attachments.len())
            .field("inline", &self.inline.len())
            .finish_non_exhaustive()
    }
}

/// A file that comes with an email.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attachment {
    /// The file's name.
    pub name: String,
    /// The media type. Default: `application/octet-stream`.
    #[serde(default = "octet_stream")]
    pub content_type: String,
    /// The bytes; in JSON as base64, line breaks allowed.
    pub content: Content,
}

/// A file that the HTML of an email shows as `<img src="cid:…">`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inline {
    /// What stands after `cid:`.
    pub id: String,
    /// The media type.
    pub content_type: String,
    /// The bytes; in JSON as base64, line breaks allowed.
    pub content: Content,
}

fn octet_stream() -> String {
    "application/octet-stream".into()
}

/// Bytes; in JSON as base64.
#[derive(Clone, PartialEq, Eq)]
pub struct Content(pub Vec<u8>);

/// Shows the size.
impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Serialize for Content {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use base64::{Engine, prelude::BASE64_STANDARD};
        BASE64_STANDARD.encode(&self.0).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use base64::{Engine, prelude::BASE64_STANDARD};
        let mut text = String::deserialize(deserializer)?;
        // Databases break the lines of base64, after the standard for mail.
        text.retain(|c| !c.is_ascii_whitespace());
        BASE64_STANDARD.decode(text).map(Self).map_err(|_| D::Error::custom("content is not base64"))
    }
}

/// How a reader ends a subscription: the `List-Unsubscribe` headers of RFC 2369 and RFC 8058.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ListUnsubscribe {
    /// An `https` page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// An address that a mail is sent to, with `?subject=…` or without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mailto: Option<String>,
    /// Whether a POST to `url` is enough, as large providers ask of bulk mail. It wants a DKIM signature.
    #[serde(default)]
    pub one_click: bool,
}

impl ListUnsubscribe {
    /// An `https` URL at which a POST is enough.
    pub fn one_click(url: impl Into<String>) -> Self {
        Self { url: Some(url.into()), mailto: None, one_click: true }
    }

    /// An `https` page.
    pub fn page(url: impl Into<String>) -> Self {
        Self { url: Some(url.into()), mailto: None, one_click: false }
    }

    /// An address that a mail is sent to.
    #[must_use]
    pub fn with_mailto(mut self, address: impl Into<String>) -> Self {
        self.mailto = Some(address.into());
        self
    }
}

/// URLs name the reader: shows which forms there are.
impl fmt::Debug for ListUnsubscribe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListUnsubscribe")
            .field("url", &self.url.is_some())
            .field("mailto", &self.mailto.is_some())
            .field("one_click", &self.one_click)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_form_takes_one_recipient_or_many_in_either_form() {
        let email: Email = serde_json::from_str(
            r#"{"from": "Shop <shop@example.com>", "to": "ann@example.com",
                "cc": ["Bob <bob@example.com>", {"name": "Cy", "address": "cy@example.com"}],
                "attachments": [{"name": "a.txt", "content": "aGVs\nbG8="}]}"#,
        )
        .unwrap();
        let expected = Email::new("Shop <shop@example.com>")
            .to("ann@example.com")
            .cc("Bob <bob@example.com>")
            .cc(("Cy", "cy@example.com"))
            .attach("a.txt", "application/octet-stream", "hello");
        assert!(email == expected);
        let again: Email = serde_json::from_str(&serde_json::to_string(&email).unwrap()).unwrap();
        assert!(again == email);
    }

    /// K7: neither `Debug` nor a parse error shows what the email holds.
    #[test]
    fn nothing_shows_what_an_email_holds() {
        let email = Email::new("Shop <shop@example.com>")
            .to("Ann <ann@example.com>")
            .subject("Hush")
            .text("hush")
            .list_unsubscribe(ListUnsubscribe::one_click("https://example.com/ann"));
        let shown = format!("{email:?} {:?} {:?}", email.to, email.list_unsubscribe);
        assert!(!shown.to_lowercase().contains("ann@") && !shown.to_lowercase().contains("hush"), "{shown}");
        assert!(!shown.contains("/ann"), "{shown}");
        for text in [r#"{"from": 17, "to": "hush"}"#, r#"{"from": "a@b", "to": {"hush": 1}}"#] {
            let error = serde_json::from_str::<Email>(text).unwrap_err().to_string();
            assert!(!error.contains("hush"), "{error}");
        }
    }
}
