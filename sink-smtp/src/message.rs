//! From a record to what goes over the wire: the envelope and the bytes of the message.
//!
//! Everything in it comes from the record, so that every attempt sends the same bytes.

use std::time::{Duration, SystemTime};

use lettre::{
    Address, Message,
    address::Envelope,
    message::{
        Attachment as Part, Body, Mailbox as OneMailbox, Mailboxes, MessageBuilder, MultiPart, SinglePart,
        header::{ContentType, Date, From, HeaderName, HeaderValue, Headers, MessageId, To},
    },
};
use outbox_core::{Record, Uuid};

use crate::{
    Email, InvalidEmail, ListUnsubscribe, Mailbox,
    dkim::Signer,
    headers,
    text::{address, mailbox, one_line, token},
};

/// The header of a record that names the envelope's sender of a ready message.
pub(crate) const MAIL_FROM: &str = "outbox-mail-from";
/// The header of a record that names the recipients of a ready message.
pub(crate) const RCPT_TO: &str = "outbox-rcpt-to";

/// The most recipients of one mail. All of them stand in the record's progress.
const RECIPIENTS_MAX: usize = 1_000;

/// A mail, ready to go.
pub(crate) struct Outgoing {
    /// The envelope's sender; none for mail that must not be answered.
    pub(crate) from: Option<Address>,
    /// Everyone who gets it, each once.
    pub(crate) to: Vec<Address>,
    /// The message, without the CRLF that ends its last line: that comes with the final dot.
    pub(crate) bytes: Vec<u8>,
    /// Whether an address or a header is beyond ASCII.
    pub(crate) needs_utf8: bool,
    /// Whether the body is beyond ASCII.
    pub(crate) needs_8bit: bool,
}

impl Outgoing {
    /// The mail that a record holds.
    pub(crate) fn of(record: &Record, signer: Option<&Signer>) -> Result<Self, InvalidEmail> {
        let media_type = record.content_type.split(';').next().unwrap_or_default().trim();
        if media_type.eq_ignore_ascii_case("application/json") {
            let email: Email = serde_json::from_slice(record.payload.as_bytes()).map_err(|error| {
                // The library's text repeats what it found.
                let place = format!("is no email in JSON: line {}, column {}", error.line(), error.column());
                InvalidEmail::new("payload", place)
            })?;
            written(&email, record.id, record.created_at, signer)
        } else if media_type.eq_ignore_ascii_case("message/rfc822") {
            ready(record, signer)
        } else {
            Err(InvalidEmail::new("content_type", "is neither application/json nor message/rfc822"))
        }
    }

    fn new(
        from: Option<Address>,
        to: Vec<Address>,
        mut bytes: Vec<u8>,
        created_at: SystemTime,
        signer: Option<&Signer>,
    ) -> Result<Self, InvalidEmail> {
        if to.is_empty() {
            return Err(InvalidEmail::new("email", "has no recipient"));
        }
        if to.len() > RECIPIENTS_MAX {
            return Err(InvalidEmail::new("email", format!("has more than {RECIPIENTS_MAX} recipients")));
        }
        if let Some(reason) = headers::unsendable(&bytes) {
            return Err(InvalidEmail::new("message", reason));
        }
        if !bytes.ends_with(b"\r\n") {
            bytes.extend_from_slice(b"\r\n");
        }
        if let Some(signer) = signer {
            bytes = signer.signed(bytes, seconds(created_at))?;
        }
        let (_, body) =
            headers::split(&bytes).ok_or_else(|| InvalidEmail::new("message", "has no header block"))?;
        let needs_utf8 = !bytes[..body].is_ascii() || from.iter().chain(&to).any(|a| !is_ascii(a));
        let needs_8bit = !bytes[body..].is_ascii();
        bytes.truncate(bytes.len() - 2);
        Ok(Self { from, to, bytes, needs_utf8, needs_8bit })
    }
}

fn is_ascii(address: &Address) -> bool {
    AsRef::<str>::as_ref(address).is_ascii()
}

/// Whether a sink would take the email.
pub(crate) fn check(email: &Email) -> Result<(), InvalidEmail> {
    written(email, Uuid::nil(), SystemTime::UNIX_EPOCH, None).map(drop)
}

fn written(
    email: &Email,
    id: Uuid,
    created_at: SystemTime,
    signer: Option<&Signer>,
) -> Result<Outgoing, InvalidEmail> {
    let author = mailbox("from", &email.from)?;
    let from = match &email.envelope_from {
        Some(text) => sender("envelope_from", text)?,
        None => Some(author.email.clone()),
    };
    let mut everyone = Vec::new();
    let mut add = |field: &str, mailboxes: &[Mailbox]| -> Result<Vec<OneMailbox>, InvalidEmail> {
        let mut parsed = Vec::new();
        for (at, one) in mailboxes.iter().enumerate() {
            let one = mailbox(&format!("{field}[{at}]"), one)?;
            if field != "reply_to" && !everyone.contains(&one.email) {
                everyone.push(one.email.clone());
            }
            parsed.push(one);
        }
        Ok(parsed)
    };
    let to = add("to", &email.to)?;
    let cc = add("cc", &email.cc)?;
    add("bcc", &email.bcc)?;
    let reply_to = add("reply_to", &email.reply_to)?;
    // The builder wants one; the dialogue has its own, which differs by attempt.
    let envelope =
        Envelope::new(None, everyone.clone()).map_err(|_| InvalidEmail::new("email", "has no recipient"))?;
    let message_id = format!("<{id}@{}>", author.email.domain());
    let mut builder = Message::builder()
        .envelope(envelope)
        .header(From::from(Mailboxes::from(author.clone())))
        .header(Date::new(printable(created_at)))
        .header(MessageId::from(message_id));
    for (name, mailboxes) in [("To", to), ("Cc", cc), ("Reply-To", reply_to)] {
        if !mailboxes.is_empty() {
            builder = builder.raw_header(list(name, mailboxes));
        }
    }
    builder = unstructured(builder, "subject", "Subject", &email.subject)?;
    for (at, (name, value)) in email.headers.iter().enumerate() {
        if !headers::is_name(name) || name.eq_ignore_ascii_case("bcc") || is_reserved(name) {
            return Err(InvalidEmail::new(format!("headers[{at}]"), "has a name that is not allowed"));
        }
        if email.headers.keys().take(at).any(|earlier| earlier.eq_ignore_ascii_case(name)) {
            return Err(InvalidEmail::new(format!("header {name}"), "is given twice"));
        }
        builder = unstructured(builder, &format!("header {name}"), name, value)?;
    }
    if let Some(unsubscribe) = &email.list_unsubscribe {
        builder = list_unsubscribe(builder, unsubscribe)?;
    }

    let mut boundaries = Boundaries { id, used: 0 };
    let mut message = match content(email, &mut boundaries)? {
        Content::Single(part) => builder.singlepart(part),
        Content::Multi(parts) => builder.multipart(parts),
    }
    .map_err(|_| InvalidEmail::new("email", "cannot be written"))?;
    message.headers_mut().insert_raw(list("From", vec![author]));
    Outgoing::new(from, everyone, message.formatted(), created_at, signer)
}

/// A header of mailboxes, one a line: lettre folds none without a name, and many make too long a line.
fn list(name: &'static str, mailboxes: Vec<OneMailbox>) -> HeaderValue {
    let encoded: Vec<String> = mailboxes.into_iter().map(|mailbox| one(name, mailbox)).collect();
    let encoded = encoded.join(",\r\n ");
    HeaderValue::dangerous_new_pre_encoded(HeaderName::new_from_ascii_str(name), encoded.clone(), encoded)
}

fn one(header: &str, mailbox: OneMailbox) -> String {
    match &mailbox.name {
        // Some readers decode within quotes as well.
        Some(name) if !headers::is_plain(name) => {
            format!("{}\r\n <{}>", headers::encoded(header, name), mailbox.email)
        }
        _ => {
            let mut headers = Headers::new();
            headers.set(To::from(Mailboxes::from(mailbox)));
            headers.to_string().trim_start_matches("To: ").trim_end().to_owned()
        }
    }
}

/// What the email's own fields or the transport set.
fn is_reserved(name: &str) -> bool {
    const RESERVED: [&str; 14] = [
        "from",
        "to",
        "cc",
        "bcc",
        "reply-to",
        "subject",
        "date",
        "message-id",
        "mime-version",
        "dkim-signature",
        "list-unsubscribe",
        "list-unsubscribe-post",
        "received",
        "return-path",
    ];
    let name = name.to_ascii_lowercase();
    RESERVED.contains(&name.as_str()) || name.starts_with("content-")
}

fn unstructured(
    builder: MessageBuilder,
    field: &str,
    name: &str,
    value: &str,
) -> Result<MessageBuilder, InvalidEmail> {
    one_line(field, value)?;
    let header = HeaderName::new_from_ascii(name.to_owned())
        .map_err(|_| InvalidEmail::new(field, "has a name that is not allowed"))?;
    Ok(builder.raw_header(if headers::is_plain(value) {
        HeaderValue::new(header, value.to_owned())
    } else {
        let encoded = headers::encoded(name, value);
        HeaderValue::dangerous_new_pre_encoded(header, value.to_owned(), encoded)
    }))
}

fn list_unsubscribe(
    builder: MessageBuilder,
    unsubscribe: &ListUnsubscribe,
) -> Result<MessageBuilder, InvalidEmail> {
    const URL_BYTES_MAX: usize = 900;
    let mut targets = Vec::new();
    if let Some(url) = &unsubscribe.url {
        token("list_unsubscribe.url", url, URL_BYTES_MAX)?;
        if !url.starts_with("https://") {
            return Err(InvalidEmail::new("list_unsubscribe.url", "does not begin with https://"));
        }
        targets.push(format!("<{url}>"));
    }
    if let Some(mailto) = &unsubscribe.mailto {
        let mailto = mailto.strip_prefix("mailto:").unwrap_or(mailto);
        token("list_unsubscribe.mailto", mailto, URL_BYTES_MAX)?;
        targets.push(format!("<mailto:{mailto}>"));
    }
    if targets.is_empty() || (unsubscribe.one_click && unsubscribe.url.is_none()) {
        return Err(InvalidEmail::new("list_unsubscribe", "has no url"));
    }
    // Folded between the targets alone: a reader takes what stands in the brackets to the letter.
    let value = targets.join(",\r\n ");
    let name = HeaderName::new_from_ascii_str("List-Unsubscribe");
    let builder = builder.raw_header(HeaderValue::dangerous_new_pre_encoded(name, value.clone(), value));
    if !unsubscribe.one_click {
        return Ok(builder);
    }
    let name = HeaderName::new_from_ascii_str("List-Unsubscribe-Post");
    Ok(builder.raw_header(HeaderValue::new(name, "List-Unsubscribe=One-Click".to_owned())))
}

enum Content {
    Single(SinglePart),
    Multi(MultiPart),
}

/// Boundaries that are the same at every attempt.
struct Boundaries {
    id: Uuid,
    used: u32,
}

impl Boundaries {
    /// `=_` stands in no quoted-printable and no base64, so no part can hold its boundary.
    fn next(&mut self) -> String {
        self.used += 1;
        format!("=_{}_{}", self.id.simple(), self.used)
    }
}

/// `mixed(related(alternative(text, html), inline…), attachments…)`, as far as there are parts.
fn content(email: &Email, boundaries: &mut Boundaries) -> Result<Content, InvalidEmail> {
    let text = email.text.as_deref().map(|text| text_part(text, ContentType::TEXT_PLAIN));
    let html = email.html.as_deref().map(|html| text_part(html, ContentType::TEXT_HTML));
    let mut content = match (text, html) {
        (Some(text), Some(html)) => {
            let parts = MultiPart::alternative().boundary(boundaries.next());
            Content::Multi(parts.singlepart(text).singlepart(html))
        }
        (Some(one), None) | (None, Some(one)) => Content::Single(one),
        (None, None) => Content::Single(text_part("", ContentType::TEXT_PLAIN)),
    };
    if !email.inline.is_empty() {
        let mut parts = begin(MultiPart::related().boundary(boundaries.next()), content);
        for (at, inline) in email.inline.iter().enumerate() {
            let field = format!("inline[{at}]");
            token(&format!("{field}.id"), &inline.id, 200)?;
            let media_type = media_type(&field, &inline.content_type)?;
            parts = parts
                .singlepart(Part::new_inline(inline.id.clone()).body(base64(&inline.content.0), media_type));
        }
        content = Content::Multi(parts);
    }
    if !email.attachments.is_empty() {
        let mut parts = begin(MultiPart::mixed().boundary(boundaries.next()), content);
        for (at, attachment) in email.attachments.iter().enumerate() {
            let field = format!("attachments[{at}]");
            one_line(&format!("{field}.name"), &attachment.name)?;
            if attachment.name.contains("=?") {
                return Err(InvalidEmail::new(
                    format!("{field}.name"),
                    "holds =?, which some readers decode",
                ));
            }
            let media_type = media_type(&field, &attachment.content_type)?;
            parts = parts.singlepart(
                Part::new(attachment.name.clone()).body(base64(&attachment.content.0), media_type),
            );
        }
        content = Content::Multi(parts);
    }
    Ok(content)
}

fn begin(parts: lettre::message::MultiPartBuilder, first: Content) -> MultiPart {
    match first {
        Content::Single(part) => parts.singlepart(part),
        Content::Multi(part) => parts.multipart(part),
    }
}

/// Always encoded: lettre sends bytes below 128 as they are, NUL and lone line breaks among them.
fn base64(content: &[u8]) -> Body {
    use lettre::message::header::ContentTransferEncoding::Base64;
    Body::new_with_encoding(content.to_vec(), Base64).unwrap_or_else(Body::new)
}

fn text_part(text: &str, media_type: ContentType) -> SinglePart {
    use lettre::message::header::ContentTransferEncoding::QuotedPrintable;
    // Every line ends in CRLF before lettre sees the text: it inserts them one by one.
    let text = text.replace("\r\n", "\n").replace('\r', "\n").replace('\n', "\r\n");
    let body = if text.contains("=_") {
        // Plain, it could hold a boundary.
        Body::new_with_encoding(text, QuotedPrintable).unwrap_or_else(Body::new)
    } else {
        Body::new(text)
    };
    SinglePart::builder().header(media_type).body(body)
}

fn media_type(field: &str, text: &str) -> Result<ContentType, InvalidEmail> {
    let field = format!("{field}.content_type");
    one_line(&field, text)?;
    let lower = text.trim().to_ascii_lowercase();
    if lower.starts_with("multipart/") || lower.starts_with("message/") {
        return Err(InvalidEmail::new(field, "is one that cannot be encoded"));
    }
    if text.len() > 200 || !text.is_ascii() {
        return Err(InvalidEmail::new(field, "is no media type"));
    }
    ContentType::parse(text).map_err(|_| InvalidEmail::new(field, "is no media type"))
}

fn sender(field: &str, text: &str) -> Result<Option<Address>, InvalidEmail> {
    match text.trim_matches(' ') {
        "" | "<>" => Ok(None),
        text => address(field, text).map(Some),
    }
}

/// A message that the application has written itself.
fn ready(record: &Record, signer: Option<&Signer>) -> Result<Outgoing, InvalidEmail> {
    let header = |name: &str| {
        let found = record.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    };
    let missing = |name: &str| InvalidEmail::new(format!("header {name}"), "is missing");
    let from = sender(MAIL_FROM, header(MAIL_FROM).ok_or_else(|| missing(MAIL_FROM))?)?;
    let mut to = Vec::new();
    for (at, one) in header(RCPT_TO).ok_or_else(|| missing(RCPT_TO))?.split(',').enumerate() {
        let one = address(&format!("{RCPT_TO}[{at}]"), one.trim_matches(' '))?;
        if !to.contains(&one) {
            to.push(one);
        }
    }

    let mut bytes = record.payload.as_bytes().to_vec();
    if !bytes.contains(&b'\r') {
        // As programs write it to files: every line ends in LF alone.
        bytes = bytes.split(|byte| *byte == b'\n').collect::<Vec<_>>().join(&b"\r\n"[..]);
    }
    let no_headers = || InvalidEmail::new("payload", "does not begin with the headers of a message");
    let (fields, _) = headers::split(&bytes).ok_or_else(no_headers)?;
    let has = |name: &str| fields.iter().any(|field| field.name.eq_ignore_ascii_case(name));
    if !has("from") {
        return Err(no_headers());
    }
    if has("bcc") {
        return Err(InvalidEmail::new("payload", "has a Bcc header, which every recipient would see"));
    }
    let mut added = String::new();
    if !has("date") {
        let mut date = Headers::new();
        date.set(Date::new(printable(record.created_at)));
        added.push_str(&date.to_string());
    }
    if !has("message-id") {
        let domain = from.as_ref().map_or("localhost", Address::domain);
        added.push_str(&format!("Message-ID: <{}@{domain}>\r\n", record.id));
    }
    bytes.splice(0..0, added.into_bytes());
    Outgoing::new(from, to, bytes, record.created_at, signer)
}

/// A time that a mail can carry: from 1970 to 9999.
fn printable(time: SystemTime) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds(time))
}

fn seconds(time: SystemTime) -> u64 {
    const YEAR_9999: u64 = 253_402_300_799;
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs()).min(YEAR_9999)
}
