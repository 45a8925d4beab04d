//! Which URLs a request may be sent to, judged before anything is resolved.

use reqwest::Url;

use crate::guard::Guard;

/// Reads a URL and refuses what no webhook should be sent to. The reason shows nothing of the URL.
pub(crate) fn parse(text: &str, allow_plain_http: bool, guard: &Guard) -> Result<Url, String> {
    // The URL parser drops tabs and line ends silently; here they are a sign of something else.
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("the URL holds a space or a control character".into());
    }
    // It takes backslashes for slashes; other readers of the same URL do not.
    if text.contains('\\') {
        return Err("the URL holds a backslash".into());
    }
    let url = Url::parse(text).map_err(|error| format!("the URL cannot be read: {error}"))?;
    match url.scheme() {
        "https" => {}
        "http" if allow_plain_http => {}
        "http" => return Err("the URL is plain http, which the configuration does not allow".into()),
        _ => return Err("the URL's scheme is not https".into()),
    }
    let Some(host) = url.host_str().filter(|_| names_host(text)) else {
        return Err("the URL has no host".into());
    };
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the URL holds credentials, which belong into the configured headers".into());
    }
    if url.fragment().is_some() {
        return Err("the URL has a fragment, which no request can carry".into());
    }
    if url.port() == Some(0) {
        return Err("the URL's port is 0".into());
    }
    guard.check_literal(host).map_err(|refused| refused.to_string())?;
    Ok(url)
}

/// Whether a host stands where it belongs, behind `://`. The URL parser also finds one behind fewer or more
/// slashes, and would take the first part of a path for it.
fn names_host(text: &str) -> bool {
    let behind = text.split_once(':').and_then(|(_, rest)| rest.strip_prefix("//"));
    behind.is_some_and(|rest| !rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// K4, K7: what can never be sent to is told by its reason alone.
    #[test]
    fn a_bad_url_is_refused_and_its_reason_shows_nothing_of_it() {
        for (url, reason) in [
            ("", "the URL cannot be read: relative URL without a base"),
            ("s3cret", "the URL cannot be read: relative URL without a base"),
            ("ftp://s3cret.example/", "the URL's scheme is not https"),
            ("file:///etc/s3cret", "the URL's scheme is not https"),
            ("gopher://s3cret.example", "the URL's scheme is not https"),
            ("http://s3cret.example/", "the URL is plain http, which the configuration does not allow"),
            ("https://", "the URL cannot be read: empty host"),
            ("https:///?s3cret", "the URL cannot be read: empty host"),
            ("https:///s3cret", "the URL has no host"),
            ("https:s3cret.example", "the URL has no host"),
            ("https:/s3cret.example", "the URL has no host"),
            ("https:\\\\s3cret.example", "the URL holds a backslash"),
            ("https://a.example\\s3cret", "the URL holds a backslash"),
            ("https:s3cret.example/?a=://b", "the URL has no host"),
            (
                "https://user:s3cret@a.example/",
                "the URL holds credentials, which belong into the configured headers",
            ),
            (
                "https://s3cret@a.example/",
                "the URL holds credentials, which belong into the configured headers",
            ),
            ("https://a.example/#s3cret", "the URL has a fragment, which no request can carry"),
            ("https://a.example:0/s3cret", "the URL's port is 0"),
            ("https://a.example:99999/s3cret", "the URL cannot be read: invalid port number"),
            ("https://a.example/s3cret\r\nx: y", "the URL holds a space or a control character"),
            (" https://a.example/", "the URL holds a space or a control character"),
            ("https://127.0.0.1/s3cret", "the address guard refuses loopback addresses"),
        ] {
            let refused = parse(url, false, &Guard::default()).unwrap_err();
            assert_eq!(refused, reason, "{url}");
            assert!(!refused.contains("s3cret"));
        }
    }

    #[test]
    fn an_address_in_disguise_is_the_address_it_is() {
        for host in [
            "127.1",
            "127.0.0.1.",
            "0x7f000001",
            "0x7f.1",
            "2130706433",
            "017700000001",
            "0",
            "%31%32%37.0.0.1",
            "１２７.0.0.1",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[0:0:0:0:0:0:0:1]",
            "[64:ff9b::a00:1]",
            "[fe80::1]",
            "100.64.0.1",
            "169.254.169.254",
        ] {
            let refused = parse(&format!("https://{host}/"), false, &Guard::default());
            assert!(refused.unwrap_err().starts_with("the address guard refuses"), "{host}");
        }
    }

    #[test]
    fn plain_http_is_for_those_who_ask() {
        assert!(parse("http://hooks.example/in", true, &Guard::default()).is_ok());
        assert!(parse("https://hooks.example:8443/in?token=a", false, &Guard::default()).is_ok());
    }
}
