//! Opening: what happens before a stage can start.
//!
//! In:    the configuration.
//! Out:   an address that answers, and the right to ingest.
//! Never: a store opened for ingestion while another process ingests into it.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::info;

use super::{Role, StartError};
use crate::config::Config;
use crate::lease::{Claim, Lease};
use crate::serve::allowed_hosts::AllowedHosts;
use crate::serve::line;
use crate::serve::starting::{Doing, Starting};

/// The address of the process, bound before anything else is opened.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) address: SocketAddr,
    pub(super) starting: Arc<Starting>,
    pub(super) task: JoinHandle<()>,
}

impl Door {
    pub(super) async fn open(
        config: &Config,
        role: Role,
        stop: watch::Receiver<bool>,
    ) -> Result<Self, StartError> {
        let (intake, serve) = (&config.intake, &config.serve);
        let (setting, bind, hosts) = match role {
            Role::Ingest => {
                let hosts = AllowedHosts::ingesting(intake, serve);
                ("intake.bind", &intake.bind, hosts)
            }
            Role::Serve | Role::All => ("serve.bind", &serve.bind, AllowedHosts::serving(serve)),
        };
        let listen = |source| StartError::Listen {
            setting,
            address: bind.clone(),
            source,
        };
        let listener = tokio::net::TcpListener::bind(bind).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let starting = Arc::new(Starting::new(hosts));
        let (settings, answers) = (config.serve.clone(), Arc::clone(&starting));
        let task = tokio::spawn(async move {
            line::run(listener, answers, &settings, stop).await;
        });
        Ok(Self {
            address,
            starting,
            task,
        })
    }
}

/// The right to ingest into the store. Waits for it, on standby, while another process has it.
pub(super) async fn lease(config: &Config, door: &Door) -> Result<Lease, StartError> {
    let wait = match Lease::claim(&config.store).map_err(StartError::Lease)? {
        Claim::Held(lease) => return Ok(lease),
        Claim::Taken(wait) => wait,
    };
    info!("another process ingests into this store; on standby until it ends");
    door.starting.now(Doing::Standby);
    let lease = wait.lease().await.map_err(StartError::Lease)?;
    info!("the other process has ended; this one ingests now");
    Ok(lease)
}
