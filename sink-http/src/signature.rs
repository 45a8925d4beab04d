//! Standard Webhooks signatures: the secrets, and the header that they make.

use std::{fmt, str::FromStr, sync::Arc};

use aws_lc_rs::{
    hmac,
    signature::{Ed25519KeyPair, KeyPair},
};
use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
    prelude::BASE64_STANDARD,
};
use serde::Deserialize;

/// Secrets come from consoles and files, with and without padding.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A key that webhooks are signed with, in the form that [Standard Webhooks](https://www.standardwebhooks.com)
/// gives it.
///
/// | text | signs |
/// |---|---|
/// | `whsec_` and 24 to 64 bytes in base64 | `v1`: HMAC-SHA256, the receiver holds the same secret |
/// | `whsk_` and an Ed25519 key in base64 (its 32 byte seed, or seed and public key) | `v1a`: the receiver holds [`public_key`](Self::public_key) |
///
/// # Examples
///
/// ```
/// use sink_http::Secret;
///
/// let secret: Secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse()?;
/// assert_eq!(format!("{secret:?}"), "Secret(v1)");
/// assert!("whsec_short".parse::<Secret>().is_err());
/// # Ok::<(), sink_http::InvalidSecret>(())
/// ```
#[derive(Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct Secret(Key);

#[derive(Clone)]
enum Key {
    Hmac(Arc<hmac::Key>),
    Ed25519(Arc<Ed25519KeyPair>),
}

/// A text that is no [`Secret`]. It shows nothing of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidSecret(&'static str);

impl fmt::Display for InvalidSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for InvalidSecret {}

impl Secret {
    /// What a receiver verifies `v1a` with: `whpk_` and the public key in base64. None for `whsec_`.
    pub fn public_key(&self) -> Option<String> {
        match &self.0 {
            Key::Hmac(_) => None,
            Key::Ed25519(pair) => {
                Some(format!("whpk_{}", BASE64_STANDARD.encode(pair.public_key().as_ref())))
            }
        }
    }

    /// Writes `v1,…` or `v1a,…`.
    fn sign(&self, content: &[u8], header: &mut String) {
        match &self.0 {
            Key::Hmac(key) => {
                header.push_str("v1,");
                BASE64_STANDARD.encode_string(hmac::sign(key, content), header);
            }
            Key::Ed25519(pair) => {
                header.push_str("v1a,");
                BASE64_STANDARD.encode_string(pair.sign(content), header);
            }
        }
    }
}

/// The value of `webhook-signature`: one signature a secret, so that a receiver that holds any of
/// them can verify. `timestamp` is in seconds since 1970.
pub(crate) fn header(secrets: &[Secret], id: &str, timestamp: u64, body: &[u8]) -> String {
    let mut content = format!("{id}.{timestamp}.").into_bytes();
    content.extend_from_slice(body);
    let mut header = String::with_capacity(96 * secrets.len());
    for secret in secrets {
        if !header.is_empty() {
            header.push(' ');
        }
        secret.sign(&content, &mut header);
    }
    header
}

impl FromStr for Secret {
    type Err = InvalidSecret;

    fn from_str(text: &str) -> Result<Self, InvalidSecret> {
        let decode =
            |base64: &str| LENIENT.decode(base64).map_err(|_| InvalidSecret("the secret is not base64"));
        if let Some(base64) = text.strip_prefix("whsec_") {
            let bytes = decode(base64)?;
            if !(24..=64).contains(&bytes.len()) {
                return Err(InvalidSecret("a `whsec_` secret holds 24 to 64 bytes"));
            }
            return Ok(Self(Key::Hmac(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))));
        }
        if let Some(base64) = text.strip_prefix("whsk_") {
            let bytes = decode(base64)?;
            let pair = match bytes.split_at_checked(32) {
                Some((seed, [])) => Ed25519KeyPair::from_seed_unchecked(seed),
                Some((seed, public)) => Ed25519KeyPair::from_seed_and_public_key(seed, public),
                None => return Err(InvalidSecret("a `whsk_` secret holds 32 or 64 bytes")),
            };
            return pair
                .map(|pair| Self(Key::Ed25519(Arc::new(pair))))
                .map_err(|_| InvalidSecret("a `whsk_` secret is an Ed25519 seed, or seed and public key"));
        }
        if text.starts_with("whpk_") {
            return Err(InvalidSecret("a public key (`whpk_`) cannot sign"));
        }
        Err(InvalidSecret("a secret starts with `whsec_` or `whsk_`"))
    }
}

impl TryFrom<String> for Secret {
    type Error = InvalidSecret;

    fn try_from(text: String) -> Result<Self, InvalidSecret> {
        text.parse()
    }
}

/// Shows the signature scheme, never the key.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Key::Hmac(_) => "Secret(v1)",
            Key::Ed25519(_) => "Secret(v1a)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHSEC: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    /// The test vector that the specification's libraries share.
    #[test]
    fn v1_is_the_published_signature() {
        let secret = WHSEC.parse().unwrap();
        let body = br#"{"test": 2432232314}"#;
        let header = header(&[secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(header, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    /// The first test vector of RFC 8032 gives the public key of its seed.
    #[test]
    fn a_whsk_secret_may_be_a_seed_alone_or_with_its_public_key() {
        let seed = hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
        let public = hex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
        let text = |bytes: &[u8]| format!("whsk_{}", BASE64_STANDARD.encode(bytes));
        let alone: Secret = text(&seed).parse().unwrap();
        let both: Secret = text(&[seed.clone(), public.clone()].concat()).parse().unwrap();
        let expected = Some(format!("whpk_{}", BASE64_STANDARD.encode(&public)));
        assert_eq!((alone.public_key(), both.public_key()), (expected.clone(), expected));

        let foreign = [seed, vec![7; 32]].concat();
        assert!(text(&foreign).parse::<Secret>().is_err());
    }

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn secrets_sign_side_by_side() {
        let secrets = [
            WHSEC.parse().unwrap(),
            format!("whsk_{}", BASE64_STANDARD.encode([7; 32])).parse().unwrap(),
            format!("whsec_{}", BASE64_STANDARD.encode([9; 24])).parse().unwrap(),
        ];
        let header = header(&secrets, "id", 1, b"");
        let schemes: Vec<_> = header.split(' ').map(|one| one.split(',').next().unwrap()).collect();
        assert_eq!(schemes, ["v1", "v1a", "v1"]);
    }

    /// K7: neither a bad secret nor a good one is shown.
    #[test]
    fn a_bad_secret_is_refused_without_being_shown() {
        for bad in [
            "",
            "c2VjcmV0",
            "whsec_",
            "whsec_c2VjcmV0",
            "whsec_!!!",
            "whsk_c2VjcmV0",
            "whpk_c2VjcmV0",
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n",
        ] {
            let error = bad.parse::<Secret>().unwrap_err().to_string();
            assert!(!error.contains("c2VjcmV0") && !error.contains('!'), "{error}");
        }
        assert_eq!(format!("{:?}", WHSEC.parse::<Secret>().unwrap()), "Secret(v1)");
    }
}
