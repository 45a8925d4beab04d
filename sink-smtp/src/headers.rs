//! The header block of a message: finding its fields, and encoding text for one.

use std::ops::Range;

use base64::{Engine, prelude::BASE64_STANDARD};

use crate::text::LINE_BYTES_MAX;

/// One field of a header block.
pub(crate) struct Field<'a> {
    pub(crate) name: &'a str,
    /// With its CRLF and continuation lines.
    pub(crate) whole: &'a [u8],
}

/// The fields of a message and where its body begins. None: the block is not one of headers.
pub(crate) fn split(message: &[u8]) -> Option<(Vec<Field<'_>>, usize)> {
    let mut fields: Vec<Range<usize>> = Vec::new();
    let mut at = 0;
    loop {
        let rest = message.get(at..)?;
        if rest.starts_with(b"\r\n") {
            at += 2;
            break;
        }
        if rest.is_empty() {
            break;
        }
        let end = at + rest.windows(2).position(|pair| pair == b"\r\n").map_or(rest.len(), |found| found + 2);
        match (rest[0], fields.last_mut()) {
            (b' ' | b'\t', Some(field)) => field.end = end,
            (b' ' | b'\t', None) => return None,
            _ => fields.push(at..end),
        }
        at = end;
    }
    let named = |range: Range<usize>| {
        let whole = &message[range];
        let colon = whole.iter().position(|byte| *byte == b':')?;
        let name = std::str::from_utf8(&whole[..colon]).ok()?.trim_end_matches([' ', '\t']);
        is_name(name).then_some(Field { name, whole })
    };
    Some((fields.into_iter().map(named).collect::<Option<_>>()?, at))
}

/// Whether RFC 5322 allows it as the name of a field.
pub(crate) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 76 && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':')
}

/// Whether a text must be encoded though it may be ASCII: a word too long for any line, or what a
/// reader would decode.
pub(crate) fn needs_encoding(text: &str) -> bool {
    text.contains("=?") || text.split(' ').any(|word| word.len() > 76)
}

/// The text as encoded words of RFC 2047, folded.
pub(crate) fn encoded(text: &str) -> String {
    // 45 bytes are 60 characters of base64: with its frame a word stays below the 75 allowed.
    const WORD_BYTES: usize = 45;
    let mut encoded = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (word, after) = rest.split_at(rest.floor_char_boundary(WORD_BYTES));
        if !encoded.is_empty() {
            encoded.push_str("\r\n ");
        }
        encoded.push_str("=?utf-8?b?");
        encoded.push_str(&BASE64_STANDARD.encode(word));
        encoded.push_str("?=");
        rest = after;
    }
    encoded
}

/// What keeps a finished message from going over the wire as it is.
pub(crate) fn unsendable(message: &[u8]) -> Option<&'static str> {
    let mut line = 0;
    let mut bytes = message.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            0 => return Some("holds NUL"),
            b'\r' if bytes.peek() == Some(&b'\n') => {
                bytes.next();
                line = 0;
            }
            // Servers disagree on what a lone CR or LF means: one sees a mail end where another does not.
            b'\r' => return Some("holds a CR without LF"),
            b'\n' => return Some("holds an LF without CR"),
            _ => line += 1,
        }
        if line > LINE_BYTES_MAX {
            return Some("has a line of more than 998 bytes");
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_with_their_continuation_lines() {
        let message = b"Subject: a\r\n b\r\nFrom: c\r\n\r\nX: body\r\n";
        let (fields, body) = split(message).unwrap();
        let fields: Vec<_> = fields.iter().map(|field| (field.name, field.whole)).collect();
        assert_eq!(fields, [("Subject", &b"Subject: a\r\n b\r\n"[..]), ("From", b"From: c\r\n")]);
        assert_eq!(&message[body..], b"X: body\r\n");
        assert!(split(b"no header\r\n\r\n").is_none());
        assert!(split(b" leading: fold\r\n\r\n").is_none());
        assert_eq!(split(b"A: b\r\n").unwrap().1, 6);
    }

    /// K6: what servers could read in two ways does not go out.
    #[test]
    fn lone_line_breaks_nul_and_overlong_lines_are_not_sent() {
        assert_eq!(unsendable(b"a: b\r\n\r\n.\r\nc"), None);
        assert_eq!(unsendable(b"a: b\r\n\r\nc\n.\nd"), Some("holds an LF without CR"));
        assert_eq!(unsendable(b"a: b\r\n\r\nc\r.\r\n"), Some("holds a CR without LF"));
        assert_eq!(unsendable(b"a: b\r\n\r\nc\0"), Some("holds NUL"));
        assert_eq!(unsendable(&[b'x'; 998]), None);
        assert_eq!(unsendable(&[b'x'; 999]), Some("has a line of more than 998 bytes"));
    }

    #[test]
    fn encoded_words_stay_within_their_length() {
        let encoded = encoded(&"ä€".repeat(200));
        assert!(encoded.split("\r\n ").all(|word| word.len() <= 75), "{encoded}");
    }
}
