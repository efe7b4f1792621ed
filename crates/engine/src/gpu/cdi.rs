//! Reads descriptions of devices: the JSON or YAML of the Container Device Interface.
//!
//! What a description would have programs do ("hooks") is not run. Of NVIDIA's hooks two matter, and what they
//! bring about is brought about here: links are made by the jail, and the folders whose libraries would be told
//! to the loader's cache come last in `LD_LIBRARY_PATH`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use crate::plan::{DeviceEdits, Exposed, Gpu};

/// The kind of device that counts as a GPU.
const KIND: &str = "nvidia.com/gpu";

/// A description that can't be read.
#[derive(Debug, thiserror::Error)]
pub enum CdiError {
    /// It is not YAML (of which JSON is a part), or a member has another type.
    #[error(transparent)]
    Syntax(Box<serde_saphyr::Error>),
    /// A variable has no value.
    #[error("containerEdits.env: {0:?} is not NAME=VALUE")]
    Variable(String),
    /// A path is relative to nothing.
    #[error("containerEdits: the path {0:?} does not start with a slash")]
    Relative(PathBuf),
}

/// All devices that count as GPUs, by name.
#[derive(Debug, Default)]
pub(super) struct Devices {
    by_name: BTreeMap<Rank, Gpu>,
}

/// Numbers before names, numbers by their value; parts of a GPU are `0:1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Numbered(u32, Option<u32>),
    Named(String),
}

impl Rank {
    fn of(name: &str) -> Self {
        let numbered = || {
            let (gpu, part) = match name.split_once(':') {
                Some((gpu, part)) => (gpu, Some(part.parse().ok()?)),
                None => (name, None),
            };
            Some(Self::Numbered(gpu.parse().ok()?, part))
        };
        numbered().unwrap_or_else(|| Self::Named(name.to_owned()))
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Description {
    kind: String,
    #[serde(default)]
    devices: Vec<Device>,
    #[serde(default)]
    container_edits: Edits,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    name: String,
    #[serde(default)]
    container_edits: Edits,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Edits {
    env: Vec<String>,
    device_nodes: Vec<DeviceNode>,
    mounts: Vec<Mount>,
    hooks: Vec<Hook>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeviceNode {
    path: PathBuf,
    host_path: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mount {
    host_path: PathBuf,
    container_path: PathBuf,
    #[serde(default)]
    options: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Hook {
    #[serde(default)]
    args: Vec<String>,
}

impl Devices {
    /// Adds the devices of a description; one of the same name takes the place of an earlier one.
    pub(super) fn add(&mut self, text: &str) -> Result<(), CdiError> {
        let description: Description =
            serde_saphyr::from_str(text).map_err(|error| CdiError::Syntax(Box::new(error)))?;
        if description.kind != KIND {
            return Ok(());
        }
        let of_all = edits(description.container_edits)?;
        for device in description.devices {
            let mut all = of_all.clone();
            all.add(&edits(device.container_edits)?);
            let gpu = Gpu { name: format!("{KIND}={}", device.name), edits: all };
            self.by_name.insert(Rank::of(&device.name), gpu);
        }
        Ok(())
    }

    /// Each GPU once: by number where they have numbers, else by name. `all` is every GPU, and counts only
    /// where nothing else is described.
    pub(super) fn gpus(self) -> Vec<Gpu> {
        let all = Rank::Named("all".to_owned());
        let has = |wanted: fn(&Rank) -> bool| self.by_name.keys().any(wanted);
        let numbers = has(|rank| matches!(rank, Rank::Numbered(..)));
        let names = self.by_name.keys().any(|rank| *rank != all);
        let counts = |rank: &Rank| match rank {
            Rank::Numbered(..) => true,
            rank => !numbers && (*rank != all || !names),
        };
        self.by_name.into_iter().filter(|(rank, _)| counts(rank)).map(|(_, gpu)| gpu).collect()
    }
}

fn edits(written: Edits) -> Result<DeviceEdits, CdiError> {
    let mut edits = DeviceEdits::default();
    for variable in written.env {
        let Some((name, value)) = variable.split_once('=') else { return Err(CdiError::Variable(variable)) };
        edits.environment.insert(name.to_owned(), value.to_owned());
    }
    for node in written.device_nodes {
        let source = node.host_path.unwrap_or_else(|| node.path.clone());
        edits.nodes.push(exposed(source, node.path)?);
    }
    for mount in written.mounts {
        let writable = mount.options.iter().any(|option| option == "rw");
        let list = if writable { &mut edits.writable } else { &mut edits.files };
        list.push(exposed(mount.host_path, mount.container_path)?);
    }
    for hook in written.hooks {
        edits.links.extend(values(&hook, "create-symlinks", "--link").filter_map(link));
        edits.library_folders.extend(values(&hook, "update-ldcache", "--folder").map(PathBuf::from));
    }
    Ok(edits)
}

fn exposed(source: PathBuf, target: PathBuf) -> Result<Exposed, CdiError> {
    if !source.is_absolute() {
        return Err(CdiError::Relative(source));
    }
    if !target.is_absolute() {
        return Err(CdiError::Relative(target));
    }
    Ok(Exposed { source, target })
}

/// The values of an option of a hook, if it is the hook of this name.
fn values<'a>(hook: &'a Hook, name: &str, option: &'a str) -> impl Iterator<Item = &'a str> {
    let args = if hook.args.iter().any(|arg| arg == name) { hook.args.as_slice() } else { &[] };
    let apart = args.windows(2).filter(move |pair| pair[0] == option).map(|pair| pair[1].as_str());
    let joined = args.iter().filter_map(move |arg| arg.strip_prefix(option)?.strip_prefix('='));
    apart.chain(joined)
}

/// `what::where`, as the hook for links wants it.
fn link(text: &str) -> Option<(PathBuf, PathBuf)> {
    let (points_to, path) = text.split_once("::")?;
    Some((PathBuf::from(path), PathBuf::from(points_to)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the form that NVIDIA's generator gives it.
    const NVIDIA: &str = "
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: '10'
  containerEdits: {deviceNodes: [{path: /dev/nvidia10}]}
- name: '2'
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia2
      hostPath: /run/driver/dev/nvidia2
      type: c
      major: 195
- name: all
  containerEdits: {deviceNodes: [{path: /dev/nvidia2}, {path: /dev/nvidia10}]}
containerEdits:
  env: [NVIDIA_VISIBLE_DEVICES=void, EMPTY=]
  deviceNodes: [{path: /dev/nvidiactl}]
  mounts:
  - hostPath: /usr/lib/libcuda.so.1
    containerPath: /usr/lib64/libcuda.so.1
    options: [ro, nosuid, nodev, bind]
  - {hostPath: /run/socket, containerPath: /run/socket, options: [rw]}
  hooks:
  - hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
    args: [nvidia-cdi-hook, create-symlinks, --link, 'libcuda.so.1::/usr/lib64/libcuda.so', '--link=a::/b']
  - hookName: createContainer
    path: /usr/bin/nvidia-ctk
    args: [nvidia-ctk, hook, update-ldcache, --folder, /usr/lib64]
  - hookName: createContainer
    path: /usr/bin/nvidia-ctk
    args: [nvidia-ctk, hook, chmod, --mode, '755', --folder, /dev/dri]
";

    fn gpus(texts: &[&str]) -> Vec<Gpu> {
        let mut devices = Devices::default();
        for text in texts {
            devices.add(text).unwrap();
        }
        devices.gpus()
    }

    fn same(path: &str) -> Exposed {
        Exposed { source: path.into(), target: path.into() }
    }

    #[test]
    fn a_gpu_has_its_own_edits_and_those_of_all() {
        let gpus = gpus(&[NVIDIA]);
        let names: Vec<_> = gpus.iter().map(|gpu| gpu.name.as_str()).collect();
        assert_eq!(names, ["nvidia.com/gpu=2", "nvidia.com/gpu=10"], "by number, and not all of them twice");
        let DeviceEdits { environment, nodes, files, writable, links, library_folders } = &gpus[0].edits;
        assert_eq!(environment["NVIDIA_VISIBLE_DEVICES"], "void");
        assert_eq!(environment["EMPTY"], "");
        let of_driver = Exposed { source: "/run/driver/dev/nvidia2".into(), target: "/dev/nvidia2".into() };
        assert_eq!(*nodes, [same("/dev/nvidiactl"), of_driver]);
        assert_eq!(
            *files,
            [Exposed { source: "/usr/lib/libcuda.so.1".into(), target: "/usr/lib64/libcuda.so.1".into() }]
        );
        assert_eq!(*writable, [same("/run/socket")]);
        assert_eq!(
            *links,
            [("/usr/lib64/libcuda.so".into(), "libcuda.so.1".into()), ("/b".into(), "a".into())]
        );
        assert_eq!(*library_folders, [PathBuf::from("/usr/lib64")]);
    }

    #[test]
    fn json_is_read_too_and_a_later_description_takes_the_place_of_an_earlier_one() {
        let device = |node: &str| {
            format!(
                r#"{{"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": [{{"name": "0",
                "containerEdits": {{"deviceNodes": [{{"path": "{node}"}}]}}}}]}}"#
            )
        };
        let gpus = gpus(&[&device("/dev/old"), &device("/dev/new")]);
        assert_eq!(gpus.len(), 1);
        assert_eq!(gpus[0].edits.nodes, [same("/dev/new")]);
    }

    #[test]
    fn gpus_without_numbers_count_by_name_and_all_counts_alone() {
        let named = |names: &[&str]| {
            let devices: Vec<_> = names.iter().map(|name| format!("{{name: '{name}'}}")).collect();
            format!("kind: nvidia.com/gpu\ndevices: [{}]", devices.join(", "))
        };
        assert_eq!(gpus(&[&named(&["all", "GPU-b", "GPU-a"])]).len(), 2);
        assert_eq!(gpus(&[&named(&["all"])])[0].name, "nvidia.com/gpu=all");
        assert_eq!(gpus(&[&named(&["0:0", "0:1", "all"])]).len(), 2);
    }

    #[test]
    fn devices_of_another_kind_are_no_gpus() {
        assert_eq!(gpus(&["kind: vendor.com/net\ndevices: [{name: '0'}]"]), []);
    }

    #[test]
    fn a_damaged_description_is_told_apart() {
        let edits = |edits: &str| format!("kind: nvidia.com/gpu\ndevices: []\ncontainerEdits: {edits}");
        let table = [
            ("kind: [".to_owned(), ""),
            (edits("{env: [NAME]}"), "NAME"),
            (edits("{deviceNodes: [{path: dev/x}]}"), "dev/x"),
            (edits("{mounts: [{hostPath: /a, containerPath: b}]}"), "\"b\""),
        ];
        for (text, part) in table {
            let error = Devices::default().add(&text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
