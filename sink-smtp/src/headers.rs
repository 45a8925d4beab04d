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

/// Whether a reader gets a text back as it was when it is written as it is: lettre folds it between
/// words, and nothing else.
pub(crate) fn is_plain(text: &str) -> bool {
    text.is_ascii() && !text.contains("=?") && text.split(' ').all(|word| (1..=76).contains(&word.len()))
}

/// The text as encoded words of RFC 2047, folded, for a header of this name.
///
/// All of it: where words in plain text and encoded ones meet, blanks get lost.
pub(crate) fn encoded(name: &str, text: &str) -> String {
    /// The longest line with an encoded word in it.
    const LINE_MAX: usize = 76;
    const FRAME: usize = "=?utf-8?b??=".len();
    // Three bytes make four characters.
    let fits = |used: usize| (LINE_MAX.saturating_sub(used + FRAME) / 4 * 3).max(4);
    let mut encoded = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let used = if encoded.is_empty() { name.len() + ": ".len() } else { " ".len() };
        let (word, after) = rest.split_at(rest.floor_char_boundary(fits(used)));
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
    fn encoded_words_stay_within_their_lines() {
        for name in ["Subject", "X-Name-Of-Fifty-Characters-Or-So-As-Some-Programs-Have", "X"] {
            let line = format!("{name}: {}", encoded(name, &"ä€🎉".repeat(200)));
            assert!(line.split("\r\n").all(|line| line.len() <= 76), "{line}");
        }
    }

    #[test]
    fn what_a_reader_would_change_is_not_plain() {
        for text in ["Hello", "Hello, you", "a =_ b"] {
            assert!(is_plain(text), "{text:?}");
        }
        for text in ["", " a", "a ", "a  b", "é", "=?utf-8?q?a?=", &"x".repeat(77)] {
            assert!(!is_plain(text), "{text:?}");
        }
    }
}
