//! The supervisor's end of its conversation with the first process of an instance.

use std::io;

use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::jail::{Command, Message};

/// The socket between the two. When it ends, the other side kills all that it has started.
#[derive(Debug)]
pub(crate) struct Talk {
    messages: BufReader<OwnedReadHalf>,
    commands: OwnedWriteHalf,
    line: Vec<u8>,
}

impl Talk {
    pub(crate) fn new(socket: std::os::unix::net::UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let (read, commands) = UnixStream::from_std(socket)?.into_split();
        Ok(Self { messages: BufReader::new(read), commands, line: Vec::new() })
    }

    /// The next message; none when there will be no more. Nothing is lost when it is not awaited to
    /// its end.
    pub(crate) async fn message(&mut self) -> Option<Message> {
        self.messages.read_until(b'\n', &mut self.line).await.ok()?;
        let line = std::mem::take(&mut self.line);
        serde_json::from_slice(&line).ok()
    }

    /// Sends what is to be done, before any command: its length and then itself.
    pub(crate) async fn order(&mut self, order: &impl Serialize) -> io::Result<()> {
        let order = serde_json::to_vec(order)?;
        self.commands.write_all(&(order.len() as u64).to_le_bytes()).await?;
        self.commands.write_all(&order).await
    }

    /// Sends a command to every process of the instance.
    ///
    /// The instance may have ended at the same moment, which is no error.
    pub(crate) async fn command(&mut self, command: Command) {
        let _ = self.commands.write_all(&[command.byte()]).await;
    }
}
