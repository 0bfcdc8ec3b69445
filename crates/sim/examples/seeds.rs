//! Writes bytes of a simulated network for a fuzzer to begin with: frames,
//! archives, and records as CBOR.
//!
//! The argument is a folder; `frame`, `car`, `cbor` and `record` are made in it.

use std::io;
use std::path::PathBuf;

use record::event::Frame;
use sim::event::Body;
use sim::traffic::Traffic;
use sim::world::{World, WorldOptions};

/// Events to write; the kinds repeat soon.
const EVENTS_MAX: usize = 400;

fn main() -> io::Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).unwrap_or("seeds".into()));
    for kind in ["frame", "car", "cbor", "record"] {
        std::fs::create_dir_all(folder.join(kind))?;
    }
    let mut world = World::new(WorldOptions {
        accounts: 10,
        traffic: Traffic::wild(),
        ..WorldOptions::default()
    });
    let mut events = world.take_genesis();
    while events.len() < EVENTS_MAX {
        events.extend(world.step());
    }
    for (number, event) in events.iter().enumerate() {
        let put = |kind: &str, bytes: &[u8]| {
            std::fs::write(folder.join(kind).join(number.to_string()), bytes)
        };
        put("frame", &event.frame)?;
        if let Ok(Frame::Commit(commit)) = Frame::parse(&event.frame) {
            put("car", commit.blocks)?;
        }
        if let Body::Commit { ops, .. } = &event.body {
            for (_, block) in ops.iter().filter_map(|op| op.record.as_ref()) {
                put("cbor", block)?;
                put("record", block)?;
            }
        }
    }
    Ok(())
}
