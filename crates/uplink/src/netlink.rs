//! The few requests of rtnetlink(7) that an uplink needs.

use std::io;

use socket2::{Domain, Protocol, Socket, Type};

/// The number of the loopback interface in every network namespace.
pub(crate) const LOOPBACK: u32 = 1;

/// Requests for the network namespace of the thread that opened it.
pub(crate) struct Netlink(Socket);

/// One request: its kind, its fixed part, then its attributes.
pub(crate) struct Request {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

impl Request {
    /// One that makes something new; `body` is the fixed part of its kind.
    pub(crate) fn create(kind: u16, body: &[u8]) -> Self {
        Self { kind, flags: (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16, body: body.to_vec() }
    }

    /// One that changes what is there.
    pub(crate) fn change(kind: u16, body: &[u8]) -> Self {
        Self { kind, flags: 0, body: body.to_vec() }
    }

    /// With one more attribute.
    pub(crate) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        self.body.extend(((4 + value.len()) as u16).to_ne_bytes());
        self.body.extend(kind.to_ne_bytes());
        self.body.extend(value);
        self.body.resize(self.body.len().next_multiple_of(4), 0);
        self
    }

    fn message(&self) -> Vec<u8> {
        let mut message = Vec::with_capacity(16 + self.body.len());
        message.extend((16 + self.body.len() as u32).to_ne_bytes());
        message.extend(self.kind.to_ne_bytes());
        message.extend((self.flags | (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16).to_ne_bytes());
        message.extend([0; 8]); // sequence and sender: one question at a time, to the kernel
        message.extend(&self.body);
        message
    }
}

impl Netlink {
    pub(crate) fn open() -> io::Result<Self> {
        let protocol = Protocol::from(libc::NETLINK_ROUTE);
        Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(protocol)).map(Self)
    }

    /// Waits until the kernel has done it.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn ask(&self, request: &Request) -> io::Result<()> {
        use std::io::Read;
        self.0.send(&request.message())?;
        let mut answer = [0; 4096];
        let length = (&self.0).read(&mut answer)?;
        // A header of 16 bytes, then the negative error number, 0 if it is done.
        let code = answer[..length].get(16..20).and_then(|code| code.try_into().ok()).map(i32::from_ne_bytes);
        match code {
            Some(0) => Ok(()),
            Some(code) => Err(io::Error::from_raw_os_error(-code)),
            None => Err(io::Error::new(io::ErrorKind::InvalidData, "an answer of rtnetlink is cut off")),
        }
    }
}
