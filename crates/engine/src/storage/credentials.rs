//! Who we are to a store: the usual chain of the AWS clients.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use fs_err as fs;
use object_store::aws::{AmazonS3Builder, AwsCredentialProvider};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};

use super::StoreAddress;

/// What the environment of this process says about credentials. It is never written anywhere and shows nothing.
#[derive(Clone, Default)]
pub struct StoreCredentials {
    variables: BTreeMap<String, String>,
    home: Option<PathBuf>,
}

impl fmt::Debug for StoreCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreCredentials")
    }
}

/// There are no credentials for a store.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// A file of profiles can't be read.
    #[error("AWS profiles")]
    Read(#[from] io::Error),
    /// The profile that was asked for has no keys.
    #[error(
        "the profile {profile} has no aws_access_key_id and aws_secret_access_key in {}; other kinds of profiles \
         can't be used here", files.join(" or ")
    )]
    Profile {
        /// The profile.
        profile: String,
        /// Where it was looked for.
        files: Vec<String>,
    },
    /// A key or token that can't be sent.
    #[error("{name} holds characters that no key has")]
    Characters {
        /// The variable or setting.
        name: String,
    },
    /// One half of a pair.
    #[error("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY must both be set, or neither")]
    Half,
    /// The client for a service that gives credentials can't be made.
    #[error("the source of credentials can't be asked")]
    Source(#[source] object_store::Error),
}

/// Who signs, and what else its source says.
pub(super) struct Signer {
    /// None if requests are not signed.
    pub(super) provider: Option<AwsCredentialProvider>,
    pub(super) region: String,
    /// Where the credentials come from, in words.
    pub(super) origin: String,
}

/// Variables of the chain, each of which object_store knows by the same name in lower case.
const PASSED_ON: [&str; 8] = [
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_ENDPOINT_URL_STS",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_METADATA_ENDPOINT",
];

/// As every client has it where nobody says otherwise.
const DEFAULT_REGION: &str = "us-east-1";

impl StoreCredentials {
    /// Keeps of the environment what begins with `AWS_`, `GOOGLE_` or `AZURE_`. `home` is where `.aws` lies.
    pub fn new(variables: impl IntoIterator<Item = (String, String)>, home: Option<PathBuf>) -> Self {
        let ours = |name: &str| ["AWS_", "GOOGLE_", "AZURE_"].iter().any(|prefix| name.starts_with(prefix));
        let known = |(name, value): &(String, String)| ours(name) && !value.is_empty();
        Self { variables: variables.into_iter().filter(known).collect(), home }
    }

    fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// Variables whose names begin so, with their values.
    #[cfg(any(feature = "gcs", feature = "azure"))]
    pub(super) fn starting_with(&self, prefix: &'static str) -> impl Iterator<Item = (&str, &str)> {
        let variables = self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        variables.filter(move |(name, _)| name.starts_with(prefix))
    }

    /// Finds who signs requests to a store: the profile that the address names; else what the environment's
    /// variables say, the profile `AWS_PROFILE` or `default`, and last the machine's own role.
    pub(super) fn signer(&self, address: &StoreAddress) -> Result<Signer, CredentialsError> {
        let asked_for = address.profile.as_deref();
        let profile_name = asked_for.or(self.variable("AWS_PROFILE")).unwrap_or("default");
        let profile = if address.anonymous { Profile::default() } else { self.profile(profile_name)? };
        let of_environment = || self.variable("AWS_REGION").or(self.variable("AWS_DEFAULT_REGION"));
        let region = match asked_for {
            Some(_) => profile.get("region").or_else(of_environment),
            None => of_environment().or(profile.get("region")),
        };
        let region = address.region.as_deref().or(region).unwrap_or(DEFAULT_REGION).to_owned();
        if address.anonymous {
            return Ok(Signer { provider: None, region, origin: "no credentials (anonymous)".to_owned() });
        }
        let keys = |pair: Option<Keys>, origin: String| {
            let (builder, region) = (AmazonS3Builder::new(), region.clone());
            pair.map(|pair| Ok(Signer { provider: Some(provider(pair.put_into(builder))?), region, origin }))
        };
        let of_profile = || (profile.keys(), format!("the keys of the profile {profile_name}"));
        if asked_for.is_some() {
            let (pair, origin) = of_profile();
            let missing = || CredentialsError::Profile {
                profile: profile_name.to_owned(),
                files: self.profile_files(),
            };
            return keys(pair.transpose()?, origin).ok_or_else(missing)?;
        }
        if let Some(signer) = keys(self.keys()?, "the keys of AWS_ACCESS_KEY_ID".to_owned()) {
            return signer;
        }
        let given = PASSED_ON.iter().filter_map(|name| Some((*name, self.variable(name)?)));
        let given: Vec<_> = given.collect();
        let is_service = |name: &str| name.contains("TOKEN_FILE") || name.contains("CREDENTIALS");
        if !given.iter().any(|(name, _)| is_service(name)) {
            let (pair, origin) = of_profile();
            if let Some(signer) = keys(pair.transpose()?, origin) {
                return signer;
            }
        }
        let builder = given.iter().fold(AmazonS3Builder::new(), |builder, (name, value)| {
            match name.to_lowercase().parse() {
                Ok(key) => builder.with_config(key, *value),
                Err(_) => builder,
            }
        });
        let origin = match given.iter().find(|(name, _)| is_service(name)) {
            Some((name, _)) => format!("the role of {name}"),
            None => {
                "the machine's own role, for there are no keys in the environment or in ~/.aws".to_owned()
            }
        };
        Ok(Signer { provider: Some(provider(builder.with_region(&region))?), region, origin })
    }

    fn keys(&self) -> Result<Option<Keys>, CredentialsError> {
        let [id, secret] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].map(|name| self.variable(name));
        match (id, secret) {
            (Some(id), Some(secret)) => Keys::new(id, secret, self.variable("AWS_SESSION_TOKEN")).map(Some),
            (None, None) => Ok(None),
            _ => Err(CredentialsError::Half),
        }
    }

    /// What the two files say of a profile; neither need be there.
    fn profile(&self, name: &str) -> Result<Profile, CredentialsError> {
        let mut profile = Profile::default();
        let sections = [vec![name.to_owned()], vec![format!("profile {name}"), name.to_owned()]];
        for (file, sections) in self.profile_files().iter().zip(sections) {
            match fs::read_to_string(file) {
                Ok(text) => profile.add(&text, &sections),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(profile)
    }

    /// The files of credentials and of settings.
    fn profile_files(&self) -> Vec<String> {
        let named = [("AWS_SHARED_CREDENTIALS_FILE", "credentials"), ("AWS_CONFIG_FILE", "config")];
        let home = |name| self.home.as_ref().map(|home| home.join(".aws").join(name));
        let path = |(variable, name)| match self.variable(variable) {
            Some(path) => Some(path.to_owned()),
            None => home(name).map(|path| path.to_string_lossy().into_owned()),
        };
        named.into_iter().filter_map(path).collect()
    }
}

struct Keys {
    id: String,
    secret: String,
    token: Option<String>,
}

impl Keys {
    fn new(id: &str, secret: &str, token: Option<&str>) -> Result<Self, CredentialsError> {
        for (name, value) in
            [("the key id", Some(id)), ("the secret key", Some(secret)), ("the token", token)]
        {
            if value.is_some_and(|value| !value.bytes().all(|byte| byte.is_ascii_graphic())) {
                return Err(CredentialsError::Characters { name: name.to_owned() });
            }
        }
        Ok(Self { id: id.to_owned(), secret: secret.to_owned(), token: token.map(str::to_owned) })
    }

    fn put_into(self, builder: AmazonS3Builder) -> AmazonS3Builder {
        let builder = builder.with_access_key_id(self.id).with_secret_access_key(self.secret);
        match self.token {
            Some(token) => builder.with_token(token),
            None => builder,
        }
    }
}

/// The settings of one profile.
#[derive(Default)]
struct Profile(BTreeMap<String, String>);

impl Profile {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn keys(&self) -> Option<Result<Keys, CredentialsError>> {
        let (id, secret) = (self.get("aws_access_key_id")?, self.get("aws_secret_access_key")?);
        Some(Keys::new(id, secret, self.get("aws_session_token")))
    }

    /// Takes in the sections of these names; what is known already stays.
    fn add(&mut self, text: &str, sections: &[String]) {
        let mut ours = false;
        for line in text.lines().map(str::trim) {
            if let Some(section) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                ours = sections.iter().any(|name| name == section.trim());
            } else if ours
                && !line.starts_with(['#', ';'])
                && let Some((name, value)) = line.split_once('=')
            {
                self.0.entry(name.trim().to_owned()).or_insert_with(|| value.trim().to_owned());
            }
        }
    }
}

/// A provider that gives up soon: where no service answers, there is none.
fn provider(builder: AmazonS3Builder) -> Result<AwsCredentialProvider, CredentialsError> {
    super::stores::install_crypto();
    let backoff = BackoffConfig { init_backoff: Duration::from_millis(100), ..BackoffConfig::default() };
    let retry = RetryConfig { backoff, max_retries: 2, retry_timeout: Duration::from_secs(20) };
    let options = ClientOptions::new().with_timeout(Duration::from_secs(10));
    let store = builder.with_bucket_name("any").with_retry(retry).with_client_options(options).build();
    Ok(store.map_err(CredentialsError::Source)?.credentials().clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(profile: Option<&str>) -> StoreAddress {
        StoreAddress { profile: profile.map(str::to_owned), ..StoreAddress::default() }
    }

    fn home() -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join(".aws")).unwrap();
        let credentials = "[default]\naws_access_key_id = of-default\naws_secret_access_key=x\n\
                           [minio]\n# ours\naws_access_key_id=of-minio\naws_secret_access_key = a=b\n";
        fs::write(home.path().join(".aws/credentials"), credentials).unwrap();
        let config =
            "[default]\nregion = eu-north-1\n[profile minio]\nregion = here\n[profile sso]\nregion = x\n";
        fs::write(home.path().join(".aws/config"), config).unwrap();
        home
    }

    async fn found(variables: &[(&str, &str)], profile: Option<&str>) -> (String, String) {
        let home = home();
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let credentials = StoreCredentials::new(variables, Some(home.path().to_owned()));
        let signer = credentials.signer(&address(profile)).unwrap();
        (signer.provider.unwrap().get_credential().await.unwrap().key_id.clone(), signer.region)
    }

    #[tokio::test]
    async fn the_named_profile_comes_first_then_variables_then_the_default_profile() {
        let variables =
            [("AWS_ACCESS_KEY_ID", "of-env"), ("AWS_SECRET_ACCESS_KEY", "x"), ("AWS_REGION", "mars")];
        let pair = |key: &str, region: &str| (key.to_owned(), region.to_owned());
        assert_eq!(found(&variables, Some("minio")).await, pair("of-minio", "here"));
        assert_eq!(found(&variables, None).await, pair("of-env", "mars"));
        assert_eq!(found(&[], None).await, pair("of-default", "eu-north-1"));
        assert_eq!(found(&[("AWS_PROFILE", "minio")], None).await, pair("of-minio", "here"));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let home = home();
        let signer = |variables: &[(&str, &str)], profile: Option<&str>| {
            let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let credentials = StoreCredentials::new(variables, Some(home.path().to_owned()));
            credentials.signer(&address(profile)).err().map(|error| error.to_string())
        };
        let text = signer(&[], Some("sso")).unwrap();
        assert!(text.contains("sso") && text.contains(".aws/credentials"), "{text}");
        assert!(signer(&[("AWS_ACCESS_KEY_ID", "a")], None).unwrap().contains("AWS_SECRET_ACCESS_KEY"));
        let odd = [("AWS_ACCESS_KEY_ID", "a\nb"), ("AWS_SECRET_ACCESS_KEY", "x")];
        assert!(signer(&odd, None).unwrap().contains("key id"));
    }

    #[test]
    fn debug_output_holds_no_secret() {
        let variables = [("AWS_SECRET_ACCESS_KEY".to_owned(), "hidden".to_owned())];
        assert_eq!(format!("{:?}", StoreCredentials::new(variables, None)), "StoreCredentials");
    }
}
