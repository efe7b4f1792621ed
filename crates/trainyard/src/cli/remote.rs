//! What the commands have in common that ask an endpoint.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueHint;
use trainyard_engine::storage::Stores;

use super::serve::ADDRESS;
use crate::api::announced;
use crate::client::{Client, Credentials, Own, Place, PlaceError, Profiles, Wish};
use crate::config::{Config, Flags};
use crate::exit::Refused;
use crate::keys::Keys;
use crate::machine::{buckets, store_credentials};

/// Which endpoint, and with which keys.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Endpoint")]
pub(super) struct Remote {
    /// Ask the endpoint at URL, or Amazon itself: aws [env: AWS_ENDPOINT_URL] [default: the last `trainyard serve`]
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    endpoint: Option<String>,
    /// The region [env: AWS_REGION]
    #[arg(long, value_name = "REGION")]
    region: Option<String>,
    /// Take keys and settings of this profile of ~/.aws [env: AWS_PROFILE]
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Where the endpoint keeps its address and its keys [env: TRAINYARD_DATA_DIR]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    data_dir: Option<PathBuf>,
    /// Read settings from FILE instead of the user's config.toml [env: TRAINYARD_CONFIG]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,
}

impl Remote {
    /// A client of the endpoint that is meant.
    pub(super) fn client(&self) -> anyhow::Result<Arc<Client>> {
        let place = self.place()?;
        let bundle = variable("AWS_CA_BUNDLE").map(PathBuf::from);
        Ok(Arc::new(Client::new(place, bundle.as_deref())?))
    }

    /// The stores of this machine's configuration, if the bucket is in one of them and nobody has named another S3.
    ///
    /// Our own endpoint has the buckets that are folders, and none of these.
    pub(super) fn stores(&self, bucket: &str) -> anyhow::Result<Option<Stores>> {
        let config = self.settings()?;
        let buckets = buckets(&config);
        if buckets.store(bucket).is_none() {
            return Ok(None);
        }
        let is_own = match self.found(&config)? {
            Ok(place) => place.has_own_objects,
            Err(PlaceError::NoEndpoint) => true,
            Err(error) => return Err(Refused::from(anyhow::Error::new(error)).into()),
        };
        Ok(is_own.then(|| Stores::new(buckets, store_credentials())))
    }

    fn place(&self) -> anyhow::Result<Place> {
        let found = self.found(&self.settings()?)?;
        Ok(found.map_err(anyhow::Error::new).map_err(Refused::from)?)
    }

    fn settings(&self) -> Result<Config, Refused> {
        let Self { data_dir, config, .. } = self.clone();
        Config::read(&Flags { config, data_dir, ..Flags::default() })
    }

    fn found(&self, config: &Config) -> anyhow::Result<Result<Place, PlaceError>> {
        let Self { endpoint, region, profile, .. } = self.clone();
        let own = own(&config.data_dir.value)?;
        let profiles = Profiles::read(&variable, env::home_dir().as_deref())?;
        Ok(Place::find(&Wish { endpoint, region, profile }, &variable, &profiles, own.as_ref()))
    }
}

/// The endpoint of a data folder; none if none has ever run for it.
fn own(data: &Path) -> anyhow::Result<Option<Own>> {
    let keys = Keys::read(data)?;
    let access = keys.access_keys().next();
    let credentials = access.and_then(|access| {
        let (access_key, secret) = (access.to_owned(), keys.secret(access)?.to_owned());
        Some(Credentials { access_key, secret, token: None })
    });
    let url = announced(data);
    if url.is_none() && credentials.is_none() {
        return Ok(None);
    }
    Ok(Some(Own { url: url.unwrap_or_else(|| format!("http://{ADDRESS}")), keys: credentials }))
}

/// A variable of the environment that is not empty.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|text| !text.is_empty())
}

/// Lets the work of a command be done.
pub(super) fn wait_for<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(work);
    // What still reads somewhere is not waited for.
    runtime.shutdown_background();
    done
}
