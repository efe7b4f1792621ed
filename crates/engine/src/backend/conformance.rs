//! What every backend must do, as checks that its tests call.
//!
//! The checks panic when a promise is broken: they are tests, shipped so that a backend in another
//! crate can call them too. Instances run the words `true`, `false` and `sleep 1000`, which every
//! machine has and the fake backend understands.

#![expect(clippy::expect_used, reason = "a check that fails panics, as any test does")]

use std::path::Path;
use std::time::Duration;

use indexmap::IndexMap;

use super::{Backend, Launch, Placement, Presence, Stop};
use crate::plan::{
    GpuPlan, HostAddress, InstancePlan, JobPlan, Limits, NetworkPlan, OutputPlace, OutputPlan, Role,
    RuntimePlan, StoragePlan,
};
use crate::run::{Exit, Manifests, Outcome, Report, RunDirectory, Stamped, Watch};
use crate::spec::OutputCompression;

/// Longer than any check takes on a machine that works.
const DEADLINE: Duration = Duration::from_secs(60);

/// Where the instances of the checks run.
#[derive(Clone, Debug)]
pub struct Place {
    /// What they run in.
    pub runtime: RuntimePlan,
    /// What of a network their plans ask for.
    pub network: NetworkPlan,
}

impl Place {
    /// As programs of the machine.
    pub fn machine() -> Self {
        Self {
            runtime: RuntimePlan::Host { exposed: Vec::new(), working_directory: "/".into() },
            network: NetworkPlan::Job { prefix_length: 20, gateway: None },
        }
    }
}

/// Every check in turn. `again` is a second handle of the same backend, such as a new process has.
pub async fn all(backend: &dyn Backend, again: &dyn Backend, place: &Place) {
    every_instance_ends_by_itself_and_its_supervisor_goes(backend, place).await;
    an_exit_code_is_reported(backend, place).await;
    only_the_asked_hosts_are_stopped(backend, place).await;
    a_shorter_grace_replaces_a_longer_one(backend, place).await;
    a_placement_means_the_same_to_a_new_process(backend, again, place).await;
    supervisors_are_written_down_where_they_run(backend, place).await;
    release_kills_and_can_be_done_twice(backend, place).await;
    a_launch_places_all_or_none(backend, place).await;
}

/// Instances of unequal length do not end each other, and each makes a last report.
pub async fn every_instance_ends_by_itself_and_its_supervisor_goes(backend: &dyn Backend, place: &Place) {
    let site = Site::new(place, &["true", "true", "true"]);
    let placement = site.launch(backend).await;
    for host in site.hosts() {
        assert_eq!(site.end(&host).await, Outcome::Completed, "{host}");
    }
    observe_all_gone(backend, &placement).await;
    backend.release(&placement).await.expect("release");
}

/// A failure is reported as such, with its exit code.
pub async fn an_exit_code_is_reported(backend: &dyn Backend, place: &Place) {
    let site = Site::new(place, &["false"]);
    let placement = site.launch(backend).await;
    let outcome = site.end("algo-1").await;
    assert!(matches!(outcome, Outcome::Failed { exit: Exit::Code(1), .. }), "{outcome:?}");
    backend.release(&placement).await.expect("release");
}

/// A stop reaches those that were asked, and nobody else.
pub async fn only_the_asked_hosts_are_stopped(backend: &dyn Backend, place: &Place) {
    let site = Site::new(place, &["sleep", "sleep"]);
    let placement = site.launch(backend).await;
    site.stop(backend, &placement, "algo-2", DEADLINE).await;
    assert_eq!(site.end("algo-2").await, Outcome::Stopped);
    let presence = backend.observe(&placement, &[Presence::Alive; 2]).await.expect("observe");
    assert_eq!(presence, [Presence::Alive, Presence::Gone]);
    site.stop(backend, &placement, "algo-1", DEADLINE).await;
    assert_eq!(site.end("algo-1").await, Outcome::Stopped);
    backend.release(&placement).await.expect("release");
}

/// Asking again with less patience takes effect.
pub async fn a_shorter_grace_replaces_a_longer_one(backend: &dyn Backend, place: &Place) {
    let site = Site::new(place, &["sleep"]);
    let placement = site.launch(backend).await;
    site.stop(backend, &placement, "algo-1", Duration::from_secs(3600)).await;
    site.stop(backend, &placement, "algo-1", Duration::ZERO).await;
    assert_eq!(site.end("algo-1").await, Outcome::Stopped);
    backend.release(&placement).await.expect("release");
}

/// A placement is data: written down and read again, it names the same supervisors.
pub async fn a_placement_means_the_same_to_a_new_process(
    backend: &dyn Backend,
    again: &dyn Backend,
    place: &Place,
) {
    let site = Site::new(place, &["sleep"]);
    let placement = site.launch(backend).await;
    let text = serde_json::to_string(&placement).expect("a placement as JSON");
    let read: Placement = serde_json::from_str(&text).expect("a placement from JSON");
    let presence = again.observe(&read, &[Presence::Pending]).await.expect("observe");
    assert_eq!(presence, [Presence::Alive]);
    site.stop(again, &read, "algo-1", Duration::ZERO).await;
    observe_all_gone(again, &read).await;
    again.release(&read).await.expect("release");
}

/// Supervisors are found again where they run, should their placement not be kept.
pub async fn supervisors_are_written_down_where_they_run(backend: &dyn Backend, place: &Place) {
    let site = Site::new(place, &["sleep", "true"]);
    let placement = site.launch(backend).await;
    let read = |host: &String| site.run.instance(host).supervisor().expect("a readable supervisor");
    let written: Vec<_> = site.hosts().iter().filter_map(read).collect();
    assert_eq!(written, placement.supervisors);
    backend.release(&placement).await.expect("release");
}

/// Release ends what still runs; doing it twice is no error.
pub async fn release_kills_and_can_be_done_twice(backend: &dyn Backend, place: &Place) {
    let site = Site::new(place, &["sleep", "true"]);
    let placement = site.launch(backend).await;
    backend.release(&placement).await.expect("release");
    observe_all_gone(backend, &placement).await;
    backend.release(&placement).await.expect("release again");
}

/// A host that can't be started keeps the others from running.
pub async fn a_launch_places_all_or_none(backend: &dyn Backend, place: &Place) {
    let site = Site::new(place, &["sleep"]);
    let hosts = vec!["algo-1".to_owned(), "algo-2".to_owned()];
    let launch = Launch { run: site.run.clone(), hosts };
    assert!(backend.launch(&launch).await.is_err(), "algo-2 has no plan and can't be started");
}

async fn observe_all_gone(backend: &dyn Backend, placement: &Placement) {
    let gone = vec![Presence::Gone; placement.supervisors.len()];
    let mut known = vec![Presence::Pending; gone.len()];
    let observed = async {
        while known != gone {
            known = backend.observe(placement, &known).await.expect("observe");
        }
    };
    tokio::time::timeout(DEADLINE, observed).await.expect("all supervisors gone in time");
}

/// A run directory with an instance for each word.
struct Site {
    run: RunDirectory,
    words: usize,
    _folder: tempfile::TempDir,
}

impl Site {
    fn new(place: &Place, words: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let plan = job_plan_in(place, words, folder.path());
        let run = RunDirectory::create(&folder.path().join("run"), &plan, &Manifests::new()).expect("a run");
        Self { run, words: words.len(), _folder: folder }
    }

    fn hosts(&self) -> Vec<String> {
        (1..=self.words).map(|number| format!("algo-{number}")).collect()
    }

    async fn launch(&self, backend: &dyn Backend) -> Placement {
        let launch = Launch { run: self.run.clone(), hosts: self.hosts() };
        let placement = backend.launch(&launch).await.expect("launch");
        assert!(placement.hosts().eq(self.hosts()), "a placement has the hosts in order");
        placement
    }

    async fn stop(&self, backend: &dyn Backend, placement: &Placement, host: &str, grace: Duration) {
        let hosts = [host.to_owned()];
        let stop = Stop { placement, run: &self.run, hosts: &hosts, grace };
        backend.stop(&stop).await.expect("stop");
    }

    /// Waits for the last report of a host.
    async fn end(&self, host: &str) -> Outcome {
        let mut watch = Watch::new().expect("a watch");
        watch.follow(host, &self.run.instance(host)).expect("following an instance");
        let mut news = watch.read_all().expect("reports");
        let ended = async {
            loop {
                for Stamped { report, .. } in news.into_iter().flat_map(|news| news.reports) {
                    if let Report::Ended { outcome, .. } = report {
                        return outcome;
                    }
                }
                news = watch.next().await.expect("reports");
            }
        };
        tokio::time::timeout(DEADLINE, ended).await.expect("a last report in time")
    }
}

/// A plan whose instances run one word each, on this machine.
pub fn job_plan(words: &[&str], folder: &Path) -> JobPlan {
    job_plan_in(&Place::machine(), words, folder)
}

fn job_plan_in(place: &Place, words: &[&str], folder: &Path) -> JobPlan {
    let hosts: Vec<HostAddress> = (0..words.len()).map(address).collect();
    let instances = hosts.iter().zip(words);
    JobPlan {
        job: "conformance".to_owned(),
        attempt: 1,
        instances: instances.map(|(host, word)| instance(place, host, &hosts, word)).collect(),
        merge: None,
        output: OutputPlan {
            place: OutputPlace::Folder(folder.join("output")),
            uri: "file:///output".to_owned(),
            model: OutputCompression::Gzip,
        },
        max_runtime: DEADLINE,
        warnings: Vec::new(),
    }
}

fn address(rank: usize) -> HostAddress {
    let name = trainyard_toolkit::contract::host_name(rank);
    HostAddress { name, address: format!("198.18.240.{}", rank + 1) }
}

fn instance(place: &Place, host: &HostAddress, hosts: &[HostAddress], word: &str) -> InstancePlan {
    let mut command = vec![word.to_owned()];
    command.extend((word == "sleep").then(|| "1000".to_owned()));
    let path = ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned());
    InstancePlan {
        job: "conformance".to_owned(),
        attempt: 1,
        hosts: hosts.to_vec(),
        network: place.network,
        host: host.name.clone(),
        role: Role::Train,
        runtime: place.runtime.clone(),
        command,
        environment: IndexMap::from([path]),
        config: IndexMap::new(),
        channels: Vec::new(),
        metrics: Vec::new(),
        grace: DEADLINE,
        shm_size: None,
        limits: Limits::of_pids(None),
        gpus: GpuPlan::default(),
        compression_level: 6,
        model: OutputCompression::Gzip,
        ignore: Vec::new(),
        warn_above: u64::MAX,
        storage: StoragePlan::default(),
    }
}
