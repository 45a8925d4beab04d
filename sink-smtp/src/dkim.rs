//! DKIM signatures (RFC 6376 and 8463), `relaxed/relaxed`.
//!
//! lettre's own signs with another cryptography library than the rest of the workspace, with the time
//! of the attempt, and messages of its builder alone.

use std::fmt;

use aws_lc_rs::{
    digest,
    rand::SystemRandom,
    rsa::KeyPair as RsaKeyPair,
    signature::{Ed25519KeyPair, RSA_PKCS1_SHA256},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;

use crate::{InvalidEmail, SmtpError, headers, text::token};

/// The key that mails are signed with, and where receivers find its public half: in the TXT record
/// `selector._domainkey.domain`.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DkimConfig {
    /// The domain that answers for the mail: that of the `from` addresses, or one above it.
    pub domain: String,
    /// The name of the key within the domain.
    pub selector: String,
    /// The private key in PEM: RSA of 2,048 bits or more (`PRIVATE KEY` or `RSA PRIVATE KEY`), or
    /// Ed25519 (`PRIVATE KEY`). Many receivers know RSA alone.
    pub private_key: String,
}

impl DkimConfig {
    /// Signs for `domain` with the key `selector`.
    pub fn new(
        domain: impl Into<String>,
        selector: impl Into<String>,
        private_key: impl Into<String>,
    ) -> Self {
        Self { domain: domain.into(), selector: selector.into(), private_key: private_key.into() }
    }
}

/// Leaves out the key.
impl fmt::Debug for DkimConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DkimConfig")
            .field("domain", &self.domain)
            .field("selector", &self.selector)
            .finish_non_exhaustive()
    }
}

/// The fields that are signed, when they are there. `From` is signed once more than it is there, so
/// that nobody can add another.
const SIGNED: [&str; 14] = [
    "from",
    "to",
    "cc",
    "reply-to",
    "subject",
    "date",
    "message-id",
    "in-reply-to",
    "references",
    "mime-version",
    "content-type",
    "content-transfer-encoding",
    "list-unsubscribe",
    "list-unsubscribe-post",
];

enum Key {
    Rsa(RsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

pub(crate) struct Signer {
    domain: String,
    selector: String,
    key: Key,
}

impl Signer {
    pub(crate) fn new(config: &DkimConfig) -> Result<Self, SmtpError> {
        for (field, text) in [("dkim.domain", &config.domain), ("dkim.selector", &config.selector)] {
            token(field, text, 253).map_err(|error| SmtpError::new(error.to_string()))?;
            if text.contains(';') {
                return Err(SmtpError::new(format!("{field} holds ';'")));
            }
        }
        let no_key = || SmtpError::new("dkim.private_key is no RSA or Ed25519 key in PEM");
        let der = der(&config.private_key).ok_or_else(no_key)?;
        let key = if let Ok(key) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der) {
            Key::Ed25519(key)
        } else {
            Key::Rsa(
                RsaKeyPair::from_pkcs8(&der).or_else(|_| RsaKeyPair::from_der(&der)).map_err(|_| no_key())?,
            )
        };
        Ok(Self { domain: config.domain.clone(), selector: config.selector.clone(), key })
    }

    /// The message with the signature before it. `created_at` in seconds since 1970.
    pub(crate) fn signed(&self, message: Vec<u8>, created_at: u64) -> Result<Vec<u8>, InvalidEmail> {
        let cannot = || InvalidEmail::new("message", "cannot be signed");
        let (fields, body) = headers::split(&message).ok_or_else(cannot)?;
        let body_hash = digest::digest(&digest::SHA256, &relaxed_body(&message[body..]));

        let mut names = Vec::new();
        let mut input = Vec::new();
        for name in SIGNED {
            // Several of one name are signed from the last to the first.
            for field in fields.iter().rev().filter(|field| field.name.eq_ignore_ascii_case(name)) {
                names.push(name);
                input.extend(relaxed_field(field.whole));
            }
        }
        names.push("from");
        let algorithm = match &self.key {
            Key::Rsa(_) => "rsa-sha256",
            Key::Ed25519(_) => "ed25519-sha256",
        };
        let mut field = format!(
            "DKIM-Signature: v=1; a={algorithm}; c=relaxed/relaxed;\r\n d={}; s={};\r\n t={created_at}; h={};\r\n bh={};\r\n b=",
            self.domain,
            self.selector,
            names.join(":\r\n  "),
            BASE64_STANDARD.encode(body_hash),
        );
        let unsigned = relaxed_field(field.as_bytes());
        input.extend_from_slice(unsigned.strip_suffix(b"\r\n").unwrap_or(&unsigned));

        let signature = match &self.key {
            Key::Rsa(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), &input, &mut signature)
                    .map_err(|_| cannot())?;
                BASE64_STANDARD.encode(signature)
            }
            // RFC 8463: what is signed is the hash.
            Key::Ed25519(key) => {
                BASE64_STANDARD.encode(key.sign(digest::digest(&digest::SHA256, &input).as_ref()))
            }
        };
        for (at, character) in signature.chars().enumerate() {
            if at > 0 && at % 72 == 0 {
                field.push_str("\r\n  ");
            }
            field.push(character);
        }
        field.push_str("\r\n");
        let mut signed = field.into_bytes();
        signed.extend(message);
        Ok(signed)
    }
}

/// The first block of a PEM text.
fn der(pem: &str) -> Option<Vec<u8>> {
    let (_, after) = pem.split_once("-----BEGIN ")?;
    let (_, after) = after.split_once("-----")?;
    let (inside, _) = after.split_once("-----END ")?;
    let inside: String = inside.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    BASE64_STANDARD.decode(inside).ok()
}

/// RFC 6376 section 3.4.2: name in lower case, unfolded, blanks made one, none around the colon or at
/// the end.
fn relaxed_field(field: &[u8]) -> Vec<u8> {
    let colon = field.iter().position(|byte| *byte == b':').unwrap_or(field.len());
    let (name, value) = field.split_at(colon);
    let mut relaxed: Vec<u8> = name.trim_ascii_end().to_ascii_lowercase();
    relaxed.push(b':');
    push_relaxed(&mut relaxed, value.get(1..).unwrap_or_default().trim_ascii());
    relaxed.extend_from_slice(b"\r\n");
    relaxed
}

/// RFC 6376 section 3.4.4: blanks made one, none at the end of a line, no empty lines at the end.
fn relaxed_body(body: &[u8]) -> Vec<u8> {
    let mut relaxed = Vec::with_capacity(body.len());
    let mut rest = body;
    while !rest.is_empty() {
        let end = rest.windows(2).position(|pair| pair == b"\r\n");
        let (line, after) = match end {
            Some(end) => (&rest[..end], &rest[end + 2..]),
            None => (rest, &[][..]),
        };
        // A blank at the start of a line stays, as one.
        let blanks = line.len() - line.trim_ascii_start().len();
        if blanks > 0 && blanks < line.len() {
            relaxed.push(b' ');
        }
        push_relaxed(&mut relaxed, line.trim_ascii());
        relaxed.extend_from_slice(b"\r\n");
        rest = after;
    }
    while relaxed.ends_with(b"\r\n\r\n") {
        relaxed.truncate(relaxed.len() - 2);
    }
    if relaxed == b"\r\n" {
        relaxed.clear();
    }
    relaxed
}

fn push_relaxed(to: &mut Vec<u8>, text: &[u8]) {
    let mut blank = false;
    for byte in text {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => blank = true,
            byte => {
                if std::mem::take(&mut blank) {
                    to.push(b' ');
                }
                to.push(*byte);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 6376 section 3.4.5.
    #[test]
    fn fields_and_bodies_are_relaxed_as_the_standard_shows() {
        assert_eq!(relaxed_field(b"A: X\r\n"), b"a:X\r\n");
        assert_eq!(relaxed_field(b"B : Y\t\r\n\tZ  \r\n"), b"b:Y Z\r\n");
        assert_eq!(relaxed_body(b" C \r\nD \t E\r\n\r\n\r\n"), b" C\r\nD E\r\n");
        assert_eq!(relaxed_body(b""), b"");
        assert_eq!(relaxed_body(b"\r\n\r\n"), b"");
    }

    #[test]
    fn what_is_no_key_is_refused_without_showing_it() {
        let config = DkimConfig::new(
            "example.com",
            "s1",
            "-----BEGIN PRIVATE KEY-----\naHVzaA==\n-----END PRIVATE KEY-----",
        );
        let error = Signer::new(&config).map(drop).unwrap_err();
        assert_eq!(error.to_string(), "dkim.private_key is no RSA or Ed25519 key in PEM");
        assert!(!format!("{config:?}").contains("aHVzaA"));
    }
}
