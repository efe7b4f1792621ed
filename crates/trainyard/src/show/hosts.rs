//! Names of hosts before the lines of their logs.

use console::{Color, Style, StyledObject};

/// Colours that can be read on dark and on light ground; hosts take them in turn.
const COLOURS: [Color; 6] =
    [Color::Cyan, Color::Green, Color::Yellow, Color::Magenta, Color::Blue, Color::Red];

/// The hosts of a job.
#[derive(Debug, Default)]
pub(crate) struct HostNames {
    hosts: Vec<String>,
    /// Of the longest.
    width: usize,
}

impl HostNames {
    pub(crate) fn new(hosts: Vec<String>) -> Self {
        Self { width: hosts.iter().map(String::len).max().unwrap_or(0), hosts }
    }

    /// One more, unless it is there.
    pub(crate) fn add(&mut self, host: &str) {
        if !self.hosts.iter().any(|known| known == host) {
            self.width = self.width.max(host.len());
            self.hosts.push(host.to_owned());
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &String> {
        self.hosts.iter()
    }

    /// A host's name in its own colour where there are colours, as wide as the longest.
    pub(crate) fn name(&self, host: &str) -> StyledObject<String> {
        let index = self.hosts.iter().position(|name| name == host).unwrap_or(0);
        Style::new().fg(COLOURS[index % COLOURS.len()]).apply_to(format!("{host:width$}", width = self.width))
    }
}
