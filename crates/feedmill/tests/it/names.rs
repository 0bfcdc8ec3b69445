//! A DNS server on this machine, for names that the tests give out.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

/// What a name holds.
#[derive(Debug, Clone)]
pub(crate) enum Held {
    Address(Ipv4Addr),
    Text(&'static str),
}

/// A server that answers for these names and says of all others that they do not exist.
pub(crate) fn serve(names: &[(&str, Held)]) -> SocketAddr {
    let mut zone: BTreeMap<String, Vec<Held>> = BTreeMap::new();
    for (name, held) in names {
        zone.entry((*name).to_owned())
            .or_default()
            .push(held.clone());
    }
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            if let Some(answer) = answer(&buffer[..length], &zone) {
                socket.send_to(&answer, from).unwrap();
            }
        }
    });
    address
}

const A: u16 = 1;
const TXT: u16 = 16;

fn answer(query: &[u8], zone: &BTreeMap<String, Vec<Held>>) -> Option<Vec<u8>> {
    let mut labels = Vec::new();
    let mut at = 12;
    while query[at] != 0 {
        let length = usize::from(query[at]);
        labels.push(String::from_utf8_lossy(&query[at + 1..=at + length]).to_ascii_lowercase());
        at += length + 1;
    }
    let question = &query[12..at + 5];
    let kind = u16::from_be_bytes([query[at + 1], query[at + 2]]);
    let held = zone.get(&labels.join("."));
    let datas: Vec<Vec<u8>> = held
        .into_iter()
        .flatten()
        .filter_map(|held| match (held, kind) {
            (Held::Address(address), A) => Some(address.octets().to_vec()),
            (Held::Text(text), TXT) => {
                let mut data = vec![u8::try_from(text.len()).unwrap()];
                data.extend_from_slice(text.as_bytes());
                Some(data)
            }
            _ => None,
        })
        .collect();
    let unknown = if held.is_none() { 3 } else { 0 };
    let mut out = query[..2].to_vec();
    out.extend([0x84, 0x80 | unknown, 0, 1]);
    out.extend(u16::try_from(datas.len()).unwrap().to_be_bytes());
    out.extend([0, 0, 0, 0]);
    out.extend_from_slice(question);
    for data in datas {
        out.extend([0xc0, 12]);
        out.extend(kind.to_be_bytes());
        out.extend([0, 1, 0, 0, 0, 60]);
        out.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
        out.extend(data);
    }
    Some(out)
}
