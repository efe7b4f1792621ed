//! `trainyard keys`: who may use the endpoint.

use anyhow::Context;

use crate::config::{Config, Flags};
use crate::exit::{Exit, Refused};
use crate::keys::Keys;
use crate::show::out;

/// List, make and remove the keys with which clients sign their requests
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  trainyard keys\n  trainyard keys add\n  trainyard keys remove TRAINYARDABCDEFGHIJK

A running endpoint takes changes at once."
)]
pub(super) struct KeysOf {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Make a pair and print it: access key, blank, secret
    Add {
        #[command(flatten)]
        flags: Flags,
    },
    /// Forget a pair
    Remove {
        /// The access key
        access_key: String,
        #[command(flatten)]
        flags: Flags,
    },
}

impl KeysOf {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let flags = match &self.action {
            None => &self.flags,
            Some(Action::Add { flags } | Action::Remove { flags, .. }) => flags,
        };
        let config = Config::read(flags)?;
        let mut keys = Keys::read(&config.data_dir.value)?;
        match self.action {
            None => {
                for access in keys.access_keys() {
                    out(access)?;
                }
            }
            Some(Action::Add { .. }) => {
                let access = keys.add()?;
                let secret = keys.secret(&access).context("the new key is gone")?;
                out(&format!("{access} {secret}"))?;
            }
            Some(Action::Remove { access_key, .. }) => {
                if !keys.remove(&access_key)? {
                    return Err(Refused::from(anyhow::anyhow!(
                        "there is no access key {access_key:?}; `trainyard keys` lists those there are"
                    ))
                    .into());
                }
            }
        }
        Ok(Exit::Completed)
    }
}
