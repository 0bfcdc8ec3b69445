//! A server in another process, and clients that ask it as fast as it answers.
//!
//! In:    a command that serves; requests, made up as they are sent.
//! Out:   answers counted, and the server's processor time: the clients' does not count.
//! Never: an answer taken for good that is not 200, 201 or 204.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sim::rng::Rng;

use super::Ending;
use super::meter::cpu_of;

/// Connections kept open at once.
const CONNECTIONS: usize = 4;
/// How often a server that is starting is tried, and the pause between.
const CONNECTS_MAX: usize = 600;
const CONNECT_PAUSE: Duration = Duration::from_millis(50);

/// A serving process; dropping it ends it.
#[derive(Debug)]
pub(super) struct Served {
    child: Child,
    pub(super) address: String,
}

impl Served {
    /// Runs this binary with these arguments until it says where it serves.
    pub(super) fn start(arguments: &[&str]) -> Result<Self, Ending> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .env("RUST_LOG", "error")
            .stdout(Stdio::piped())
            .spawn()?;
        let out = child.stdout.take().ok_or("the server has no output")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        let address = line
            .trim()
            .strip_prefix("serving on http://")
            .ok_or("the server did not start")?
            .trim_end_matches('/')
            .to_owned();
        Ok(Self { child, address })
    }

    /// CPU-seconds for each of `count` requests, and the mean bytes of a body.
    pub(super) fn measure(
        &self,
        count: usize,
        request: &(dyn Fn(&mut Rng) -> String + Sync),
    ) -> Result<Measured, Ending> {
        self.measure_with(CONNECTIONS, count, request)
    }

    /// The same with so many requests in flight.
    pub(super) fn measure_with(
        &self,
        connections: usize,
        count: usize,
        request: &(dyn Fn(&mut Rng) -> String + Sync),
    ) -> Result<Measured, Ending> {
        let before = cpu_of(self.child.id())?;
        let next = AtomicUsize::new(0);
        let work = |seed: u64| -> Result<usize, String> {
            let mut client = Client::connect(&self.address).map_err(|error| error.to_string())?;
            let mut rng = Rng::new(seed);
            let mut bytes = 0;
            while next.fetch_add(1, Ordering::Relaxed) < count {
                bytes += client.ask(&request(&mut rng))?.len();
            }
            Ok(bytes)
        };
        let mut bytes = 0;
        std::thread::scope(|scope| {
            let work = &work;
            let clients: Vec<_> = (0..connections as u64)
                .map(|number| scope.spawn(move || work(next_seed(number))))
                .collect();
            for client in clients {
                bytes += client.join().map_err(|_| "a client panicked")??;
            }
            Ok::<(), Ending>(())
        })?;
        let cpu_s = cpu_of(self.child.id())? - before;
        Ok(Measured {
            cpu_s: cpu_s / count as f64,
            bytes: bytes / count.max(1),
        })
    }

    /// One answer's body.
    pub(super) fn once(&self, request: &str) -> Result<Vec<u8>, Ending> {
        let mut client = Client::connect(&self.address)?;
        Ok(client.ask(request)?.to_vec())
    }
}

/// A connection to a server that is starting on this machine.
pub(super) fn connect_when_up(port: u16, server: &str) -> Result<TcpStream, Ending> {
    for _ in 0..CONNECTS_MAX {
        if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
            stream.set_nodelay(true)?;
            return Ok(stream);
        }
        std::thread::sleep(CONNECT_PAUSE);
    }
    Err(format!("{server} does not answer").into())
}

/// A seed that differs between connections and between measurements.
fn next_seed(number: u64) -> u64 {
    static ROUND: AtomicUsize = AtomicUsize::new(0);
    number * 1_000_003 + ROUND.fetch_add(1, Ordering::Relaxed) as u64
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// What requests of one kind cost the server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    /// CPU-seconds each.
    pub(super) cpu_s: f64,
    /// Mean bytes of a body.
    pub(super) bytes: usize,
}

/// One connection. It speaks as much HTTP as it takes to ask and to count.
struct Client {
    stream: TcpStream,
    /// No longer than an answer, and never cleared: a client that moves much memory
    /// takes the processor's caches from the server.
    buffer: Vec<u8>,
}

impl Client {
    fn connect(address: &str) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: vec![0; 8192],
        })
    }

    /// Sends a request (perhaps its verb, its path, and further header lines; then, behind a zero,
    /// what is posted) and reads the body of the answer.
    fn ask(&mut self, request: &str) -> Result<&[u8], String> {
        let (asked, body) = request.split_once('\0').unwrap_or((request, ""));
        let (path, headers) = asked.split_once('\n').unwrap_or((asked, ""));
        let (verb, length) = match body.len() {
            0 => ("GET", String::new()),
            bytes => ("POST", format!("content-length: {bytes}\r\n")),
        };
        let (verb, path) = path.split_once(' ').unwrap_or((verb, path));
        let text =
            format!("{verb} {path} HTTP/1.1\r\nhost: localhost\r\n{length}{headers}\r\n{body}");
        let sent = self.stream.write_all(text.as_bytes());
        sent.map_err(|error| error.to_string())?;
        let mut filled = 0;
        let (begins, length) = loop {
            filled += self.read(filled)?;
            if let Some(head) = head(self.buffer.get(..filled).unwrap_or_default())? {
                break head;
            }
        };
        while filled < begins + length {
            filled += self.read(filled)?;
        }
        Ok(self.buffer.get(begins..begins + length).unwrap_or_default())
    }

    /// Reads more behind what is there; how much.
    fn read(&mut self, filled: usize) -> Result<usize, String> {
        if filled == self.buffer.len() {
            self.buffer.resize(filled * 2, 0);
        }
        let room = self.buffer.get_mut(filled..).unwrap_or_default();
        match self.stream.read(room).map_err(|error| error.to_string())? {
            0 => Err("the server hung up".into()),
            read => Ok(read),
        }
    }
}

/// Where the body begins and how long it is, once the head is there.
fn head(bytes: &[u8]) -> Result<Option<(usize, usize)>, String> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).to_ascii_lowercase();
    if head.starts_with("http/1.1 204") {
        return Ok(Some((end + 4, 0)));
    }
    if !head.starts_with("http/1.1 200") && !head.starts_with("http/1.1 201") {
        let answer = String::from_utf8_lossy(bytes).into_owned();
        return Err(format!("not a 200: {answer}"));
    }
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"))
        .and_then(|text| text.trim().parse().ok());
    match length {
        Some(length) => Ok(Some((end + 4, length))),
        None => Err("an answer without a length".into()),
    }
}
