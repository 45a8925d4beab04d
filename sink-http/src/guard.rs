//! The address guard: which addresses a request may be sent to, and the resolver that holds to it.

use std::{
    error::Error,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Which addresses a request may be sent to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guard {
    /// Refuses nothing.
    pub(crate) allow_all: bool,
    /// Addresses that pass whatever else they are.
    pub(crate) allowed: Vec<IpNet>,
}

/// An address that the guard refuses. Its text names the range and leaves out the address: it ends up
/// beside the record, where whoever chose the URL may read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    range: &'static str,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the address guard refuses {} addresses", self.range)
    }
}

impl Error for Refused {}

impl Guard {
    /// Whether a request may be sent to this address.
    pub(crate) fn check(&self, address: IpAddr) -> Result<(), Refused> {
        let canonical = address.to_canonical();
        if self.allow_all || self.allowed.iter().any(|net| net.contains(&address) || net.contains(&canonical))
        {
            return Ok(());
        }
        match range(canonical) {
            Some(range) => Err(Refused { range }),
            None => Ok(()),
        }
    }

    /// Checks a URL's host if it is an address. The HTTP client asks no resolver for those.
    pub(crate) fn check_literal(&self, host: &str) -> Result<(), Refused> {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        bare.parse().map_or(Ok(()), |address| self.check(address))
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), bits)
}

const fn v6(high: [u16; 4], bits: u8) -> Ipv6Net {
    let [a, b, c, d] = high;
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0), bits)
}

/// What is not the public internet, by IANA's special-purpose registry.
const V4_RANGES: [(Ipv4Net, &str); 16] = [
    (v4(0, 0, 0, 0, 8), "unspecified"),
    (v4(10, 0, 0, 0, 8), "private"),
    (v4(100, 64, 0, 0, 10), "shared (carrier-grade NAT)"),
    (v4(127, 0, 0, 0, 8), "loopback"),
    // Cloud metadata services answer at 169.254.169.254.
    (v4(169, 254, 0, 0, 16), "link-local"),
    // Azure's metadata and agent endpoint: a public address that the host itself answers.
    (v4(168, 63, 129, 16, 32), "cloud metadata"),
    (v4(172, 16, 0, 0, 12), "private"),
    (v4(192, 0, 0, 0, 24), "reserved"),
    (v4(192, 0, 2, 0, 24), "documentation"),
    (v4(192, 88, 99, 0, 24), "6to4 relay"),
    (v4(192, 168, 0, 0, 16), "private"),
    (v4(198, 18, 0, 0, 15), "benchmarking"),
    (v4(198, 51, 100, 0, 24), "documentation"),
    (v4(203, 0, 113, 0, 24), "documentation"),
    (v4(224, 0, 0, 0, 4), "multicast"),
    (v4(240, 0, 0, 0, 4), "reserved"),
];

/// Named for the message; whatever else lies outside of 2000::/3 is refused as well.
const V6_RANGES: [(Ipv6Net, &str); 7] = [
    (v6([0xfc00, 0, 0, 0], 7), "unique local"),
    (v6([0xfe80, 0, 0, 0], 10), "link-local"),
    (v6([0xff00, 0, 0, 0], 8), "multicast"),
    (v6([0x64, 0xff9b, 1, 0], 48), "local NAT64"),
    // Teredo, benchmarking, ORCHID and other protocol assignments.
    (v6([0x2001, 0, 0, 0], 23), "reserved"),
    (v6([0x2001, 0xdb8, 0, 0], 32), "documentation"),
    (v6([0x3fff, 0, 0, 0], 20), "documentation"),
];

const V6_GLOBAL: Ipv6Net = v6([0x2000, 0, 0, 0], 3);
const V6_NAT64: Ipv6Net = v6([0x64, 0xff9b, 0, 0], 96);
const V6_6TO4: Ipv6Net = v6([0x2002, 0, 0, 0], 16);

/// The name of the special range that holds the address; none for the public internet.
fn range(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => range_v4(address),
        IpAddr::V6(address) => range_v6(address),
    }
}

fn range_v4(address: Ipv4Addr) -> Option<&'static str> {
    V4_RANGES.iter().find(|(net, _)| net.contains(&address)).map(|(_, name)| *name)
}

fn range_v6(address: Ipv6Addr) -> Option<&'static str> {
    if address.is_loopback() {
        return Some("loopback");
    }
    if address.is_unspecified() {
        return Some("unspecified");
    }
    let [.., a, b, c, d] = address.octets();
    if V6_NAT64.contains(&address) {
        // DNS64 networks reach public IPv4 through these, so what they stand for counts.
        return range_v4(Ipv4Addr::new(a, b, c, d));
    }
    if V6_6TO4.contains(&address) {
        let [_, _, a, b, c, d, ..] = address.octets();
        return range_v4(Ipv4Addr::new(a, b, c, d));
    }
    if let Some((_, name)) = V6_RANGES.iter().find(|(net, _)| net.contains(&address)) {
        return Some(name);
    }
    // IPv4-compatible addresses, site-local ones and what is not assigned.
    if V6_GLOBAL.contains(&address) { None } else { Some("reserved") }
}

/// Resolves names and hands out only addresses that the guard lets pass. The client connects to those
/// very addresses, so a name that changes its mind afterwards gains nothing.
pub(crate) struct GuardedResolver {
    pub(crate) guard: Arc<Guard>,
    pub(crate) inner: Arc<dyn Resolve>,
    /// The trusted proxy's host, which the operator chose: no record can.
    pub(crate) proxy_host: Option<String>,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let trusted = self.proxy_host.as_deref().is_some_and(|host| host.eq_ignore_ascii_case(name.as_str()));
        let resolving = self.inner.resolve(name);
        if trusted {
            return resolving;
        }
        let guard = Arc::clone(&self.guard);
        Box::pin(async move {
            let mut refused = None;
            let mut passed = Vec::new();
            for address in resolving.await? {
                match guard.check(address.ip()) {
                    Ok(()) => passed.push(address),
                    Err(error) => refused = Some(error),
                }
            }
            match refused {
                Some(refused) if passed.is_empty() => Err(refused.into()),
                _ => Ok(Box::new(passed.into_iter()) as Addrs),
            }
        })
    }
}

/// The system's resolver.
pub(crate) struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let addresses: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(guard: &Guard, address: &str) -> Option<&'static str> {
        guard.check(address.parse().unwrap()).err().map(|refused| refused.range)
    }

    #[test]
    fn what_is_not_the_public_internet_is_refused() {
        for (address, range) in [
            ("0.0.0.0", "unspecified"),
            ("0.1.2.3", "unspecified"),
            ("10.255.255.255", "private"),
            ("100.64.0.1", "shared (carrier-grade NAT)"),
            ("100.127.255.255", "shared (carrier-grade NAT)"),
            ("127.0.0.1", "loopback"),
            ("127.8.9.10", "loopback"),
            ("169.254.169.254", "link-local"),
            ("168.63.129.16", "cloud metadata"),
            ("172.16.0.1", "private"),
            ("172.31.255.255", "private"),
            ("192.0.0.192", "reserved"),
            ("192.0.2.1", "documentation"),
            ("192.168.1.1", "private"),
            ("198.18.0.1", "benchmarking"),
            ("198.19.255.255", "benchmarking"),
            ("198.51.100.7", "documentation"),
            ("203.0.113.7", "documentation"),
            ("224.0.0.1", "multicast"),
            ("240.0.0.1", "reserved"),
            ("255.255.255.255", "reserved"),
            ("::", "unspecified"),
            ("::1", "loopback"),
            ("::ffff:127.0.0.1", "loopback"),
            ("::ffff:10.0.0.1", "private"),
            ("::ffff:169.254.169.254", "link-local"),
            ("::127.0.0.1", "reserved"),
            ("::8.8.8.8", "reserved"),
            ("64:ff9b::10.0.0.1", "private"),
            ("64:ff9b::169.254.169.254", "link-local"),
            ("64:ff9b:1::8.8.8.8", "local NAT64"),
            ("2002:7f00:1::", "loopback"),
            ("2002:c0a8:101::1", "private"),
            ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "reserved"),
            ("2001:2::1", "reserved"),
            ("2001:db8::1", "documentation"),
            ("3fff::1", "documentation"),
            ("fc00::1", "unique local"),
            ("fd00:ec2::254", "unique local"),
            ("fe80::1", "link-local"),
            ("fec0::1", "reserved"),
            ("ff02::1", "multicast"),
            ("100::1", "reserved"),
            ("5f00::1", "reserved"),
            ("4000::1", "reserved"),
        ] {
            assert_eq!(refusal(&Guard::default(), address), Some(range), "{address}");
        }
    }

    #[test]
    fn the_public_internet_passes() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
            "2606:4700:4700::1111",
            "2a00:1450:4001::1",
        ] {
            assert_eq!(refusal(&Guard::default(), address), None, "{address}");
        }
    }

    #[test]
    fn only_the_allowed_networks_are_let_through() {
        let guard = Guard { allowed: vec!["10.1.0.0/16".parse().unwrap()], ..Guard::default() };
        assert_eq!(refusal(&guard, "10.1.2.3"), None);
        assert_eq!(refusal(&guard, "::ffff:10.1.2.3"), None);
        assert_eq!(refusal(&guard, "10.2.0.1"), Some("private"));
        let off = Guard { allow_all: true, ..Guard::default() };
        assert_eq!(refusal(&off, "127.0.0.1"), None);
    }

    #[test]
    fn a_literal_host_is_checked_and_a_name_is_left_to_the_resolver() {
        let guard = Guard::default();
        assert!(guard.check_literal("127.0.0.1").is_err());
        assert!(guard.check_literal("[::1]").is_err());
        assert!(guard.check_literal("[2606:4700:4700::1111]").is_ok());
        assert!(guard.check_literal("hooks.example").is_ok());
    }
}
