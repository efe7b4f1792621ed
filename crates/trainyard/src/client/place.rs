//! Where requests go and with which keys: flags, then variables, then the files of AWS clients, then the endpoint of
//! the data folder.

use reqwest::Url;

use super::credentials::{Credentials, Origin};
use super::profile::{ProfileError, Profiles};

/// What AWS clients take where nobody says anything.
const DEFAULT_PROFILE: &str = "default";
/// The region of an endpoint that does not care.
const DEFAULT_REGION: &str = "us-east-1";

/// A service that the client uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    SageMaker,
    Logs,
    CloudWatch,
    S3,
    Sts,
}

/// All of them, in the order of [`Place`]'s URLs.
const SERVICES: [Service; 5] =
    [Service::SageMaker, Service::Logs, Service::CloudWatch, Service::S3, Service::Sts];
/// Those at the head of them that jobs are with; the last only lends keys.
const OF_JOBS: usize = 4;

impl Service {
    /// As signatures name it.
    pub(super) const fn signing_name(self) -> &'static str {
        match self {
            Self::SageMaker => "sagemaker",
            Self::Logs => "logs",
            Self::CloudWatch => "monitoring",
            Self::S3 => "s3",
            Self::Sts => "sts",
        }
    }

    /// How it wants what it is sent.
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::SageMaker | Self::Logs => "application/x-amz-json-1.1",
            Self::CloudWatch => "application/x-amz-json-1.0",
            Self::S3 => "application/octet-stream",
            Self::Sts => "application/x-www-form-urlencoded; charset=utf-8",
        }
    }

    /// The first part of `X-Amz-Target`.
    pub(super) const fn target(self) -> &'static str {
        match self {
            Self::SageMaker => "SageMaker",
            Self::Logs => "Logs_20140328",
            Self::CloudWatch => "GraniteServiceVersion20100801",
            Self::S3 | Self::Sts => "",
        }
    }

    /// What names its endpoint: variables, and the key in `[services …]`.
    const fn names(self) -> (&'static [&'static str], &'static str) {
        match self {
            Self::SageMaker => (&["AWS_ENDPOINT_URL_SAGEMAKER"], "sagemaker"),
            Self::Logs => (&["AWS_ENDPOINT_URL_CLOUDWATCH_LOGS", "AWS_ENDPOINT_URL_LOGS"], "cloudwatch_logs"),
            Self::CloudWatch => (&["AWS_ENDPOINT_URL_CLOUDWATCH"], "cloudwatch"),
            Self::S3 => (&["AWS_ENDPOINT_URL_S3"], "s3"),
            Self::Sts => (&["AWS_ENDPOINT_URL_STS"], "sts"),
        }
    }

    /// Amazon's own host for a region (AWS General Reference, service endpoints).
    fn host(self, region: &str) -> String {
        let first = match self {
            Self::SageMaker => "api.sagemaker",
            Self::Logs => "logs",
            Self::CloudWatch => "monitoring",
            Self::S3 => "s3",
            Self::Sts => "sts",
        };
        let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
        format!("{first}.{region}.{domain}")
    }
}

/// What the command line asks for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wish {
    /// A URL, or `aws`.
    pub(crate) endpoint: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) profile: Option<String>,
}

/// The endpoint of the data folder.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    pub(crate) url: String,
    /// None before it has run for the first time.
    pub(crate) keys: Option<Credentials>,
}

/// Where requests go.
#[derive(Debug)]
pub(crate) struct Place {
    /// As in [`SERVICES`].
    urls: [Url; SERVICES.len()],
    /// Whether objects are asked of the data folder's own endpoint.
    pub(crate) has_own_objects: bool,
    /// Whether jobs go to Amazon.
    pub(crate) is_amazon: bool,
    pub(crate) region: String,
    pub(crate) credentials: Origin,
}

/// Why it is not known where to go.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PlaceError {
    #[error("{origin}={url}: this is no URL of http or https, such as http://127.0.0.1:9191")]
    Url { origin: String, url: String },
    #[error("there is no profile {0} in the credentials and config files of AWS")]
    NoProfile(String),
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error(
        "there are no keys for {0}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile with --profile"
    )]
    NoKeys(String),
    #[error("AWS_ACCESS_KEY_ID is set without AWS_SECRET_ACCESS_KEY, or the other way round")]
    HalfAKey,
    #[error(
        "no endpoint is known and none was started for this data folder: start one with `trainyard serve`, or name one \
         with --endpoint URL"
    )]
    NoEndpoint,
    #[error("Amazon has a region: name it with --region, AWS_REGION, or in the profile")]
    NoRegion,
}

/// Reads variables; one that is empty counts as none.
type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Place {
    /// Decides where to go.
    pub(crate) fn find(
        wish: &Wish,
        variable: Variable<'_>,
        profiles: &Profiles,
        own: Option<&Own>,
    ) -> Result<Self, PlaceError> {
        let profile = wish.profile.clone().or_else(|| variable("AWS_PROFILE"));
        if let Some(name) = wish.profile.as_ref().filter(|name| !profiles.has(name)) {
            return Err(PlaceError::NoProfile(name.clone()));
        }
        let finder = Finder { wish, variable, profiles, profile: profile.as_deref() };
        let urls = finder.urls()?;
        // Nothing names an endpoint, so it is the one of the data folder.
        let own_is_meant = urls[..OF_JOBS].iter().all(Option::is_none) && !finder.asks_for_amazon();
        let own_url = own.map(|own| own.url.as_str());
        let to_own = own_is_meant
            || (own_url.is_some() && urls[..OF_JOBS].iter().flatten().any(|url| same(url, own_url)));
        let region = finder.region();
        let region = match region {
            None if finder.asks_for_amazon() => return Err(PlaceError::NoRegion),
            region => region.unwrap_or_else(|| DEFAULT_REGION.to_owned()),
        };
        let mut found = Vec::new();
        for (url, service) in urls.into_iter().zip(SERVICES) {
            found.push(match url {
                Some(url) => url,
                None if own_is_meant => parse("the endpoint", own_url.ok_or(PlaceError::NoEndpoint)?)?,
                None => parse("--region", &format!("https://{}", service.host(&region)))?,
            });
        }
        let urls: [Url; SERVICES.len()] = found.try_into().map_err(|_| PlaceError::NoEndpoint)?;
        let keys = own.filter(|_| to_own).and_then(|own| own.keys.clone());
        let credentials = finder.credentials(keys, own_is_meant, &urls[0])?;
        let is_amazon = is_amazons(&urls[0]);
        let has_own_objects = same(&urls[Service::S3 as usize], own_url);
        Ok(Self { urls, has_own_objects, is_amazon, region, credentials })
    }

    /// The endpoint of a service.
    pub(crate) fn url(&self, service: Service) -> &Url {
        &self.urls[service as usize]
    }

    /// The URL of an object. Amazon's own S3 has the bucket in the host, unless its name has dots in it.
    ///
    /// None for names that no URL can have.
    pub(crate) fn object(&self, bucket: &str, path: &str) -> Option<Url> {
        let s3 = self.url(Service::S3);
        let base = s3.as_str().trim_end_matches('/');
        if is_amazons(s3) && !bucket.contains('.') {
            let host = s3.host_str()?;
            return Url::parse(&format!("https://{bucket}.{host}/{path}")).ok();
        }
        Url::parse(&format!("{base}/{bucket}/{path}")).ok()
    }

    /// Whether nothing of it leaves this machine.
    pub(super) fn is_loopback(&self) -> bool {
        let role = matches!(self.credentials, Origin::Role(_));
        let asked = if role { &self.urls[..] } else { &self.urls[..OF_JOBS] };
        asked.iter().all(|url| {
            let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
            let address = host.parse::<std::net::IpAddr>();
            host == "localhost" || host.ends_with(".localhost") || address.is_ok_and(|ip| ip.is_loopback())
        })
    }
}

/// What there is to choose from.
struct Finder<'a> {
    wish: &'a Wish,
    variable: Variable<'a>,
    profiles: &'a Profiles,
    /// The one that was named.
    profile: Option<&'a str>,
}

impl Finder<'_> {
    fn asks_for_amazon(&self) -> bool {
        self.wish.endpoint.as_deref() == Some("aws")
    }

    /// Of each service, where something names one.
    fn urls(&self) -> Result<Vec<Option<Url>>, PlaceError> {
        let ignored =
            (self.variable)("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS").is_some_and(|text| text == "true");
        let given = self.wish.endpoint.as_deref().filter(|_| !self.asks_for_amazon());
        if let Some(url) = given {
            return Ok(vec![Some(parse("--endpoint", url)?); SERVICES.len()]);
        }
        if self.asks_for_amazon() || ignored {
            return Ok(vec![None; SERVICES.len()]);
        }
        SERVICES.into_iter().map(|service| self.named(service)).collect()
    }

    fn named(&self, service: Service) -> Result<Option<Url>, PlaceError> {
        let (variables, key) = service.names();
        for name in variables.iter().copied().chain(["AWS_ENDPOINT_URL"]) {
            if let Some(url) = (self.variable)(name) {
                return parse(name, &url).map(Some);
            }
        }
        let profile = self.profile.unwrap_or(DEFAULT_PROFILE);
        self.profiles.endpoint(profile, key).map(|url| parse("endpoint_url", url)).transpose()
    }

    fn region(&self) -> Option<String> {
        let named = self.wish.region.clone();
        let set = || (self.variable)("AWS_REGION").or_else(|| (self.variable)("AWS_DEFAULT_REGION"));
        let written =
            || self.profiles.setting(self.profile.unwrap_or(DEFAULT_PROFILE), "region").map(Into::into);
        named.or_else(set).or_else(written)
    }

    /// A profile that was named on the command line; the variables; the keys of our own endpoint; the profile of the
    /// files. Our own endpoint, if nobody has named one, takes its own keys before the variables', which are
    /// Amazon's then.
    fn credentials(
        &self,
        own: Option<Credentials>,
        own_is_meant: bool,
        url: &Url,
    ) -> Result<Origin, PlaceError> {
        if let Some(profile) = &self.wish.profile {
            return self.of_profile(profile)?.ok_or_else(|| PlaceError::NoKeys(url.to_string()));
        }
        if own_is_meant {
            return own.map(Origin::Keys).ok_or(PlaceError::NoEndpoint);
        }
        if let Some(credentials) = self.of_variables()? {
            return Ok(Origin::Keys(credentials));
        }
        if let Some(own) = own {
            return Ok(Origin::Keys(own));
        }
        let of_file = self.of_profile(self.profile.unwrap_or(DEFAULT_PROFILE))?;
        of_file.ok_or_else(|| PlaceError::NoKeys(url.to_string()))
    }

    fn of_variables(&self) -> Result<Option<Credentials>, PlaceError> {
        let (access, secret) =
            ((self.variable)("AWS_ACCESS_KEY_ID"), (self.variable)("AWS_SECRET_ACCESS_KEY"));
        match (access, secret) {
            (Some(access_key), Some(secret)) => {
                Ok(Some(Credentials { access_key, secret, token: (self.variable)("AWS_SESSION_TOKEN") }))
            }
            (None, None) => Ok(None),
            _ => Err(PlaceError::HalfAKey),
        }
    }

    fn of_profile(&self, profile: &str) -> Result<Option<Origin>, PlaceError> {
        // Half a pair matters only to a profile that asks for it, which then misses it.
        let variables = self.of_variables().unwrap_or_default();
        Ok(self.profiles.origin(profile, variables.as_ref())?)
    }
}

fn parse(origin: &str, text: &str) -> Result<Url, PlaceError> {
    let wrong = || PlaceError::Url { origin: origin.to_owned(), url: text.to_owned() };
    let url = Url::parse(text).map_err(|_| wrong())?;
    let right = matches!(url.scheme(), "http" | "https") && url.host_str().is_some();
    if right { Ok(url) } else { Err(wrong()) }
}

fn same(url: &Url, other: Option<&str>) -> bool {
    other.and_then(|other| Url::parse(other).ok()).is_some_and(|other| other.origin() == url.origin())
}

fn is_amazons(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    host.ends_with(".amazonaws.com") || host.ends_with(".amazonaws.com.cn")
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "V"), ("AWS_SECRET_ACCESS_KEY", "v")];

    fn find(wish: &Wish, set: &[(&str, &str)], profiles: &Profiles) -> Result<Place, PlaceError> {
        let variable =
            |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let keys = Credentials { access_key: "OWN".into(), secret: "own".into(), token: None };
        let own = Own { url: "http://127.0.0.1:9191".into(), keys: Some(keys) };
        Place::find(wish, &variable, profiles, Some(&own))
    }

    fn wish(endpoint: &str) -> Wish {
        Wish { endpoint: Some(endpoint.into()), ..Wish::default() }
    }

    fn shown(place: &Place) -> (String, String, String, &str) {
        let url = |service| place.url(service).to_string();
        let Origin::Keys(Credentials { access_key: key, .. }) = &place.credentials else {
            panic!("{place:?}")
        };
        (url(Service::SageMaker), url(Service::Logs), url(Service::S3), key)
    }

    #[test]
    fn without_a_word_it_is_the_data_folders_own_endpoint_with_its_own_keys() {
        let place =
            find(&Wish::default(), &KEYS, &Profiles::of("[default]\naws_access_key_id=F", "")).unwrap();
        let own = "http://127.0.0.1:9191/".to_owned();
        assert_eq!(shown(&place), (own.clone(), own.clone(), own, "OWN"));
        assert!(place.is_loopback() && !place.is_amazon);
    }

    #[test]
    fn flags_come_before_variables_and_those_before_files() {
        let profiles = Profiles::of(
            "[default]\naws_access_key_id=F\naws_secret_access_key=f\n[ci]\naws_access_key_id=C\naws_secret_access_key=c",
            "[default]\nendpoint_url=http://file\nregion=eu-west-1\n",
        );
        let url = ("AWS_ENDPOINT_URL", "http://variable");
        let all = |url: &str, key: &'static str| (url.to_owned(), url.to_owned(), url.to_owned(), key);
        let flags = Wish { profile: Some("ci".into()), ..wish("http://flag") };
        let set: Vec<_> = KEYS.into_iter().chain([url]).collect();
        assert_eq!(shown(&find(&flags, &set, &profiles).unwrap()), all("http://flag/", "C"));
        assert_eq!(shown(&find(&Wish::default(), &set, &profiles).unwrap()), all("http://variable/", "V"));
        let place = find(&Wish::default(), &[], &profiles).unwrap();
        assert_eq!((shown(&place), place.region.as_str()), (all("http://file/", "F"), "eu-west-1"));
        let own = wish("http://127.0.0.1:9191");
        assert_eq!(shown(&find(&own, &[], &profiles).unwrap()), all("http://127.0.0.1:9191/", "OWN"));
    }

    #[test]
    fn amazon_has_a_host_for_each_service_and_bucket() {
        let wish = Wish { region: Some("eu-west-1".into()), ..wish("aws") };
        let place = find(&wish, &KEYS, &Profiles::default()).unwrap();
        let expected =
            ["api.sagemaker", "logs", "s3"].map(|host| format!("https://{host}.eu-west-1.amazonaws.com/"));
        let [sagemaker, logs, s3] = expected;
        assert_eq!(shown(&place), (sagemaker, logs, s3, "V"));
        assert!(place.is_amazon && !place.is_loopback());
        let object = |bucket| place.object(bucket, "a/b%20c").unwrap().to_string();
        assert_eq!(object("b"), "https://b.s3.eu-west-1.amazonaws.com/a/b%20c");
        assert_eq!(object("b.c"), "https://s3.eu-west-1.amazonaws.com/b.c/a/b%20c");
    }

    #[test]
    fn one_service_may_have_an_endpoint_of_its_own() {
        let set = [
            ("AWS_ENDPOINT_URL_S3", "http://store:9000"),
            ("AWS_ENDPOINT_URL", "http://yard"),
            KEYS[0],
            KEYS[1],
        ];
        let (sagemaker, logs, s3, _) = {
            let place = find(&Wish::default(), &set, &Profiles::default()).unwrap();
            let (a, b, c, _) = shown(&place);
            (a, b, c, ())
        };
        assert_eq!([sagemaker, logs, s3], ["http://yard/", "http://yard/", "http://store:9000/"]);
    }

    #[test]
    fn what_lends_keys_alone_is_no_endpoint_of_jobs() {
        let sts = ("AWS_ENDPOINT_URL_STS", "http://lender");
        let place = find(&Wish::default(), &[sts], &Profiles::default()).unwrap();
        assert_eq!(shown(&place).3, "OWN");
        assert!(place.has_own_objects && place.is_loopback());
        assert_eq!(place.url(Service::Sts).as_str(), "http://lender/");
        let stores =
            [("AWS_ENDPOINT_URL_S3", "http://store:9000"), ("AWS_ENDPOINT_URL", "http://127.0.0.1:9191")];
        assert!(!find(&Wish::default(), &stores, &Profiles::default()).unwrap().has_own_objects);
    }

    #[test]
    fn what_is_missing_is_told_with_what_to_do() {
        let none = Profiles::default();
        let error = |wish: &Wish, set: &[(&str, &str)]| find(wish, set, &none).unwrap_err().to_string();
        assert!(error(&wish("yard:9191"), &[]).contains("--endpoint=yard:9191"));
        assert!(error(&wish("aws"), &KEYS).contains("--region"));
        assert!(error(&wish("http://other"), &[]).contains("AWS_ACCESS_KEY_ID"));
        assert!(error(&wish("http://other"), &KEYS[..1]).contains("AWS_SECRET_ACCESS_KEY"));
        let profile = Wish { profile: Some("ci".into()), ..Wish::default() };
        assert!(error(&profile, &[]).contains("profile ci"));
        let sso = Profiles::of("", "[profile ci]\nsso_session = x");
        let error =
            find(&Wish { profile: Some("ci".into()), ..wish("http://other") }, &[], &sso).unwrap_err();
        assert!(error.to_string().contains("export-credentials --profile ci"));
        let nowhere = Place::find(&Wish::default(), &|_| None, &none, None).unwrap_err();
        assert!(nowhere.to_string().contains("trainyard serve"));
    }
}
