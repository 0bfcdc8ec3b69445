//! From a [`Frame`] to the bytes of one message.

use crate::cbor::Writer;
use crate::tid::Tid;

use super::{
    AccountEvent, Action, CommitEvent, Frame, IdentityEvent, InfoEvent, RepoOp, SyncEvent,
};

pub(super) fn frame(frame: &Frame<'_>) -> Vec<u8> {
    let mut writer = Writer::with_capacity(match frame {
        Frame::Commit(event) => 512 + event.blocks.len() + 256 * event.ops.len(),
        Frame::Sync(event) => 512 + event.blocks.len(),
        _ => 512,
    });
    match frame {
        Frame::Commit(event) => commit(message(&mut writer, "#commit"), event),
        Frame::Sync(event) => sync(message(&mut writer, "#sync"), event),
        Frame::Identity(event) => identity(message(&mut writer, "#identity"), event),
        Frame::Account(event) => account(message(&mut writer, "#account"), event),
        Frame::Info(event) => info(message(&mut writer, "#info"), event),
        Frame::Unknown { kind } => {
            message(&mut writer, kind).map(0);
        }
        Frame::Error { error, message } => {
            writer.map(1).text("op").int(-1);
            writer.map(1 + usize::from(message.is_some()));
            writer.text("error").text(error);
            if let Some(message) = message {
                writer.text("message").text(message);
            }
        }
    }
    writer.into_bytes()
}

fn message<'w>(writer: &'w mut Writer, kind: &str) -> &'w mut Writer {
    writer.map(2).text("t").text(kind).text("op").int(1)
}

fn tid(writer: &mut Writer, tid: Tid) {
    writer.text(std::str::from_utf8(&tid.to_text()).expect("a tid is ASCII"));
}

fn commit(writer: &mut Writer, event: &CommitEvent<'_>) {
    writer.map(11 + usize::from(event.prev_data.is_some()));
    writer.text("ops").list(event.ops.len());
    for operation in &event.ops {
        op(writer, operation);
    }
    tid(writer.text("rev"), event.rev);
    writer.text("seq").int(event.seq);
    writer.text("repo").text(event.repo);
    writer.text("time").text(event.time);
    writer.text("blobs").list(0);
    match event.since {
        Some(since) => tid(writer.text("since"), since),
        None => {
            writer.text("since").null();
        }
    }
    writer.text("blocks").bytes(event.blocks);
    writer.text("commit").link(&event.commit);
    writer.text("rebase").bool(event.rebase);
    writer.text("tooBig").bool(event.too_big);
    if let Some(prev_data) = &event.prev_data {
        writer.text("prevData").link(prev_data);
    }
}

fn op(writer: &mut Writer, op: &RepoOp<'_>) {
    writer.map(3 + usize::from(op.prev.is_some()));
    writer.text("cid").link_or_null(op.cid.as_ref());
    writer.text("path").text(op.path);
    if let Some(prev) = &op.prev {
        writer.text("prev").link(prev);
    }
    writer.text("action").text(match op.action {
        Action::Create => "create",
        Action::Update => "update",
        Action::Delete => "delete",
    });
}

fn sync(writer: &mut Writer, event: &SyncEvent<'_>) {
    writer.map(5).text("did").text(event.did);
    tid(writer.text("rev"), event.rev);
    writer.text("seq").int(event.seq);
    writer.text("time").text(event.time);
    writer.text("blocks").bytes(event.blocks);
}

fn identity(writer: &mut Writer, event: &IdentityEvent<'_>) {
    writer.map(3 + usize::from(event.handle.is_some()));
    writer.text("did").text(event.did);
    writer.text("seq").int(event.seq);
    writer.text("time").text(event.time);
    if let Some(handle) = event.handle {
        writer.text("handle").text(handle);
    }
}

fn account(writer: &mut Writer, event: &AccountEvent<'_>) {
    writer.map(4 + usize::from(event.status.is_some()));
    writer.text("did").text(event.did);
    writer.text("seq").int(event.seq);
    writer.text("time").text(event.time);
    writer.text("active").bool(event.active);
    if let Some(status) = event.status {
        writer.text("status").text(status);
    }
}

fn info(writer: &mut Writer, event: &InfoEvent<'_>) {
    writer.map(1 + usize::from(event.message.is_some()));
    writer.text("name").text(event.name);
    if let Some(message) = event.message {
        writer.text("message").text(message);
    }
}
