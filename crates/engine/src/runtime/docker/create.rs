//! How a container is described to the daemon.

use std::collections::HashMap;
use std::path::Path;

use bollard::models::{
    ContainerCreateBody, DeviceRequest, EndpointIpamConfig, EndpointSettings, HealthConfig, HostConfig,
    HostConfigLogConfig, Mount as Shown, MountType, MountVolumeOptions, MountVolumeOptionsDriverConfig,
    NetworkingConfig,
};

use super::network::Network;
use super::{Container, GIVE_BACK_COMMAND, INIT_COMMAND, LEFT, Left, SOCKET};
use crate::plan::{BUILT_IN_PROGRAM, Limits};
use crate::runtime::jail::Mount;

/// The kernel takes options of a mount up to a page, its end included.
const LONGEST_OPTIONS: usize = 4000;

/// The daemon makes these itself.
const OF_THE_DAEMON: [&str; 2] = ["/etc/hosts", "/etc/hostname"];

/// The container of an instance.
pub(super) fn instance(
    container: &Container,
    left: &Left,
    socket: &Path,
    network: Option<&Network>,
) -> ContainerCreateBody {
    let mut mounts = vec![bind(socket, SOCKET, false)];
    mounts.extend(container.mounts.iter().filter_map(shown));
    let mut host_config = host_config(mounts, network.map(|network| network.name.as_str()));
    host_config.shm_size = i64::try_from(container.shm_size).ok();
    limit(&mut host_config, &container.limits);
    if !container.gpus.is_empty() {
        let gpus = DeviceRequest {
            driver: Some("cdi".to_owned()),
            device_ids: Some(container.gpus.clone()),
            ..DeviceRequest::default()
        };
        host_config.device_requests = Some(vec![gpus]);
    }
    host_config.extra_hosts = network.map(|network| {
        let peers = container.peers.iter().enumerate();
        peers.map(|(rank, peer)| format!("{peer}:{}", network.address(rank))).collect()
    });
    let own_rank = container.peers.iter().position(|peer| *peer == container.host);
    let endpoint = |network: &Network| {
        let address = own_rank.map(|rank| network.address(rank).to_string());
        let settings = EndpointSettings {
            aliases: Some(vec![container.host.clone()]),
            ipam_config: Some(EndpointIpamConfig { ipv4_address: address, ..EndpointIpamConfig::default() }),
            ..EndpointSettings::default()
        };
        NetworkingConfig { endpoints_config: Some(HashMap::from([(network.name.clone(), settings)])) }
    };
    ContainerCreateBody {
        hostname: Some(container.host.clone()),
        networking_config: network.map(endpoint),
        ..body(left, INIT_COMMAND, host_config)
    }
}

fn limit(host_config: &mut HostConfig, limits: &Limits) {
    host_config.pids_limit = Some(limits.pids.into());
    host_config.nano_cpus = limits.cpus.map(|cpus| i64::from(cpus) * 1_000_000_000);
    host_config.memory = limits.memory.and_then(|memory| i64::try_from(memory).ok());
    // As much with swap as without: none.
    host_config.memory_swap = host_config.memory;
}

/// A container that gives back what another has left in the scratch folder.
pub(super) fn give_back(left: &Left) -> ContainerCreateBody {
    body(left, GIVE_BACK_COMMAND, host_config(vec![bind(&left.scratch, LEFT, false)], None))
}

/// A container with this program as its first process.
fn body(left: &Left, command: &str, mut host_config: HostConfig) -> ContainerCreateBody {
    host_config.mounts.get_or_insert_default().push(bind(&left.program, BUILT_IN_PROGRAM, true));
    ContainerCreateBody {
        image: Some(left.image.clone()),
        // It gives up what the image's user may not have when it starts `train`.
        user: Some("0:0".to_owned()),
        entrypoint: Some(vec![BUILT_IN_PROGRAM.to_owned(), command.to_owned()]),
        cmd: Some(Vec::new()),
        tty: Some(false),
        healthcheck: Some(HealthConfig { test: Some(vec!["NONE".to_owned()]), ..HealthConfig::default() }),
        labels: Some(left.labels.clone()),
        host_config: Some(host_config),
        ..ContainerCreateBody::default()
    }
}

fn host_config(mounts: Vec<Shown>, network: Option<&str>) -> HostConfig {
    HostConfig {
        mounts: Some(mounts),
        network_mode: Some(network.unwrap_or("none").to_owned()),
        // What is written goes to the supervisor by pipes.
        log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
        // Labels of SELinux would have to be put on the user's own files.
        security_opt: Some(vec!["no-new-privileges".to_owned(), "label=disable".to_owned()]),
        init: Some(false),
        ..HostConfig::default()
    }
}

fn bind(source: &Path, target: &str, read_only: bool) -> Shown {
    Shown {
        typ: Some(MountType::BIND),
        source: Some(source.to_string_lossy().into_owned()),
        target: Some(target.to_owned()),
        read_only: Some(read_only),
        ..Shown::default()
    }
}

fn shown(mount: &Mount) -> Option<Shown> {
    match mount {
        Mount::ReadOnly { source, target } => Some(bind(source, &target.to_string_lossy(), true)),
        // Refused before.
        Mount::WhenRead { .. } => None,
        Mount::Writable { target, .. } if OF_THE_DAEMON.iter().any(|own| Path::new(own) == target) => None,
        Mount::Writable { source, target } => Some(bind(source, &target.to_string_lossy(), false)),
        Mount::Overlay { target, .. } => Some(Shown {
            typ: Some(MountType::VOLUME),
            target: Some(target.to_string_lossy().into_owned()),
            volume_options: Some(MountVolumeOptions {
                no_copy: Some(true),
                driver_config: overlay_options(mount).map(driver),
                ..MountVolumeOptions::default()
            }),
            ..Shown::default()
        }),
    }
}

/// A volume that the daemon mounts as an overlay when the container starts.
fn driver(options: String) -> MountVolumeOptionsDriverConfig {
    let overlay = || "overlay".to_owned();
    let options = [("type", overlay()), ("device", overlay()), ("o", options)];
    MountVolumeOptionsDriverConfig {
        name: Some("local".to_owned()),
        options: Some(options.map(|(name, value)| (name.to_owned(), value)).into()),
    }
}

/// The options of an overlay for mount(2); none if they can't be written so that the daemon and the
/// kernel read them as they are meant.
pub(super) fn overlay_options(mount: &Mount) -> Option<String> {
    let Mount::Overlay { lower, upper, work, .. } = mount else { return None };
    let lower = lower.iter().map(|path| path.to_str()).collect::<Option<Vec<_>>>()?;
    let paths = [lower.as_slice(), &[upper.to_str()?, work.to_str()?]].concat();
    let plain = |path: &&str| !path.contains([':', ',', '\\', '"']) && !path.contains(char::is_whitespace);
    if !paths.iter().all(plain) {
        return None;
    }
    let [lower @ .., upper, work] = paths.as_slice() else { return None };
    let options = format!("lowerdir={},upperdir={upper},workdir={work}", lower.join(":"));
    (options.len() <= LONGEST_OPTIONS).then_some(options)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn overlay(base: &str) -> Mount {
        Mount::Overlay {
            lower: vec![PathBuf::from(base), PathBuf::from("/b")],
            upper: "/upper".into(),
            work: "/work".into(),
            target: "/opt/ml/input/data".into(),
        }
    }

    #[test]
    fn an_overlay_is_told_in_the_words_of_mount() {
        let expected = "lowerdir=/a:/b,upperdir=/upper,workdir=/work";
        assert_eq!(overlay_options(&overlay("/a")).as_deref(), Some(expected));
    }

    #[test]
    fn a_path_that_mount_would_misread_makes_no_overlay() {
        for path in ["/a:b", "/a,b", "/a\\b", "/a b", "/a\"b"] {
            assert_eq!(overlay_options(&overlay(path)), None, "{path}");
        }
        assert_eq!(overlay_options(&overlay(&["/", &"a".repeat(5000)].concat())), None);
    }
}
