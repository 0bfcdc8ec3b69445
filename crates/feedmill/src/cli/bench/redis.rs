//! The baseline beside `bench fanout` and `bench memory`: a real Redis, pipelined ZADD and trim.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use super::Ending;
use super::load::connect_when_up;
use super::meter::cpu_of;

/// Commands sent before the answers are read.
const PIPELINE: usize = 1_000;

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It holds nothing worth a farewell.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// What is told where there is none.
pub(super) const MISSING: &str = "no redis-server on this machine: that baseline was not run";

/// A Redis of our own on this machine, without persistence; `None` if there is none to start.
fn start() -> Result<Option<(Server, TcpStream)>, Ending> {
    let port = std::net::TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port();
    let spawned = Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no"])
        .stdout(Stdio::null())
        .spawn();
    let Ok(child) = spawned else { return Ok(None) };
    let server = Server(child);
    let stream = connect_when_up(port, "redis-server")?;
    Ok(Some((server, stream)))
}

/// Pushes per CPU-second of the server into timelines of `items_max` entries; `None` without a Redis.
pub(super) fn pushes_per_cpu_s(
    timelines: u32,
    pushes: u32,
    items_max: usize,
) -> Result<Option<f64>, Ending> {
    let Some((server, mut stream)) = start()? else {
        return Ok(None);
    };
    // Full timelines first: trimming is part of a push.
    fill(&mut stream, timelines, items_max)?;
    let before = cpu_of(server.0.id())?;
    push(&mut stream, timelines, pushes, items_max)?;
    let spent = cpu_of(server.0.id())? - before;
    Ok(Some(f64::from(pushes) / spent.max(0.01)))
}

/// Memory of one entry in sorted sets of `items_max`; `None` without a Redis.
pub(super) fn bytes_per_entry(items_max: usize) -> Result<Option<f64>, Ending> {
    const TIMELINES: u32 = 2_000;
    let Some((_server, mut stream)) = start()? else {
        return Ok(None);
    };
    let before = used_memory(&mut stream)?;
    fill(&mut stream, TIMELINES, items_max)?;
    let used = used_memory(&mut stream)? - before;
    Ok(Some(used / (f64::from(TIMELINES) * items_max as f64)))
}

fn used_memory(stream: &mut TcpStream) -> Result<f64, Ending> {
    let mut out = Vec::new();
    command(&mut out, &["INFO", "memory"]);
    stream.write_all(&out)?;
    let (mut text, mut buffer) = (String::new(), [0u8; 65_536]);
    // The answer ends with an empty line of its own after the last value.
    while !text.ends_with("\r\n\r\n") {
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            return Err("redis-server hung up".into());
        }
        text.push_str(&String::from_utf8_lossy(buffer.get(..read).unwrap_or(&[])));
    }
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"))
        .and_then(|value| value.trim().parse().ok());
    value.ok_or_else(|| "redis-server tells no used_memory".into())
}

/// Gives every timeline `items_max` entries, older than those pushed later.
fn fill(stream: &mut TcpStream, timelines: u32, items_max: usize) -> Result<(), Ending> {
    for timeline in 0..timelines {
        let mut words = vec!["ZADD".to_owned(), format!("feed:user:{timeline}")];
        for item in 0..items_max as u64 {
            words.push((1_732_800_000 + item).to_string());
            words.push((1_000_000_000 + item * 7_919 + u64::from(timeline)).to_string());
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut out = Vec::new();
        command(&mut out, &words);
        stream.write_all(&out)?;
        answers(stream, 1)?;
    }
    Ok(())
}

fn push(
    stream: &mut TcpStream,
    timelines: u32,
    pushes: u32,
    items_max: usize,
) -> Result<(), Ending> {
    let mut out = Vec::new();
    let mut waiting = 0;
    for number in 0..pushes {
        let key = format!(
            "feed:user:{}",
            (u64::from(number) * 2_654_435_761) % u64::from(timelines)
        );
        command(
            &mut out,
            &[
                "ZADD",
                &key,
                &(1_732_900_000u64 + u64::from(number)).to_string(),
                &number.to_string(),
            ],
        );
        command(
            &mut out,
            &["ZREMRANGEBYRANK", &key, "0", &format!("-{}", items_max + 1)],
        );
        waiting += 2;
        if waiting >= PIPELINE || number + 1 == pushes {
            stream.write_all(&out)?;
            answers(stream, waiting)?;
            out.clear();
            waiting = 0;
        }
    }
    Ok(())
}

fn command(out: &mut Vec<u8>, words: &[&str]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
}

/// Reads that many integer answers: one line each.
fn answers(stream: &mut TcpStream, mut waiting: usize) -> Result<(), Ending> {
    let mut buffer = [0u8; 65_536];
    while waiting > 0 {
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            return Err("redis-server hung up".into());
        }
        let lines = buffer
            .iter()
            .take(read)
            .filter(|byte| **byte == b'\n')
            .count();
        waiting = waiting.saturating_sub(lines);
    }
    Ok(())
}
