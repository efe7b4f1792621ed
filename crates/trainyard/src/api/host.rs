//! The `Host` header: a page of a browser must not reach the endpoint under a name of its own (DNS rebinding).

use std::net::{IpAddr, SocketAddr};

use hyper::header::HOST;
use hyper::{Request, Response, StatusCode};

/// Under which names the endpoint may be addressed.
pub(super) struct HostCheck {
    /// Only this machine can reach it, so only names of this machine are right.
    loopback: bool,
}

impl HostCheck {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { loopback: address.ip().is_loopback() }
    }

    /// Whether the request names this endpoint.
    pub(super) fn allows<B>(&self, request: &Request<B>) -> bool {
        let header = request.headers().get(HOST).and_then(|value| value.to_str().ok());
        let host = request.uri().host().or(header);
        !self.loopback || host.is_some_and(is_this_machine)
    }
}

/// `localhost`, names below it (as buckets have them), and addresses of this machine, with or without a port.
fn is_this_machine(host: &str) -> bool {
    let bare = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let named = bare == "localhost" || bare.ends_with(".localhost");
    named || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// What others are told.
pub(super) fn refusal() -> Response<s3s::Body> {
    let text = "this endpoint is for programs of its own machine: use localhost or 127.0.0.1\n";
    let mut response = Response::new(s3s::Body::from(text.to_owned()));
    *response.status_mut() = StatusCode::MISDIRECTED_REQUEST;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_right() {
        for right in ["localhost", "localhost:9191", "b.localhost:1", "127.0.0.1", "127.0.0.9:80", "[::1]:9"]
        {
            assert!(is_this_machine(right), "{right}");
        }
        for wrong in
            ["", "example.org", "localhost.example.org:9191", "10.0.0.1:9191", "[fe80::1]", "notlocalhost"]
        {
            assert!(!is_this_machine(wrong), "{wrong}");
        }
    }
}
