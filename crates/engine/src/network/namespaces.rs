//! An instance's place in the network of its job, as namespaces that its processes can enter.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{RecvFlags, recv};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::io::unix::AsyncFd;

use super::{Answer, hear};
use crate::sys::watch_readable;

/// An instance without its place in the network of its job.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JoinError {
    /// The connection to the network can't be used.
    #[error("the connection to the job's network can't be used")]
    Io(#[from] io::Error),
    /// The process of the network has ended.
    #[error(
        "the process of the job's network was killed or has broken down; network.log may have a word of it"
    )]
    Gone,
    /// The kernel refuses something.
    #[error("{explanation}")]
    Refused {
        /// What, and which setting does it.
        explanation: String,
    },
}

/// An instance's place, as its supervisor holds it.
#[derive(Debug)]
pub(crate) struct Place {
    /// What the instance's processes enter.
    pub(crate) namespaces: Namespaces,
    connection: AsyncFd<OwnedFd>,
}

/// The namespaces of an instance's place.
#[derive(Debug)]
pub(crate) struct Namespaces {
    /// The user namespace of the job's network.
    user: OwnedFd,
    /// The instance's own, with its interface.
    network: OwnedFd,
}

impl Place {
    /// Waits for the answer on the connection that a supervisor was started with.
    pub(crate) async fn received(connection: OwnedFd) -> Result<Self, JoinError> {
        let connection = watch_readable(connection)?;
        let _readable = connection.readable().await?;
        match hear(connection.get_ref())? {
            Some((Answer::Joined, descriptors)) => {
                let namespaces = Namespaces::of(descriptors).ok_or(JoinError::Gone)?;
                Ok(Self { namespaces, connection })
            }
            Some((Answer::Refused { explanation }, _)) => Err(JoinError::Refused { explanation }),
            None => Err(JoinError::Gone),
        }
    }

    /// Waits until the network is gone, and the other instances are out of reach.
    pub(crate) async fn lost(&self) -> JoinError {
        loop {
            let end = match self.connection.readable().await {
                Ok(mut readable) => readable.try_io(|connection| at_end(connection.get_ref())),
                Err(error) => return error.into(),
            };
            match end {
                // Nothing is there to be read, as long as the network lasts.
                Err(_) => {}
                Ok(Ok(())) => return JoinError::Gone,
                Ok(Err(error)) => return error.into(),
            }
        }
    }
}

/// Whether a connection has ended; nothing comes on it any more.
fn at_end(connection: &OwnedFd) -> io::Result<()> {
    let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
    recv(connection, &mut [0; 1], flags).map(drop).map_err(io::Error::from)
}

impl Namespaces {
    /// From descriptors that were received; none if they are not two.
    pub(crate) fn of(descriptors: Vec<OwnedFd>) -> Option<Self> {
        let [user, network] = <[OwnedFd; 2]>::try_from(descriptors).ok()?;
        Some(Self { user, network })
    }

    /// To be sent on.
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.user.as_fd(), self.network.as_fd()]
    }

    /// Moves this process into both; it must have a single thread.
    pub(crate) fn enter(&self) -> io::Result<()> {
        move_into_link_name_space(self.user.as_fd(), Some(LinkNameSpaceType::User))?;
        Ok(move_into_link_name_space(self.network.as_fd(), Some(LinkNameSpaceType::Network))?)
    }
}
