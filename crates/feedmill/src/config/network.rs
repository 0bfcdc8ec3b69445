//! A network: an address, or all that begin with the same bits.
//!
//! In:    `10.0.0.0/8`, `2001:db8::/32`, `10.1.2.3`.
//! Out:   whether an address is in it.
//! Never: an IPv4 address taken for another because it was written as IPv6.

use std::net::IpAddr;

/// Addresses that begin with the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    base: IpAddr,
    bits: u32,
}

impl Network {
    /// The network that a text names.
    pub fn parse(text: &str) -> Option<Self> {
        let (base, bits) = match text.split_once('/') {
            Some((base, bits)) => (base, Some(bits.parse::<u32>().ok()?)),
            None => (text, None),
        };
        let base: IpAddr = base.parse().ok()?;
        let all = if base.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(all);
        (bits <= all).then_some(Self { base, bits })
    }

    /// Whether an address is in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        let same = |a: u128, b: u128, all: u32| {
            let rest = all - self.bits;
            rest >= 128 || a >> rest == b >> rest
        };
        match (self.base, address.to_canonical()) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                same(u32::from(base).into(), u32::from(address).into(), 32)
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => same(base.into(), address.into(), 128),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(network: &str, address: &str, inside: bool) {
        let network = Network::parse(network).unwrap();
        assert_eq!(
            network.contains(address.parse().unwrap()),
            inside,
            "{address}"
        );
    }

    #[test]
    fn a_network_holds_the_addresses_that_begin_as_it_does() {
        check("10.0.0.0/8", "10.9.8.7", true);
        check("10.0.0.0/8", "11.0.0.1", false);
        check("10.0.0.0/8", "::ffff:10.9.8.7", true);
        check("10.1.2.3", "10.1.2.4", false);
        check("0.0.0.0/0", "1.2.3.4", true);
        check("::/0", "2001:db8::1", true);
        check("2001:db8::/32", "2001:db8:1::1", true);
        check("2001:db8::/32", "2001:db9::1", false);
        for wrong in ["", "10.0.0.0/33", "::1/129", "host", "10.0.0.0/x"] {
            assert_eq!(Network::parse(wrong), None, "{wrong}");
        }
    }
}
