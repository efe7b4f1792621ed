//! Pulling from a real registry: with and without a password, and through broken connections.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use fs_err as fs;
use oci_client::secrets::RegistryAuth;
use serde_json::json;
use trainyard_engine::image::{
    Credentials, Digest, LayerError, Obtain, ObtainError, Platform, Step, UnpackedImage,
};

use crate::build::{Image, Layer, Packing, Raw};
use crate::server::{Action, Front, NAME, PASSWORD, Registry};
use crate::support::{Place, again, assert_succeeded, chain, how, obtain};

const ANONYMOUS: RegistryAuth = RegistryAuth::Anonymous;

/// In the large layer, in bytes; it can't be compressed.
const LARGE: usize = 6 << 20;

fn basic() -> RegistryAuth {
    RegistryAuth::Basic(NAME.to_owned(), PASSWORD.to_owned())
}

fn small() -> Image {
    Image::new(vec![Layer::new().file("etc/motd", "hello"), Layer::new().file("train", "#!/bin/sh\n")])
}

/// An image with a layer that takes a while.
fn large() -> Image {
    let mut state = 88_172_645_463_325_252_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let content: Vec<u8> = (0..LARGE / 8).flat_map(next).collect();
    Image::new(vec![Layer::new().file_with("large", &content, 0o644), Layer::new().file("a", "a")])
}

fn with_login(place: &Place, registry: &str, name: &str, password: &str) -> Obtain {
    let auth = base64::engine::general_purpose::STANDARD.encode(format!("{name}:{password}"));
    let path = place.path("config.json");
    fs::write(&path, json!({"auths": {registry: {"auth": auth}}}).to_string()).unwrap();
    Obtain { credentials: Credentials::read(&path).unwrap(), ..how() }
}

fn assert_large(image: &UnpackedImage) {
    let file = image.lowers.find("/large".as_ref()).unwrap().unwrap();
    assert_eq!(fs::metadata(file).unwrap().len(), LARGE as u64);
}

#[tokio::test]
async fn an_image_is_pulled_by_tag_and_then_by_digest_without_the_registry() {
    let Some(registry) = Registry::start(false) else { return };
    let place = Place::new();
    let image = small();
    registry.push(&image, "team/fit:1", &ANONYMOUS).await;
    let fetched = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&fetched);
    let told = Obtain { progress: Arc::new(move |progress| seen.lock().unwrap().push(progress)), ..how() };
    let got = obtain(&place.store, &registry.name("team/fit:1"), told).await.unwrap();
    assert_eq!(got.digest, Digest::of(&image.config()));
    assert_eq!(got.config.entrypoint, ["/bin/run"]);
    for layer in &image.layers {
        let last = |step| {
            let fetched = fetched.lock().unwrap();
            let mut mine =
                fetched.iter().filter(|one| one.layer == Digest::of(layer).to_string() && one.step == step);
            mine.next_back().map(|one| (one.done, one.total))
        };
        let size = image.packing.pack(layer).len() as u64;
        assert_eq!(last(Step::Fetch), Some((size, size)));
        assert_eq!(last(Step::Unpack), Some((size, size)));
    }
    place.assert_tidy();

    let digest = Digest::of(&image.blobs().manifest);
    let pinned = registry.name(&format!("team/fit:1@{digest}"));
    let tagged = registry.name("team/fit:1");
    drop(registry);
    assert_eq!(place.obtain(&pinned).await.unwrap().digest, got.digest);
    let error = place.obtain(&tagged).await.unwrap_err();
    assert!(matches!(error, ObtainError::Network { .. }), "{error:?}");
}

#[tokio::test]
async fn an_index_gives_the_image_for_this_machine() {
    let Some(registry) = Registry::start(false) else { return };
    let place = Place::new();
    let here = small();
    let mut there = Image::new(vec![Layer::new().file("etc/motd", "other")]);
    there.platform = Platform { os: "linux".into(), architecture: "s390x".into(), variant: None };
    registry.push(&here, "fit:here", &ANONYMOUS).await;
    registry.push(&there, "fit:there", &ANONYMOUS).await;
    let entry = |image: &Image| {
        let manifest = image.blobs().manifest;
        json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": Digest::of(&manifest),
            "size": manifest.len(),
            "platform": {"os": image.platform.os, "architecture": image.platform.architecture},
        })
    };
    for (tag, listed) in [("both", vec![entry(&there), entry(&here)]), ("other", vec![entry(&there)])] {
        let media_type = "application/vnd.oci.image.index.v1+json";
        let index = json!({"schemaVersion": 2, "mediaType": media_type, "manifests": listed});
        let name = format!("fit:{tag}");
        registry.push_manifest(&name, index.to_string().into_bytes(), media_type, &ANONYMOUS).await;
    }
    let got = place.obtain(&registry.name("fit:both")).await.unwrap();
    assert_eq!(got.digest, Digest::of(&here.config()));
    for tag in ["fit:other", "fit:there"] {
        let error = place.obtain(&registry.name(tag)).await.unwrap_err();
        assert!(
            matches!(&error, ObtainError::Platform { there, .. } if there == &["linux/s390x"]),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn a_password_opens_the_registry_and_a_wrong_one_does_not() {
    let Some(registry) = Registry::start(true) else { return };
    let place = Place::new();
    registry.push(&small(), "fit:1", &basic()).await;
    let (host, name) = (registry.address.to_string(), registry.name("fit:1"));

    let error = place.obtain(&name).await.unwrap_err();
    assert!(matches!(error, ObtainError::NoAccess { logged_in: false, .. }), "{error:?}");
    assert!(error.to_string().contains(&format!("docker login {host}")), "{error}");
    let wrong = with_login(&place, &host, NAME, "guess");
    let error = obtain(&place.store, &name, wrong).await.unwrap_err();
    assert!(matches!(error, ObtainError::NoAccess { logged_in: true, .. }), "{error:?}");
    assert!(!chain(&error).contains("guess"), "{error}");

    let right = with_login(&place, &host, NAME, PASSWORD);
    let error = obtain(&place.store, &registry.name("none:1"), right.clone()).await.unwrap_err();
    assert!(matches!(error, ObtainError::NotFound { .. }), "{error:?}");
    let error = obtain(&place.store, &registry.name("fit:none"), right.clone()).await.unwrap_err();
    assert!(matches!(error, ObtainError::NotFound { .. }), "{error:?}");
    obtain(&place.store, &name, right).await.unwrap();
    place.assert_tidy();
}

/// Where the process of [`a_credential_helper_is_asked`] finds the registry.
const HELPED: &str = "IMAGE_TEST_HELPED";

#[tokio::test]
async fn with_a_helper_on_the_path() {
    let Ok(name) = std::env::var(HELPED) else { return };
    let place = Place::new();
    let (host, _) = name.split_once('/').unwrap();
    let path = place.path("config.json");
    for config in [
        json!({"credHelpers": {host: "test"}, "credsStore": "other"}),
        json!({"credsStore": "test", "auths": {host: {}}}),
    ] {
        fs::write(&path, config.to_string()).unwrap();
        let credentials = Credentials::read(&path).unwrap();
        obtain(&place.store, &name, Obtain { credentials, ..how() }).await.unwrap();
    }
    for (helper, expected) in [("refusing", "gives no credentials"), ("chatty", "is not of the credential")] {
        fs::write(&path, json!({"credsStore": helper}).to_string()).unwrap();
        let credentials = Credentials::read(&path).unwrap();
        let error = obtain(&place.store, &name, Obtain { credentials, ..how() }).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    fs::write(&path, json!({"credsStore": "empty"}).to_string()).unwrap();
    let credentials = Credentials::read(&path).unwrap();
    let error = obtain(&place.store, &name, Obtain { credentials, ..how() }).await.unwrap_err();
    assert!(matches!(error, ObtainError::NoAccess { logged_in: false, .. }), "{error:?}");
}

#[tokio::test]
async fn a_credential_helper_is_asked() {
    let Some(registry) = Registry::start(true) else { return };
    registry.push(&small(), "fit:1", &basic()).await;
    let place = Place::new();
    let helper = |name: &str, script: &str| {
        let path = place.path(&format!("docker-credential-{name}"));
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    let host = registry.address;
    let answer = format!(r#"{{"ServerURL":"{host}","Username":"{NAME}","Secret":"{PASSWORD}"}}"#);
    helper("test", &format!("[ \"$1\" = get ] && [ \"$(cat)\" = {host} ] && echo '{answer}'"));
    helper("refusing", "echo 'token expired'; exit 1");
    helper("chatty", "echo hello");
    helper("empty", "echo 'credentials not found in native keychain'; exit 1");
    let mut command = again("registry::with_a_helper_on_the_path", place.folder.path());
    let path = format!("{}:{}", place.folder.path().display(), std::env::var("PATH").unwrap());
    let output = command.env(HELPED, registry.name("fit:1")).env("PATH", path).output().unwrap();
    assert_succeeded(&output);
}

#[tokio::test]
async fn a_password_is_not_shown_to_where_the_registry_sends_for_blobs() {
    let Some(registry) = Registry::start(true) else { return };
    registry.push(&small(), "fit:1", &basic()).await;
    // The other place needs no password, as with addresses that are signed.
    let upstream = Registry::start(false).unwrap();
    upstream.push(&small(), "fit:1", &ANONYMOUS).await;
    let elsewhere = Front::start(upstream.address, |_| Action::Forward);
    let address = elsewhere.address;
    let front = Front::start(registry.address, move |request| {
        if !request.is_blob() {
            return Action::Forward;
        }
        let path = request.line.split(' ').nth(1).unwrap();
        let location = format!("Location: http://{address}{path}\r\n");
        Action::Answer("307 Temporary Redirect", location, Vec::new())
    });
    let place = Place::new();
    let login = with_login(&place, &front.address.to_string(), NAME, PASSWORD);
    obtain(&place.store, &front.name("fit:1"), login).await.unwrap();
    let told =
        |front: &Front| front.requests().iter().any(|request| request.header("authorization").is_some());
    assert!(told(&front) && !told(&elsewhere) && !elsewhere.requests().is_empty());
}

#[tokio::test]
async fn a_token_is_got_with_the_password_and_shown_to_the_registry() {
    let Some(registry) = Registry::start(false) else { return };
    registry.push(&small(), "fit:1", &ANONYMOUS).await;
    let basic = base64::engine::general_purpose::STANDARD.encode(format!("{NAME}:{PASSWORD}"));
    let front = Front::start(registry.address, move |request| {
        let host = request.header("host").unwrap();
        if request.line.starts_with("GET /token?") {
            let asked = request.line.contains("scope=repository%3Afit%3Apull")
                && request.line.contains("service=test");
            return match request.header("authorization") == Some(&format!("Basic {basic}")) && asked {
                true => Action::Answer("200 OK", String::new(), br#"{"token":"let-me-in"}"#.to_vec()),
                false => Action::Answer("401 Unauthorized", String::new(), Vec::new()),
            };
        }
        if request.header("authorization") == Some("Bearer let-me-in") {
            return Action::Forward;
        }
        let challenge =
            format!("WWW-Authenticate: Bearer realm=\"http://{host}/token\",service=\"test\"\r\n");
        Action::Answer("401 Unauthorized", challenge, Vec::new())
    });
    let place = Place::new();
    let (host, name) = (front.address.to_string(), front.name("fit:1"));
    let wrong = with_login(&place, &host, NAME, "guess");
    let error = obtain(&place.store, &name, wrong).await.unwrap_err();
    assert!(matches!(error, ObtainError::NoAccess { logged_in: true, .. }), "{error:?}");
    let error = place.obtain(&name).await.unwrap_err();
    assert!(matches!(error, ObtainError::NoAccess { logged_in: false, .. }), "{error:?}");
    obtain(&place.store, &name, with_login(&place, &host, NAME, PASSWORD)).await.unwrap();
}

#[tokio::test]
async fn a_connection_that_breaks_again_and_again_is_taken_up_where_it_broke() {
    let Some(registry) = Registry::start(false) else { return };
    registry.push(&large().packed(Packing::Plain), "fit:1", &ANONYMOUS).await;
    let front = Front::start(registry.address, |request| match request.is_blob() {
        true => Action::Cut(2 << 20),
        false => Action::Forward,
    });
    let place = Place::new();
    assert_large(&place.obtain(&front.name("fit:1")).await.unwrap());
    let ranges = front.ranges();
    let mut starts: Vec<usize> = ranges
        .iter()
        .map(|range| range.trim_start_matches("bytes=").trim_end_matches('-').parse().unwrap())
        .filter(|&start| start > 0)
        .collect();
    starts.sort_unstable();
    // Almost all of what came is kept: the head of an answer, and what was on its way, is lost.
    assert!(starts.len() >= 3 && starts[0] > 1 << 20, "{ranges:?}");
    assert!(starts.windows(2).all(|pair| pair[1] > pair[0] + (1 << 20)), "{ranges:?}");
    place.assert_tidy();
}

#[tokio::test]
async fn what_was_fetched_before_it_failed_is_not_fetched_again() {
    let Some(registry) = Registry::start(false) else { return };
    registry.push(&large(), "fit:1", &ANONYMOUS).await;
    let blobs = AtomicUsize::new(0);
    let failing = Front::start(registry.address, move |request| {
        // The config, and then the first answer about a layer.
        match request.is_blob() && request.header("range") != Some("bytes=0-") {
            true => {
                blobs.fetch_add(1, Ordering::SeqCst);
                Action::Answer("503 Service Unavailable", String::new(), Vec::new())
            }
            false if request.is_blob() => Action::Cut(3 << 20),
            false => Action::Forward,
        }
    });
    let place = Place::new();
    let error = place.obtain(&failing.name("fit:1")).await.unwrap_err();
    assert!(matches!(error, ObtainError::Network { .. }), "{error:?}");
    let partial = place.names("blobs");
    assert_eq!(partial.len(), 1, "{partial:?}");
    let kept = fs::metadata(place.path("images/blobs").join(&partial[0])).unwrap().len();
    assert!(kept > 2 << 20, "{kept}");

    let front = Front::start(registry.address, |_| Action::Forward);
    assert_large(&place.obtain(&front.name("fit:1")).await.unwrap());
    let ranges = front.ranges();
    assert!(ranges.contains(&format!("bytes={kept}-")), "{kept} {ranges:?}");
    place.assert_tidy();
}

#[tokio::test]
async fn a_registry_without_ranges_serves_too() {
    let Some(registry) = Registry::start(false) else { return };
    registry.push(&large(), "fit:1", &ANONYMOUS).await;
    let answers = AtomicUsize::new(0);
    let front = Front::start(registry.address, move |request| {
        if request.is_blob() && answers.fetch_add(1, Ordering::SeqCst) == 1 {
            return Action::Cut(1 << 20);
        }
        Action::WithoutRange
    });
    let place = Place::new();
    assert_large(&place.obtain(&front.name("fit:1")).await.unwrap());
    place.assert_tidy();
}

#[tokio::test]
async fn content_of_another_digest_is_refused_and_not_kept() {
    let Some(registry) = Registry::start(false) else { return };
    let image = small();
    registry.push(&image, "fit:1", &ANONYMOUS).await;
    let blobs = image.blobs();
    let manifest = Digest::of(&blobs.manifest);
    for (digest, blob) in blobs.blobs.clone() {
        let mut damaged = blob;
        damaged[0] ^= 1;
        let front =
            Front::start(registry.address, move |request| match request.line.contains(&digest.to_string()) {
                true => Action::Answer("200 OK", String::new(), damaged.clone()),
                false => Action::Forward,
            });
        let place = Place::new();
        let error = place.obtain(&front.name(&format!("fit@{manifest}"))).await.unwrap_err();
        assert!(
            matches!(error, ObtainError::Digest { expected, .. } if expected == digest),
            "{}",
            chain(&error)
        );
        // Other layers, which were good, may be there for the next try.
        assert!(place.names("blobs").iter().all(|name| !name.contains(&digest.hex())));
        assert_eq!(place.names("images"), [""; 0]);
    }
}

#[tokio::test]
async fn a_hostile_layer_of_a_registry_leaves_nothing() {
    let Some(registry) = Registry::start(false) else { return };
    let out = Layer::new().raw(&Raw { path: "../x", ..Raw::default() });
    registry.push(&Image::new(vec![out]), "fit:1", &ANONYMOUS).await;
    let place = Place::new();
    let error = place.obtain(&registry.name("fit:1")).await.unwrap_err();
    assert!(matches!(error, ObtainError::Layer { source: LayerError::Outside { .. }, .. }), "{error:?}");
    place.assert_tidy();
}

#[tokio::test]
async fn refusals_are_told_apart() {
    let denied = br#"{"errors":[{"code":"DENIED","message":"not for you"}]}"#;
    let unknown = br#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"no"}]}"#;
    let busy = br#"{"errors":[{"code":"TOOMANYREQUESTS","message":"later"}]}"#;
    type Check = fn(&ObtainError) -> bool;
    let no_access: Check = |error| matches!(error, ObtainError::NoAccess { .. });
    let not_found: Check = |error| matches!(error, ObtainError::NotFound { .. });
    let network: Check = |error| matches!(error, ObtainError::Network { .. });
    let manifest: Check = |error| matches!(error, ObtainError::Manifest { .. });
    let table: [(&'static str, &[u8], Check); 8] = [
        ("403 Forbidden", denied, no_access),
        ("403 Forbidden", b"<html>", no_access),
        ("401 Unauthorized", b"", no_access),
        ("404 Not Found", unknown, not_found),
        ("404 Not Found", b"", not_found),
        ("429 Too Many Requests", busy, network),
        ("500 Internal Server Error", b"", network),
        ("200 OK", b"<html>", manifest),
    ];
    for (status, body, check) in table {
        let front = Front::start(([127, 0, 0, 1], 1).into(), move |request| {
            let body = if request.line.starts_with("GET /v2/ ") { (b"").to_vec() } else { body.to_vec() };
            let status = if request.line.starts_with("GET /v2/ ") { "200 OK" } else { status };
            Action::Answer(status, String::new(), body)
        });
        let error = Place::new().obtain(&front.name("fit:1")).await.unwrap_err();
        assert!(check(&error), "{status}: {error:?}");
    }
}

#[tokio::test]
async fn other_machines_are_never_asked_in_the_clear() {
    let front =
        Front::start(([127, 0, 0, 1], 1).into(), |_| Action::Answer("200 OK", String::new(), Vec::new()));
    // Every address of this machine, but not known as one of its own.
    let name = format!("0.0.0.0:{}/fit:1", front.address.port());
    let error = Place::new().obtain(&name).await.unwrap_err();
    assert!(matches!(error, ObtainError::Network { .. }), "{error:?}");
    assert!(
        front.requests().iter().all(|request| !request.line.starts_with("GET")),
        "{:?}",
        front.requests()
    );
}

#[tokio::test]
async fn who_gives_up_can_go_on_later() {
    let Some(registry) = Registry::start(false) else { return };
    registry.push(&large(), "fit:1", &ANONYMOUS).await;
    let place = Place::new();
    let (arrived, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
    let told = Obtain { progress: Arc::new(move |progress| _ = arrived.send(progress.step)), ..how() };
    let name = registry.name("fit:1");
    tokio::select! {
        _ = obtain(&place.store, &name, told) => panic!("it was faster than its first report"),
        step = arrivals.recv() => assert_eq!(step, Some(Step::Fetch)),
    }
    assert_large(&place.obtain(&name).await.unwrap());
    place.assert_tidy();
}
