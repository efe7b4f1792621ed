//! The files in which AWS clients keep keys and settings: `~/.aws/credentials` and `~/.aws/config`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::place::Credentials;

/// A section's settings; what is indented below `a =` is found as `a.b`.
type Section = BTreeMap<String, String>;

/// Both files.
#[derive(Debug, Default)]
pub(crate) struct Profiles {
    credentials: BTreeMap<String, Section>,
    config: BTreeMap<String, Section>,
}

impl Profiles {
    /// Reads the files that the variables name, else those of the user's home folder; what is not there is empty.
    pub(crate) fn read(
        variable: &dyn Fn(&str) -> Option<String>,
        home: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let section_of = |name: &str, file: &str| {
            let named = variable(name).map(PathBuf::from);
            let path = named.or_else(|| home.map(|home| home.join(".aws").join(file)));
            path.map_or(Ok(BTreeMap::new()), |path| read(&path))
        };
        Ok(Self {
            credentials: section_of("AWS_SHARED_CREDENTIALS_FILE", "credentials")?,
            config: section_of("AWS_CONFIG_FILE", "config")?,
        })
    }

    #[cfg(test)]
    pub(crate) fn of(credentials: &str, config: &str) -> Self {
        Self { credentials: parse(credentials), config: parse(config) }
    }

    /// Whether either file has a profile of this name.
    pub(crate) fn has(&self, profile: &str) -> bool {
        self.credentials.contains_key(profile) || self.in_config(profile).is_some()
    }

    fn in_config(&self, profile: &str) -> Option<&Section> {
        // Only the default one stands without the word.
        let plain = (profile == "default").then(|| self.config.get(profile)).flatten();
        self.config.get(&format!("profile {profile}")).or(plain)
    }

    /// A setting of a profile.
    pub(crate) fn setting(&self, profile: &str, name: &str) -> Option<&str> {
        let keys = self.credentials.get(profile).and_then(|section| section.get(name));
        keys.or_else(|| self.in_config(profile)?.get(name)).map(String::as_str)
    }

    /// The endpoint that a profile names for a service (`sagemaker`, `cloudwatch_logs`, `s3`).
    pub(crate) fn endpoint(&self, profile: &str, service: &str) -> Option<&str> {
        let services = self.setting(profile, "services");
        let services = services.and_then(|name| self.config.get(&format!("services {name}")));
        let own = services.and_then(|section| section.get(&format!("{service}.endpoint_url")));
        own.map(String::as_str).or_else(|| self.setting(profile, "endpoint_url"))
    }

    /// The keys of a profile.
    pub(crate) fn credentials(&self, profile: &str) -> Option<Credentials> {
        Some(Credentials {
            access_key: self.setting(profile, "aws_access_key_id")?.to_owned(),
            secret: self.setting(profile, "aws_secret_access_key")?.to_owned(),
            token: self.setting(profile, "aws_session_token").map(ToOwned::to_owned),
        })
    }

    /// By what else than keys a profile gets them, which only Amazon's own programs do.
    pub(crate) fn other_way(&self, profile: &str) -> Option<&'static str> {
        let ways = ["credential_process", "sso_session", "sso_start_url", "role_arn", "login_session"];
        ways.into_iter().find(|way| self.setting(profile, way).is_some())
    }
}

fn read(path: &Path) -> anyhow::Result<BTreeMap<String, Section>> {
    match fs_err::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        text => Ok(parse(&text?)),
    }
}

/// Sections of `name = value` lines. What is no such line is passed over, as Amazon's programs do.
fn parse(text: &str) -> BTreeMap<String, Section> {
    let mut sections: BTreeMap<String, Section> = BTreeMap::new();
    let (mut section, mut outer) = (None, String::new());
    for line in text.lines() {
        let bare = line.trim();
        if bare.is_empty() || bare.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = bare.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
            sections.entry(name.clone()).or_default();
            section = Some(name);
            continue;
        }
        let (Some(section), Some((name, value))) = (&section, bare.split_once('=')) else { continue };
        let (name, value) = (name.trim().to_lowercase(), value.trim());
        // A comment begins after a blank only: secrets may have the character in them.
        let value = value.split(" #").next().unwrap_or_default().trim_end();
        let name = if line.starts_with([' ', '\t']) {
            format!("{outer}.{name}")
        } else {
            outer.clone_from(&name);
            name
        };
        sections.entry(section.clone()).or_default().insert(name, value.to_owned());
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_put_together_from_both_files() {
        let profiles = Profiles::of(
            "# keys\n[default]\naws_access_key_id = A\naws_secret_access_key=s/e#c=r # mine\n[ci]\naws_access_key_id=B\n",
            "[default]\nregion = eu-west-1\n[profile ci]\nservices = local\nendpoint_url = http://all\n\
             credential_process = x\n[services local]\nsagemaker =\n  endpoint_url = http://one\ns3 =\n  endpoint_url = \
             http://two\n",
        );
        let keys = profiles.credentials("default").unwrap();
        assert_eq!((keys.access_key.as_str(), keys.secret.as_str(), keys.token), ("A", "s/e#c=r", None));
        assert_eq!(profiles.setting("default", "region"), Some("eu-west-1"));
        assert!(profiles.credentials("ci").is_none());
        assert_eq!(profiles.other_way("ci"), Some("credential_process"));
        assert_eq!(profiles.endpoint("ci", "sagemaker"), Some("http://one"));
        assert_eq!(profiles.endpoint("ci", "s3"), Some("http://two"));
        assert_eq!(profiles.endpoint("ci", "cloudwatch_logs"), Some("http://all"));
        assert_eq!(profiles.endpoint("default", "s3"), None);
        assert!(profiles.has("ci") && profiles.has("default") && !profiles.has("other"));
    }
}
