//! The local backend passes the suite of all backends, with real supervisors, on the machine and in containers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use bollard::Docker;
use bollard::query_parameters::{ListContainersOptions, ListNetworksOptions, RemoveImageOptions};
use fs_err as fs;
use trainyard_engine::backend::Backend;
use trainyard_engine::backend::conformance::{self, Place};
use trainyard_engine::backend::local::LocalBackend;
use trainyard_engine::docker::{Daemon, Sockets};
use trainyard_engine::engine::Engine;
use trainyard_engine::image::{Bring, Credentials, ImageReference, LoadedImages, Platform};
use trainyard_engine::plan::{DockerPlan, NetworkPlan, RuntimePlan};
use trainyard_engine::runtime::remember;

use super::case::supervisor;

#[tokio::test]
async fn the_local_backend_conforms() {
    let program = supervisor();
    conforms(&LocalBackend::new(program.clone()), &LocalBackend::new(program), &Place::machine()).await;
}

async fn conforms(backend: &dyn Backend, again: &dyn Backend, place: &Place) {
    conformance::all(backend, again, place).await;
}

/// Where the daemon of the tests listens, unless `DOCKER_HOST` says otherwise.
const SOCKET: &str = "/var/run/docker.sock";

#[tokio::test]
async fn the_local_backend_conforms_with_containers() {
    let usual = vec![PathBuf::from(SOCKET)];
    let daemon = match Daemon::find(&Sockets { named: std::env::var("DOCKER_HOST").ok(), usual }).await {
        Ok(daemon) => daemon,
        Err(error) => {
            assert!(std::env::var_os("TRAINYARD_NEEDS_DOCKER").is_none(), "{error}");
            return eprintln!("skipped: {error}");
        }
    };
    let data = tempfile::tempdir().unwrap();
    let program = supervisor();
    let image = bring(&daemon, &program, data.path()).await;
    remember(data.path(), &daemon.socket).unwrap();
    let docker = DockerPlan {
        socket: daemon.socket.clone(),
        image: image.clone(),
        user: String::new(),
        working_directory: "/".into(),
        stop_signal: 15,
        overlays: true,
        isolated: false,
        data: data.path().to_owned(),
    };
    let place = Place { runtime: RuntimePlan::Docker(docker), network: NetworkPlan::Alone };
    let backend = LocalBackend::new(program);
    conforms(&backend, &backend.clone(), &place).await;
    // Supervisors that a release has killed leave what they had with the daemon.
    Engine::open(data.path(), Arc::new(backend)).unwrap().sweep().await;
    assert_eq!(left(&daemon, data.path(), &image).await, Vec::<String>::new());
}

/// An image with what the checks run, and with the libraries of the supervisor that is its first process.
async fn bring(daemon: &Daemon, program: &Path, folder: &Path) -> String {
    let found = |name: &str| {
        let folders = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(name));
        folders.into_iter().find(|path| path.exists()).unwrap()
    };
    let programs = ["true", "false", "sleep"].map(found);
    let listed = Command::new("ldd").arg(program).args(&programs).output().unwrap().stdout;
    let listed = String::from_utf8(listed).unwrap();
    let words = listed.split_whitespace().filter(|word| word.starts_with('/'));
    let libraries =
        words.map(|word| PathBuf::from(word.trim_end_matches(':'))).filter(|path| path != program);
    let mut files: Vec<PathBuf> = libraries.chain(programs).collect();
    files.sort();
    files.dedup();
    let layer = folder.join("layer.tar");
    let mut tar = tar::Builder::new(fs::File::create(&layer).unwrap());
    for file in files {
        tar.append_path_with_name(&file, file.strip_prefix("/").unwrap()).unwrap();
    }
    tar.finish().unwrap();
    load(daemon, &layer, folder).await
}

/// Lets the daemon load an archive with one layer; the image's id.
async fn load(daemon: &Daemon, layer: &Path, folder: &Path) -> String {
    let digest = Command::new("sha256sum").arg(layer).output().unwrap().stdout;
    let digest = String::from_utf8(digest).unwrap();
    let digest = digest.split_whitespace().next().unwrap();
    let platform = Platform::of_this_machine();
    let config = serde_json::json!({
        "architecture": platform.architecture, "os": platform.os, "config": {},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
    });
    let manifest = serde_json::json!([{"Config": "config.json", "RepoTags": null, "Layers": ["layer.tar"]}]);
    let archive = folder.join("image.tar");
    let mut tar = tar::Builder::new(fs::File::create(&archive).unwrap());
    tar.append_path_with_name(layer, "layer.tar").unwrap();
    for (name, content) in [("config.json", config.to_string()), ("manifest.json", manifest.to_string())] {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, content.as_bytes()).unwrap();
    }
    tar.finish().unwrap();
    let name = format!("docker-archive:{}", archive.display());
    let bring = Bring {
        daemon,
        platform,
        credentials: Credentials::default(),
        scratch: folder.to_owned(),
        loaded: LoadedImages::of(folder),
        progress: Arc::new(|_| {}),
    };
    let reference = ImageReference::parse(&name, Path::new("/")).unwrap();
    bring.bring(&reference, &name).await.unwrap().id
}

/// What the daemon still has of a data folder; the image of the checks is removed.
async fn left(daemon: &Daemon, data: &Path, image: &str) -> Vec<String> {
    let client =
        Docker::connect_with_unix(&daemon.socket.to_string_lossy(), 60, bollard::API_DEFAULT_VERSION);
    let client = client.unwrap().negotiate_version().await.unwrap();
    let filters = [("label".to_owned(), vec![format!("trainyard.data-dir={}", data.display())])];
    let filters = Some(filters.into());
    let options = ListContainersOptions { all: true, filters, ..ListContainersOptions::default() };
    let containers = client.list_containers(Some(options.clone())).await.unwrap();
    let networks =
        client.list_networks(Some(ListNetworksOptions { filters: options.filters })).await.unwrap();
    let force = RemoveImageOptions { force: true, ..RemoveImageOptions::default() };
    client.remove_image(image, Some(force), None).await.unwrap();
    let containers = containers.into_iter().filter_map(|found| found.id);
    containers.chain(networks.into_iter().filter_map(|found| found.name)).collect()
}
