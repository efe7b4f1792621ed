//! Debian's `docker-registry` as a registry, and something in front of it that misbehaves.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use fs_err as fs;
use oci_client::client::{ClientConfig, ClientProtocol};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference, RegistryOperation};
use tempfile::TempDir;

use crate::build::Image;

pub(crate) const NAME: &str = "fit";
pub(crate) const PASSWORD: &str = "s3cret";
/// What `htpasswd -nbB` makes of them.
const HTPASSWD: &str = "fit:$2y$04$j6c2UhHeCbd24JpQONQfGuKnSXE6sXIq2mQXznybFAsUk5OHC.PcS\n";

/// A registry that ends with this.
pub(crate) struct Registry {
    child: Child,
    pub(crate) address: SocketAddr,
    _folder: TempDir,
    log: Option<JoinHandle<()>>,
}

impl Registry {
    /// None, with a word about it, if there is no such program.
    pub(crate) fn start(with_password: bool) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let accounts = folder.path().join("htpasswd");
        fs::write(&accounts, HTPASSWD).unwrap();
        let auth = match with_password {
            true => format!("auth: {{htpasswd: {{realm: test, path: {}}}}}\n", accounts.display()),
            false => String::new(),
        };
        let config = folder.path().join("config.yml");
        let text = format!(
            "version: 0.1\nlog: {{level: info}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\n\
             http: {{addr: '127.0.0.1:0', secret: test}}\n{auth}",
            folder.path().join("storage").display()
        );
        fs::write(&config, text).unwrap();
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(&config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let Ok(mut child) = command.spawn() else {
            println!("skipped: there is no program docker-registry (Debian's package of that name)");
            return None;
        };
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = log.by_ref().map(Result::unwrap).find_map(|line| {
            let (_, rest) = line.split_once("listening on ")?;
            rest.split(|c: char| c == '"' || c.is_whitespace()).next()?.parse().ok()
        });
        // Read on, so that it is never stopped by a full pipe.
        let log = std::thread::spawn(move || log.for_each(drop));
        Some(Self { child, address: address.unwrap(), _folder: folder, log: Some(log) })
    }

    pub(crate) fn name(&self, repository: &str) -> String {
        format!("{}/{repository}", self.address)
    }

    /// Puts an image there under a name with a tag.
    pub(crate) async fn push(&self, image: &Image, name: &str, auth: &RegistryAuth) {
        let blobs = image.blobs();
        let (client, reference) = self.client(name, auth).await;
        for (digest, blob) in &blobs.blobs {
            client.push_blob(&reference, blob.clone(), &digest.to_string()).await.unwrap();
        }
        let media_type = "application/vnd.oci.image.manifest.v1+json";
        self.push_manifest(name, blobs.manifest, media_type, auth).await;
    }

    pub(crate) async fn push_manifest(
        &self,
        name: &str,
        manifest: Vec<u8>,
        media_type: &str,
        auth: &RegistryAuth,
    ) {
        let (client, reference) = self.client(name, auth).await;
        client.push_manifest_raw(&reference, manifest, media_type.parse().unwrap()).await.unwrap();
    }

    async fn client(&self, name: &str, auth: &RegistryAuth) -> (Client, Reference) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::new(ClientConfig { protocol: ClientProtocol::Http, ..ClientConfig::default() });
        let reference: Reference = self.name(name).parse().unwrap();
        client.auth(&reference, auth, RegistryOperation::Push).await.unwrap();
        (client, reference)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.log.take().map(JoinHandle::join);
    }
}

/// What was asked: the line, and the headers by their names in lower case.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) line: String,
    headers: Vec<(String, String)>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Whether it is for the content of a blob.
    pub(crate) fn is_blob(&self) -> bool {
        self.line.contains("/blobs/sha256:")
    }
}

/// What is done about a request.
pub(crate) enum Action {
    /// As the registry does.
    Forward,
    /// As the registry does, but the connection breaks after so many bytes.
    Cut(usize),
    /// As a registry does that knows no ranges.
    WithoutRange,
    /// A status with headers and a body.
    Answer(&'static str, String, Vec<u8>),
}

/// Stands in front of a registry.
pub(crate) struct Front {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Front {
    pub(crate) fn start(
        upstream: SocketAddr,
        decide: impl Fn(&Request) -> Action + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port()));
        let (requests, ended) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (seen, over, decide) = (Arc::clone(&requests), Arc::clone(&ended), Arc::new(decide));
        let thread = std::thread::spawn(move || {
            let mut connections = Vec::new();
            while let Ok((client, _)) = listener.accept() {
                if over.load(Ordering::SeqCst) {
                    break;
                }
                let (seen, decide) = (Arc::clone(&seen), Arc::clone(&decide));
                connections.push(std::thread::spawn(move || {
                    // Whoever asked may be gone.
                    let _ = serve(client, upstream, &seen, &*decide);
                }));
            }
            connections.into_iter().for_each(|connection| connection.join().unwrap());
        });
        Self { address, requests, ended, thread: Some(thread) }
    }

    pub(crate) fn name(&self, repository: &str) -> String {
        format!("{}/{repository}", self.address)
    }

    /// What was asked so far, in order.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// The ranges that were asked for of blobs.
    pub(crate) fn ranges(&self) -> Vec<String> {
        let requests = self.requests();
        let blobs = requests.iter().filter(|request| request.is_blob());
        blobs.filter_map(|request| request.header("range").map(str::to_owned)).collect()
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Answers one request and closes the connection.
fn serve(
    mut client: TcpStream,
    upstream: SocketAddr,
    seen: &Mutex<Vec<Request>>,
    decide: &(dyn Fn(&Request) -> Action + Send + Sync),
) -> std::io::Result<()> {
    let mut lines = BufReader::new(client.try_clone()?).lines();
    let Some(line) = lines.next().transpose()? else { return Ok(()) };
    let mut headers = Vec::new();
    for header in lines {
        let header = header?;
        let Some((name, value)) = header.split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let request = Request { line, headers };
    let action = decide(&request);
    seen.lock().unwrap().push(request.clone());
    let (limit, without) = match action {
        Action::Answer(status, headers, body) => {
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n"
            );
            client.write_all(head.as_bytes())?;
            return client.write_all(&body);
        }
        Action::Forward => (u64::MAX, ""),
        Action::WithoutRange => (u64::MAX, "range"),
        Action::Cut(limit) => (limit as u64, ""),
    };
    let mut registry = TcpStream::connect(upstream)?;
    let kept = request.headers.iter().filter(|(name, _)| name != "connection" && name != without);
    let headers: String = kept.map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    write!(registry, "{}\r\n{headers}connection: close\r\n\r\n", request.line)?;
    std::io::copy(&mut registry.take(limit), &mut client)?;
    client.shutdown(Shutdown::Both)
}
