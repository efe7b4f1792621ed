//! `trainyard env`: what clients of the endpoint need in their environment.

use clap::ValueHint;

use super::serve::ADDRESS;
use crate::api::announced;
use crate::config::{Config, Flags};
use crate::exit::Exit;
use crate::keys::Keys;
use crate::machine::region;
use crate::show::out;

/// Print the variables with which AWS clients use the endpoint
///
/// The secret key is printed too.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  eval \"$(trainyard env)\"")]
pub(super) struct Env {
    /// The endpoint, if it is not the one that ran last on this machine
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    endpoint: Option<String>,
    #[command(flatten)]
    flags: Flags,
}

impl Env {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let config = Config::read(&self.flags)?;
        let data = &config.data_dir.value;
        let keys = Keys::read_or_make(data)?;
        let endpoint =
            self.endpoint.or_else(|| announced(data)).unwrap_or_else(|| format!("http://{ADDRESS}"));
        let access = keys.access_keys().next().unwrap_or_default();
        let secret = keys.secret(access).unwrap_or_default();
        let region = region();
        let variables = [
            ("AWS_ENDPOINT_URL", endpoint.as_str()),
            ("AWS_ACCESS_KEY_ID", access),
            ("AWS_SECRET_ACCESS_KEY", secret),
            ("AWS_REGION", &region),
            ("AWS_DEFAULT_REGION", &region),
        ];
        let lines = variables.map(|(name, value)| format!("export {name}={}", quoted(value)));
        // A token of another account would be sent along.
        out(&format!("{}\nunset AWS_SESSION_TOKEN AWS_PROFILE", lines.join("\n")))?;
        Ok(Exit::Completed)
    }
}

/// As a word of any shell.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn values_are_one_word_of_the_shell() {
        assert_eq!(super::quoted("a b$c'd"), r"'a b$c'\''d'");
    }
}
