//! The files in which AWS clients keep keys and settings: `~/.aws/credentials` and `~/.aws/config`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::credentials::{Credentials, Origin, Role};

/// A section's settings; what is indented below `a =` is found as `a.b`.
type Section = BTreeMap<String, String>;

/// By what else a profile may get its keys.
const OTHER_WAYS: [&str; 3] = ["sso_session", "sso_start_url", "login_session"];

/// A profile whose keys can't be had.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProfileError {
    #[error(
        "the profile {profile} gets its keys by {way}, which only Amazon's programs do; run: eval \"$(aws configure \
         export-credentials --profile {profile} --format env)\""
    )]
    OtherWay { profile: String, way: &'static str },
    #[error(
        "the profile {profile} takes on a role, but nobody who may do so is known: give it a source_profile with keys"
    )]
    NoLender { profile: String },
    #[error("the profile {profile} and its source_profile lead back to each other")]
    Circle { profile: String },
}

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

    /// Where the keys of a profile come from; none if it says nothing of any. `variables` are the keys of the environment.
    ///
    /// # Errors
    /// From where only Amazon's own programs get them, or from nowhere in the end.
    pub(crate) fn origin(
        &self,
        profile: &str,
        variables: Option<&Credentials>,
    ) -> Result<Option<Origin>, ProfileError> {
        let mut asked = Vec::new();
        self.origin_of(profile, variables, &mut asked)
    }

    /// The order is that of Amazon's programs: a role, keys, a program. `asked` are the profiles of the roles before.
    fn origin_of<'a>(
        &'a self,
        profile: &'a str,
        variables: Option<&Credentials>,
        asked: &mut Vec<&'a str>,
    ) -> Result<Option<Origin>, ProfileError> {
        let setting = |name| self.setting(profile, name);
        let other = |way| ProfileError::OtherWay { profile: profile.to_owned(), way };
        // One that names itself means its own keys.
        let role = setting("role_arn").filter(|_| asked.last() != Some(&profile));
        if let Some(arn) = role {
            if let Some(way) =
                ["web_identity_token_file", "mfa_serial"].into_iter().find(|way| setting(way).is_some())
            {
                return Err(other(way));
            }
            let lender = match (setting("source_profile"), setting("credential_source")) {
                (Some(source), _) if asked.contains(&source) && source != profile => {
                    return Err(ProfileError::Circle { profile: profile.to_owned() });
                }
                (Some(source), _) => {
                    asked.push(profile);
                    self.origin_of(source, variables, asked)?
                }
                (None, Some("Environment")) => variables.cloned().map(Origin::Keys),
                (None, Some(_)) => return Err(other("credential_source")),
                (None, None) => None,
            };
            let lender = lender.ok_or_else(|| ProfileError::NoLender { profile: profile.to_owned() })?;
            let text = |name| setting(name).map(ToOwned::to_owned);
            return Ok(Some(Origin::Role(Box::new(Role {
                arn: arn.to_owned(),
                session: text("role_session_name"),
                external_id: text("external_id"),
                duration: text("duration_seconds"),
                lender,
            }))));
        }
        if let Some(keys) = self.credentials(profile) {
            return Ok(Some(Origin::Keys(keys)));
        }
        if let Some(command) = setting("credential_process") {
            return Ok(Some(Origin::Program { profile: profile.to_owned(), command: command.to_owned() }));
        }
        let way = OTHER_WAYS.into_iter().find(|way| setting(way).is_some());
        way.map_or(Ok(None), |way| Err(other(way)))
    }

    /// The keys of a profile.
    fn credentials(&self, profile: &str) -> Option<Credentials> {
        Some(Credentials {
            access_key: self.setting(profile, "aws_access_key_id")?.to_owned(),
            secret: self.setting(profile, "aws_secret_access_key")?.to_owned(),
            token: self.setting(profile, "aws_session_token").map(ToOwned::to_owned),
        })
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
        let program = Origin::Program { profile: "ci".into(), command: "x".into() };
        assert_eq!(profiles.origin("ci", None), Ok(Some(program)));
        assert_eq!(profiles.endpoint("ci", "sagemaker"), Some("http://one"));
        assert_eq!(profiles.endpoint("ci", "s3"), Some("http://two"));
        assert_eq!(profiles.endpoint("ci", "cloudwatch_logs"), Some("http://all"));
        assert_eq!(profiles.endpoint("default", "s3"), None);
        assert!(profiles.has("ci") && profiles.has("default") && !profiles.has("other"));
    }

    #[test]
    fn a_role_is_taken_on_by_the_keys_that_its_profile_names() {
        let keys = |name: &str| Credentials { access_key: name.into(), secret: "s".into(), token: None };
        let profiles = Profiles::of(
            "[base]\naws_access_key_id=B\naws_secret_access_key=s\n\
             [self]\naws_access_key_id=S\naws_secret_access_key=s\nrole_arn=r\nsource_profile=self\n",
            "[profile one]\nrole_arn=r1\nsource_profile=base\nexternal_id=x\nrole_session_name=me\nduration_seconds=900\n\
             [profile two]\nrole_arn=r2\nsource_profile=one\n[profile env]\nrole_arn=r\ncredential_source=Environment\n\
             [profile a]\nrole_arn=r\nsource_profile=b\n[profile b]\nrole_arn=r\nsource_profile=a\n\
             [profile none]\nrole_arn=r\n[profile lost]\nrole_arn=r\nsource_profile=nowhere\n\
             [profile machine]\nrole_arn=r\ncredential_source=Ec2InstanceMetadata\n\
             [profile token]\nrole_arn=r\nsource_profile=base\nmfa_serial=m\n[profile sso]\nsso_session=s\n",
        );
        let role = |name: &str| match profiles.origin(name, Some(&keys("V"))) {
            Ok(Some(Origin::Role(role))) => *role,
            other => panic!("{name}: {other:?}"),
        };
        let one = role("one");
        assert_eq!((one.arn.as_str(), &one.lender), ("r1", &Origin::Keys(keys("B"))));
        let told = (one.session.as_deref(), one.external_id.as_deref(), one.duration.as_deref());
        assert_eq!(told, (Some("me"), Some("x"), Some("900")));
        assert_eq!(role("two").lender, Origin::Role(Box::new(one)));
        assert_eq!(role("self").lender, Origin::Keys(keys("S")));
        assert_eq!(role("env").lender, Origin::Keys(keys("V")));
        let error = |name: &str| profiles.origin(name, None).unwrap_err().to_string();
        assert!(error("a").contains("lead back"), "{}", error("a"));
        for name in ["none", "lost", "env"] {
            assert!(
                error(name).contains(&format!("profile {name}")) && error(name).contains("source_profile")
            );
        }
        for (name, way) in [("machine", "credential_source"), ("token", "mfa_serial"), ("sso", "sso_session")]
        {
            assert!(error(name).contains(way) && error(name).contains("aws configure export-credentials"));
        }
        assert_eq!(profiles.origin("other", None), Ok(None));
    }
}
