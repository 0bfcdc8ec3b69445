//! `feedmill sim serve`: the simulated network alone.

use clap::{Args, Subcommand};
use sim::network::{Network, NetworkOptions};
use sim::world::{World, WorldOptions};

use super::{Ending, say};

/// Simulated networks.
#[derive(Debug, Subcommand)]
pub(super) enum Sim {
    /// Serve a simulated network on loopback until stopped
    Serve(Serve),
}

/// What to simulate.
#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Seed of the world; the same seed gives the same bytes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Accounts in the world
    #[arg(long, default_value_t = 2000)]
    accounts: usize,
    /// Events per second
    #[arg(long, default_value_t = 50.0)]
    rate: f64,
}

impl Sim {
    pub(super) fn run(self) -> Result<(), Ending> {
        let Self::Serve(serve) = self;
        super::runtime()?.block_on(serve.run())
    }
}

impl Serve {
    async fn run(self) -> Result<(), Ending> {
        let world = World::new(WorldOptions {
            seed: self.seed,
            accounts: self.accounts,
            start_us: crate::clock::Clock::Wall.now_us(),
            ..WorldOptions::default()
        });
        say(&format!(
            "seed {}; achieved marginals: {:?}",
            self.seed,
            world.marginals()
        ));
        let options = NetworkOptions {
            clock: sim::network::Clock::Wall,
            ..NetworkOptions::default()
        };
        let mut network = Network::start(world, options).await?;
        say(&format!("relay      {}", network.relay_ws_url()));
        say(&format!("jetstream  {}", network.jetstream_ws_url()));
        say(&format!("pds        {}", network.pds_url));
        say(&format!("plc        {}", network.plc_url));
        say(&format!("did:web    {}", network.web_url));
        network.pace(self.rate);
        super::run::until_asked_to_stop().await;
        network.stop().await;
        Ok(())
    }
}
