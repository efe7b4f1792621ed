//! What supervisors append, as it comes: the kernel tells of each write, nothing is polled.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use fs_err as fs;
use inotify::{EventStream, Inotify, WatchDescriptor, WatchMask};

use super::{InstanceDirectory, Stamped, Tail};

/// Follows the reports and log lines of some instances.
#[derive(Debug)]
pub struct Watch {
    stream: EventStream<[u8; 4096]>,
    followed: BTreeMap<String, Followed>,
}

#[derive(Debug)]
struct Followed {
    watch: WatchDescriptor,
    reports: Tail,
    log: PathBuf,
    /// Bytes of the log that have been told of.
    log_end: u64,
    /// Reports that need not be told.
    known: usize,
}

/// What one instance has appended since the last time.
#[derive(Clone, Debug, PartialEq)]
pub struct News {
    /// The instance.
    pub host: String,
    /// Where its log ends now, in bytes, if it has grown; what is new was written before the reports.
    ///
    /// The lines themselves are read by whoever shows them, at their own pace
    /// ([`Tail::read_before`]): a log may be longer than memory.
    pub log_end: Option<u64>,
    /// Its new reports, in order.
    pub reports: Vec<Stamped>,
}

impl News {
    fn is_empty(&self) -> bool {
        self.log_end.is_none() && self.reports.is_empty()
    }
}

impl Followed {
    /// The new end of the log, if it has one.
    fn log_has_grown(&mut self) -> io::Result<Option<u64>> {
        let end = match fs::metadata(&self.log) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            log => log?.len(),
        };
        let grown = end > self.log_end;
        self.log_end = end;
        Ok(grown.then_some(end))
    }
}

impl Watch {
    /// Follows nothing yet.
    pub fn new() -> io::Result<Self> {
        let stream = Inotify::init()?.into_event_stream([0; 4096])?;
        Ok(Self { stream, followed: BTreeMap::new() })
    }

    /// Follows one more instance, from its first line on; what is there already comes first.
    pub fn follow(&mut self, host: &str, directory: &InstanceDirectory) -> io::Result<()> {
        fs::create_dir_all(directory.root())?;
        let mask = WatchMask::MODIFY | WatchMask::CREATE | WatchMask::CLOSE_WRITE;
        let watch = self.stream.watches().add(directory.root(), mask)?;
        let followed = Followed {
            watch,
            reports: Tail::new(directory.reports()),
            log: directory.log(),
            log_end: 0,
            known: 0,
        };
        self.followed.insert(host.to_owned(), followed);
        Ok(())
    }

    /// Follows one more instance whose first reports are known already.
    pub fn follow_from(&mut self, host: &str, directory: &InstanceDirectory, known: usize) -> io::Result<()> {
        self.follow(host, directory)?;
        if let Some(followed) = self.followed.get_mut(host) {
            followed.known = known;
        }
        Ok(())
    }

    /// Waits until something may have been appended, then reads it.
    ///
    /// Cancel safe: what is not returned comes with the next call.
    pub async fn next(&mut self) -> io::Result<Vec<News>> {
        use futures_util::StreamExt;
        let mut hosts = Vec::new();
        match self.stream.next().await {
            Some(event) => hosts.extend(self.host_of(&event?.wd)),
            None => std::future::pending().await,
        }
        self.read(&hosts)
    }

    /// Reads what has come from every instance without waiting.
    pub fn read_all(&mut self) -> io::Result<Vec<News>> {
        let hosts: Vec<_> = self.followed.keys().cloned().collect();
        self.read(&hosts)
    }

    fn host_of(&self, watch: &WatchDescriptor) -> Option<String> {
        self.followed.iter().find(|(_, followed)| followed.watch == *watch).map(|(host, _)| host.clone())
    }

    fn read(&mut self, hosts: &[String]) -> io::Result<Vec<News>> {
        let mut all = Vec::new();
        for host in hosts {
            if let Some(followed) = self.followed.get_mut(host) {
                // Reports first: a line that is logged before a report is then never shown after it.
                let mut reports: Vec<Stamped> = followed.reports.read()?;
                let known = followed.known.min(reports.len());
                followed.known -= known;
                reports.drain(..known);
                let log_end = followed.log_has_grown()?;
                let news = News { host: host.clone(), log_end, reports };
                if !news.is_empty() {
                    all.push(news);
                }
            }
        }
        Ok(all)
    }
}
