//! What a text may hold before it becomes part of a header or a command.

use lettre::{Address, message::Mailbox as LettreMailbox};

use crate::{InvalidEmail, Mailbox};

/// The longest text of one header, in bytes, before it is encoded.
pub(crate) const HEADER_BYTES_MAX: usize = 16 * 1024;

/// The longest line that SMTP carries, in bytes, without its CRLF.
pub(crate) const LINE_BYTES_MAX: usize = 998;

/// Refuses every control character: a line break would begin a header or a command of its own.
pub(crate) fn one_line(field: &str, text: &str) -> Result<(), InvalidEmail> {
    if text.len() > HEADER_BYTES_MAX {
        return Err(InvalidEmail::new(field, "is longer than 16 KiB"));
    }
    match text.char_indices().find(|(_, c)| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')) {
        Some((at, c)) => Err(InvalidEmail::new(field, format!("holds {c:?} at byte {at}"))),
        None => Ok(()),
    }
}

/// As [`one_line`], but printable ASCII alone, without blanks and angle brackets: for what stands in
/// `<…>` and cannot be encoded.
pub(crate) fn token(field: &str, text: &str, bytes_max: usize) -> Result<(), InvalidEmail> {
    if text.is_empty() {
        return Err(InvalidEmail::new(field, "is empty"));
    }
    if text.len() > bytes_max {
        return Err(InvalidEmail::new(field, format!("is longer than {bytes_max} bytes")));
    }
    match text.char_indices().find(|(_, c)| !c.is_ascii_graphic() || matches!(c, '<' | '>')) {
        Some((at, c)) => Err(InvalidEmail::new(field, format!("holds {c:?} at byte {at}"))),
        None => Ok(()),
    }
}

/// The address, its domain as DNS spells it. A local part beyond ASCII stays: it needs SMTPUTF8.
pub(crate) fn address(field: &str, text: &str) -> Result<Address, InvalidEmail> {
    one_line(field, text)?;
    let invalid = || InvalidEmail::new(field, "is no address");
    let (local, domain) = text.rsplit_once('@').ok_or_else(invalid)?;
    let domain = if domain.is_ascii() {
        domain.to_owned()
    } else {
        idna::domain_to_ascii(domain).map_err(|_| invalid())?
    };
    Address::new(local, &domain).map_err(|_| invalid())
}

pub(crate) fn mailbox(field: &str, mailbox: &Mailbox) -> Result<LettreMailbox, InvalidEmail> {
    if let Some(name) = &mailbox.name {
        one_line(field, name)?;
    }
    let name = mailbox.name.as_deref().map(str::trim).filter(|name| !name.is_empty());
    Ok(LettreMailbox::new(name.map(str::to_owned), address(field, &mailbox.address)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_are_spelled_as_dns_does_and_local_parts_stay() {
        let spelled = |text| address("to", text).map(|address| address.to_string());
        assert_eq!(spelled("ann@bücher.example").unwrap(), "ann@xn--bcher-kva.example");
        assert_eq!(spelled("änn@example.com").unwrap(), "änn@example.com");
        assert_eq!(spelled("\"a b\"@example.com").unwrap(), "\"a b\"@example.com");
    }

    /// K6: nothing that an address holds becomes a command.
    #[test]
    fn what_is_no_address_is_refused_without_showing_it() {
        for text in [
            "",
            "ann",
            "ann@",
            "@example.com",
            "ann@exa mple.com",
            "a@b@c d",
            "ann@example.com>",
            "<ann@example.com",
        ] {
            let error = address("to[0]", text).unwrap_err();
            assert_eq!(error.to_string(), "to[0] is no address", "{text}");
        }
        for text in [
            "ann@example.com\r\nRCPT TO:<eve@example.com>",
            "an\nn@example.com",
            "ann\r@example.com",
            "ann\0@example.com",
        ] {
            let error = address("to[0]", text).unwrap_err();
            assert!(error.to_string().starts_with("to[0] holds '"), "{error}");
        }
    }
}
