//! The endpoint: one port for all services that training clients use.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use fs_err as fs;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use s3s::service::S3Service;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use trainyard_engine::engine::lock_soon;

mod answer;
mod cloudwatch;
mod codec;
mod ecr;
mod host;
mod logs;
mod pace;
mod sagemaker;
mod service;
mod sts;
mod tls;

pub(crate) use pace::Pace;
pub(crate) use service::Services;
pub(crate) use tls::acceptor;

use host::HostCheck;
use service::Asked;

/// From the first byte of a request to the end of its headers.
const HEADERS_TIME: Duration = Duration::from_secs(30);
/// Of all headers of a request, in bytes.
const HEADERS_SIZE: usize = 64 << 10;
/// For requests under way when the endpoint is stopped.
const LAST_TIME: Duration = Duration::from_secs(5);

/// A port that is listened at.
pub(crate) struct Server {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    /// Held as long as the endpoint runs: one for each data folder.
    _lock: fs::File,
}

impl Server {
    /// Listens at the address for the data folder.
    ///
    /// # Errors
    /// Another endpoint has the folder, or another program the address.
    pub(crate) async fn bind(data: &Path, at: SocketAddr, tls: Option<TlsAcceptor>) -> anyhow::Result<Self> {
        let lock = lock(data).await?;
        let listener = TcpListener::bind(at).await.with_context(|| format!("listening at {at}"))?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, tls, _lock: lock })
    }

    /// What clients take as the endpoint.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Answers requests until `stop` is done, then those that are under way.
    ///
    /// Connections beyond `most_connections` wait in the kernel's queue.
    pub(crate) async fn run(
        self,
        services: Services,
        s3: S3Service,
        most_connections: usize,
        stop: impl Future<Output = ()>,
    ) {
        let services = Arc::new(services);
        let check = Arc::new(HostCheck::new(self.address));
        let room = Arc::new(Semaphore::new(most_connections));
        let graceful = GracefulShutdown::new();
        let mut stop = pin!(stop);
        loop {
            let permit = Arc::clone(&room).acquire_owned().await;
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = &mut stop => break,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Without descriptors, for instance; it is told and tried again.
                    eprintln!("a connection could not be taken: {error}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let connection = Connection {
                services: Arc::clone(&services),
                s3: s3.clone(),
                check: Arc::clone(&check),
                watcher: graceful.watcher(),
            };
            let tls = self.tls.clone();
            tokio::spawn(async move {
                let _permit = permit;
                connection.accept(stream, tls).await;
            });
        }
        let _ = tokio::time::timeout(LAST_TIME, graceful.shutdown()).await;
    }
}

async fn lock(data: &Path) -> anyhow::Result<fs::File> {
    fs::create_dir_all(data)?;
    let file = fs::OpenOptions::new().create(true).append(true).open(data.join("server.lock"))?;
    if !lock_soon(&file).await? {
        anyhow::bail!("another endpoint runs for {}: use that one, or another --data-dir", data.display());
    }
    Ok(file)
}

/// One client.
struct Connection {
    services: Arc<Services>,
    s3: S3Service,
    check: Arc<HostCheck>,
    watcher: hyper_util::server::graceful::Watcher,
}

impl Connection {
    async fn accept(self, stream: TcpStream, tls: Option<TlsAcceptor>) {
        // Small answers must not wait for more.
        let _ = stream.set_nodelay(true);
        match tls {
            None => self.serve(stream).await,
            Some(tls) => {
                // What is no TLS, or another version of it, is told by the protocol.
                if let Ok(Ok(stream)) = tokio::time::timeout(HEADERS_TIME, tls.accept(stream)).await {
                    self.serve(stream).await;
                }
            }
        }
    }

    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let Self { services, s3, check, watcher } = self;
        let service = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            let (services, s3, allowed) = (Arc::clone(&services), s3.clone(), check.allows(&request));
            async move {
                if !allowed {
                    return Ok(host::refusal());
                }
                match Asked::of(&request) {
                    Asked::S3 => trainyard_s3::answer(&s3, request).await.map(answer::numbered),
                    asked => Ok(services.answer(request, asked).await),
                }
            }
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS_TIME).max_buf_size(HEADERS_SIZE);
        builder.http2().timer(TokioTimer::new()).max_header_list_size(HEADERS_SIZE as u32);
        let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
        // A client that goes away is its own affair.
        let _ = watcher.watch(connection).await;
    }
}

/// Whether other machines can reach an address.
pub(crate) fn is_open(address: SocketAddr) -> bool {
    !address.ip().is_loopback()
}

/// Writes down where the endpoint is, for `trainyard env`.
pub(crate) fn announce(data: &Path, url: &str) -> io::Result<()> {
    fs::write(data.join("endpoint"), url)
}

/// Where the endpoint of a data folder is, or was last.
pub(crate) fn announced(data: &Path) -> Option<String> {
    fs::read_to_string(data.join("endpoint")).ok()
}
