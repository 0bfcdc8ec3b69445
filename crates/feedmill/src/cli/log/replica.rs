//! `feedmill log replicate`: a file as the replica of a space.
//!
//! In:    a space of a server, a file, what of the space is wanted.
//! Out:   the file, kept equal until interrupted; with `--once` until it was equal once.
//! Never: an end with `--once` while something is missing here or there.

use std::sync::Arc;
use std::time::Duration;

use blocklog::cursor::Epoch;
use blocklog::message::Fault;
use blocklog::page::PageMax;
use blocklog::replica::{Mode, Target, pushed};
use blocklog::store::{LogStore as _, ReplicaStore as _};
use replicate::access::Keys;
use replicate::keeper;
use replicate::log::Log as LocalLog;
use replicate::peer::{Peer, PeerSettings};
use replicate::settings::LogSettings;
use replicate::sqlite::SqliteLog;
use replicate::time::Time;
use serde_json::{Value, json};

use super::super::{Ending, say};
use super::{Place, Trouble, token};

const ONE: PageMax = PageMax {
    blocks: 1,
    bytes: 1,
};

pub(super) async fn run(
    place: &Place,
    file: &std::path::Path,
    lanes: Vec<(Target, Mode)>,
    once: bool,
) -> Result<(), Ending> {
    let store = Arc::new(SqliteLog::open(file)?);
    let log = LocalLog::new(
        Arc::clone(&store),
        LogSettings::default(),
        Keys::default(),
        Time::wall(),
    );
    let url = place.server.replacen("http", "ws", 1);
    let settings = PeerSettings {
        url,
        space: place.space.clone(),
        lanes,
        token: token(),
    };
    let peer = Peer::new(log.clone(), settings)?;
    if once {
        // What nobody has written to yet is made now, so that there is something to compare with.
        match place
            .ask("query", &json!({"requestId": "there", "tail": true}))
            .await
        {
            Err(Trouble::Fault(Fault::UnknownSpace)) => {
                place.ask("create", &json!({"requestId": "create"})).await?;
            }
            other => drop(other?),
        }
    }
    let (sender, stop) = tokio::sync::watch::channel(false);
    // What another process writes into the file is noticed and sent.
    let keeping = tokio::spawn(keeper::run(log, stop.clone()));
    let reports = peer.reports();
    let running = tokio::spawn(peer.run(stop));
    let mut refused = None;
    if once {
        while refused.is_none() && !is_whole(place, &store).await? {
            tokio::time::sleep(Duration::from_millis(100)).await;
            refused = reports.now().refused;
        }
    } else {
        tokio::signal::ctrl_c().await?;
    }
    sender.send_replace(true);
    running.await?;
    keeping.await?;
    let state = store.space(&place.space)?;
    let position_max = state.map_or(0, |state| state.position_max);
    let mut line = json!({"space": place.space, "maxPosition": position_max});
    let unsent = store.unsent_count(&place.space)?;
    if let Some(fields) = line.as_object_mut()
        && unsent > 0
    {
        fields.insert("waitingNotReplicated".into(), json!(unsent));
    }
    say(&line.to_string());
    if let Some(code) = refused {
        return Err(Trouble::RefusesAll(code).into());
    }
    match store.conflicts(&place.space, usize::MAX)?.len() {
        0 => Ok(()),
        left => Err(Trouble::Aside(left, file.to_owned()).into()),
    }
}

/// Whether everything the server had a moment ago is here, and nothing waits to be sent.
async fn is_whole(place: &Place, store: &SqliteLog) -> Result<bool, Ending> {
    let question = json!({"requestId": "end", "tail": true});
    let answer = place.ask("query", &question).await?;
    let there = answer.get("maxPosition").and_then(Value::as_u64);
    let epoch = answer.get("epoch").and_then(Value::as_str);
    let upstream = store.upstream(&place.space)?;
    if upstream.healing || upstream.epoch != epoch.and_then(Epoch::from_text) {
        return Ok(false); // what is here is of another history
    }
    let lanes = store.lanes(&place.space)?;
    let pulled = lanes.iter().filter(|lane| lane.mode != Mode::None);
    let here = pulled.map(|lane| lane.after).min().unwrap_or(0);
    let (only, apart) = pushed(&lanes);
    let waits = store.pending(&place.space, only.as_deref(), &apart, ONE)?;
    let resolved = lanes.iter().all(|lane| lane.resolved);
    let lost = store.lost_feed(&place.space)?.is_some();
    Ok(resolved && !lost && waits.is_empty() && there.is_some_and(|there| here >= there))
}
