//! The instance's own file tree while it runs: `/opt/ml`, `/tmp` and what belongs to them.
//!
//! Facts about the tree are those of the training contract: modes 0755 and 0644, empty `model`,
//! `output/data`, `output/metrics/sagemaker`, `output/profiler` and `checkpoints`, no
//! `output/failure`.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use fs_err as fs;

use super::resolver;
use crate::pipe::make_first;
use crate::plan::{Delivery, InstancePlan, RuntimePlan};
use crate::runtime::Places;
use crate::runtime::jail::{Changes, Mount};

/// Folders below `/opt/ml` that are there when `train` starts.
const FOLDERS: [&str; 7] = [
    "input/config",
    "input/data",
    "model",
    "output/data",
    "output/metrics/sagemaker",
    "output/profiler",
    "checkpoints",
];

/// Where things are in the scratch folder.
#[derive(Clone, Debug)]
pub(crate) struct Scratch {
    root: PathBuf,
}

impl Scratch {
    /// The scratch folder at a path, which need not exist yet.
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// The folder itself.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// What the instance sees as `/opt/ml`.
    pub(crate) fn ml(&self) -> PathBuf {
        self.root.join("ml")
    }

    /// What the instance sees as `/tmp`.
    pub(crate) fn tmp(&self) -> PathBuf {
        self.root.join("tmp")
    }

    /// The folder of the channels as far as it is the instance's own: in it are the pipes.
    pub(crate) fn channels(&self) -> PathBuf {
        self.ml().join("input/data")
    }

    /// The channel's folder as far as it is the instance's own: what was copied for it or changed by it.
    pub(crate) fn channel(&self, name: &str) -> PathBuf {
        self.channels().join(name)
    }

    /// Makes the whole tree but for the objects of the channels.
    pub(crate) fn build(&self, plan: &InstancePlan, manifests: &Path) -> io::Result<()> {
        fs::create_dir_all(&self.root)?;
        // Within the instance everybody may write to /tmp, on the machine nobody else.
        fs::set_permissions(&self.root, Permissions::from_mode(0o700))?;
        for folder in FOLDERS {
            fs::create_dir_all(self.ml().join(folder))?;
        }
        for (name, content) in &plan.config {
            fs::write(self.ml().join("input/config").join(name), content)?;
        }
        for channel in &plan.channels {
            if let Delivery::Pipe(_) = channel.delivery {
                make_first(&self.channels(), &channel.name)?;
                continue;
            }
            fs::create_dir(self.channel(&channel.name))?;
            if channel.manifest {
                let name = format!("{}-manifest", channel.name);
                fs::copy(manifests.join(&name), self.channel(&name))?;
            }
        }
        fs::create_dir(self.tmp())?;
        fs::set_permissions(self.tmp(), Permissions::from_mode(0o1777))?;
        if let RuntimePlan::Oci { .. } = plan.runtime {
            fs::create_dir_all(self.changes().upper)?;
            fs::create_dir_all(self.changes().work)?;
        }
        fs::write(self.root.join("hosts"), hosts(plan))?;
        fs::write(self.root.join("resolv.conf"), resolver::text(plan))?;
        fs::write(self.root.join("hostname"), format!("{}\n", plan.host))
    }

    /// The folders that an instance writes to.
    pub(crate) fn written(&self) -> [PathBuf; 3] {
        [self.ml(), self.tmp(), self.changes().upper]
    }

    /// Where what an instance changes in its image goes.
    fn changes(&self) -> Changes {
        let folder = self.root.join("image");
        Changes { upper: folder.join("changes"), work: folder.join("work") }
    }

    /// The places that the instance has for itself.
    pub(crate) fn places(&self, plan: &InstancePlan) -> Places {
        let own = |source: PathBuf, target: &str| Mount::Writable { source, target: target.into() };
        let mut mounts = vec![
            own(self.ml(), "/opt/ml"),
            own(self.tmp(), "/tmp"),
            own(self.root.join("hosts"), "/etc/hosts"),
            own(self.root.join("hostname"), "/etc/hostname"),
        ];
        if let Some(target) = resolver::target(plan) {
            mounts.push(Mount::Writable { source: self.root.join("resolv.conf"), target });
        }
        Places { ml: self.ml(), changes: self.changes(), mounts }
    }

    /// Shows the channels of all bases for an instance with pipes: each by itself, because the folder of the channels
    /// has to be the supervisor's own too. A pipe in an overlay is another one than in the folder below it.
    pub(crate) fn overlays(&self, bases: &[(PathBuf, &str)]) -> io::Result<Vec<Mount>> {
        let overlay = |(base, name): &(PathBuf, &str)| {
            let work = self.root.join("work").join(name);
            fs::create_dir_all(&work)?;
            let (lower, upper) = (vec![base.join(name)], self.channel(name));
            Ok(Mount::Overlay { lower, upper, work, target: target(name) })
        };
        bases.iter().map(overlay).collect()
    }

    /// Shows the channels of all bases below the folder of the channels, so that the instance can
    /// change what it sees, also the folder itself: what it changes goes to its own tree.
    pub(crate) fn overlay(&self, bases: Vec<PathBuf>) -> io::Result<Mount> {
        let work = self.root.join("work");
        fs::create_dir(&work)?;
        Ok(Mount::Overlay { lower: bases, upper: self.channels(), work, target: CHANNELS.into() })
    }
}

/// Where an instance sees its channels.
const CHANNELS: &str = "/opt/ml/input/data";

/// Where an instance sees a channel.
pub(crate) fn target(channel: &str) -> PathBuf {
    Path::new(CHANNELS).join(channel)
}

fn hosts(plan: &InstancePlan) -> String {
    let local = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n";
    let lines = plan.hosts.iter().map(|host| format!("{}\t{}\n", host.address, host.name));
    std::iter::once(local.to_owned()).chain(lines).collect()
}
