//! Which jobs may run at the same time: a pure count of what their instances need, in order of priority and arrival.

use std::collections::BTreeMap;

use crate::plan::{Need, Needs};

/// The jobs that run and those that wait. What changes it tells whether others may have another place now.
#[derive(Debug)]
pub(super) struct Queue {
    /// What all instances together may take.
    capacity: Need,
    /// What the running instances of each job that runs take.
    running: BTreeMap<String, Needs>,
    /// In the order in which they will start.
    waiting: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    job: String,
    needs: Needs,
    priority: i64,
}

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It may run.
    Admitted,
    /// So many jobs come before it.
    Waiting { ahead: u32 },
}

impl Queue {
    pub(super) fn new(capacity: Need) -> Self {
        let capacity = Need { instances: capacity.instances.max(1), ..capacity };
        Self { capacity, running: BTreeMap::new(), waiting: Vec::new() }
    }

    /// Takes in a job behind all of its priority and above.
    pub(super) fn join(&mut self, job: &str, needs: Needs, priority: i64) -> bool {
        let behind = self.waiting.partition_point(|entry| entry.priority >= priority);
        self.waiting.insert(behind, Entry { job: job.to_owned(), needs, priority });
        self.admit();
        true
    }

    /// A job that ran before this queue was made.
    pub(super) fn runs(&mut self, job: &str, needs: Needs) -> bool {
        self.running.insert(job.to_owned(), needs);
        false
    }

    /// Only these instances of a job still run; the room of the others is free at once. Tells whether there are fewer
    /// than before.
    pub(super) fn shrinks(&mut self, job: &str, hosts: &[String]) -> bool {
        let Some(running) = self.running.get_mut(job) else { return false };
        let before = running.len();
        running.retain(|(host, _)| hosts.contains(host));
        let fewer = running.len() < before;
        if fewer {
            self.admit();
        }
        fewer
    }

    /// A job has ended, or waits no more.
    pub(super) fn leave(&mut self, job: &str) -> bool {
        self.running.remove(job);
        self.waiting.retain(|entry| entry.job != job);
        self.admit();
        true
    }

    /// Where a job stands that has joined and not left.
    #[cfg(test)]
    fn place(&self, job: &str) -> Place {
        let ahead = self.waiting().find(|(waiting, _)| *waiting == job);
        ahead.map_or(Place::Admitted, |(_, ahead)| Place::Waiting { ahead })
    }

    /// The jobs that wait, in order, each with the number of those before it.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (&str, u32)> {
        self.waiting.iter().map(|entry| entry.job.as_str()).zip(0..)
    }

    /// Lets jobs start as long as there is room for the first. Nobody overtakes it, or a large job would
    /// wait for ever; one that is larger than all there is runs alone.
    fn admit(&mut self) {
        let mut used: Need = self.running.values().flatten().map(|(_, need)| *need).sum();
        let mut admitted = 0;
        for first in &self.waiting {
            let with_it = used + first.needs.iter().map(|(_, need)| *need).sum();
            if !with_it.fits(self.capacity) && used != Need::default() {
                break;
            }
            used = with_it;
            admitted += 1;
        }
        for first in self.waiting.drain(..admitted) {
            self.running.insert(first.job, first.needs);
        }
    }
}

/// The place that a job is told: exact near the front, further behind in steps, so that a long queue does not write
/// down every job's every step.
pub(super) fn told(ahead: u32) -> u32 {
    match ahead {
        ..20 => ahead,
        20..200 => ahead / 10 * 10,
        200..2000 => ahead / 100 * 100,
        _ => ahead / 1000 * 1000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Of so many instances, each of which needs nothing else.
    fn needs(instances: u32) -> Needs {
        needing(instances, Need::default())
    }

    fn needing(instances: u32, need: Need) -> Needs {
        (1..=instances).map(|number| (format!("algo-{number}"), Need { instances: 1, ..need })).collect()
    }

    fn queue(instances: u32) -> Queue {
        Queue::new(Need { instances, cpus: u64::MAX, memory: u64::MAX, gpus: u64::MAX })
    }

    fn ahead(queue: &Queue, job: &str) -> Option<u32> {
        match queue.place(job) {
            Place::Admitted => None,
            Place::Waiting { ahead } => Some(ahead),
        }
    }

    #[test]
    fn jobs_start_in_order_and_nobody_overtakes_a_large_one() {
        let mut queue = queue(4);
        queue.join("a", needs(3), 0);
        queue.join("large", needs(4), 0);
        queue.join("small", needs(1), 0);
        assert_eq!(
            (ahead(&queue, "a"), ahead(&queue, "large"), ahead(&queue, "small")),
            (None, Some(0), Some(1))
        );
        queue.leave("a");
        assert_eq!((ahead(&queue, "large"), ahead(&queue, "small")), (None, Some(0)));
        queue.shrinks("large", &["algo-1", "algo-3", "algo-4"].map(ToOwned::to_owned));
        assert_eq!(ahead(&queue, "small"), None, "what an ended instance frees is used at once");
    }

    #[test]
    fn priorities_come_first_and_equal_ones_in_order_of_arrival() {
        let mut queue = queue(1);
        queue.join("running", needs(1), 0);
        for (job, priority) in [("a", 0), ("b", 5), ("c", 5), ("d", -1), ("e", 0)] {
            queue.join(job, needs(1), priority);
        }
        let order: Vec<_> = ["b", "c", "a", "e", "d"].iter().map(|job| ahead(&queue, job)).collect();
        assert_eq!(order, (0..5).map(Some).collect::<Vec<_>>());
        queue.leave("b");
        assert_eq!(ahead(&queue, "c"), Some(0), "a job that gives up makes room in the queue");
    }

    #[test]
    fn a_job_that_is_larger_than_the_machine_runs_alone() {
        let mut queue = queue(2);
        queue.join("small", needs(1), 0);
        queue.join("huge", needs(100), 0);
        assert_eq!(ahead(&queue, "huge"), Some(0));
        queue.leave("small");
        assert_eq!(ahead(&queue, "huge"), None);
    }

    #[test]
    fn processors_memory_and_gpus_have_to_suffice_each_by_itself() {
        let all = Need { instances: 10, cpus: 8, memory: 16, gpus: 1 };
        for (need, together) in [
            (Need { cpus: 4, ..Need::default() }, 2),
            (Need { memory: 6, cpus: 1, ..Need::default() }, 2),
            (Need { gpus: 1, ..Need::default() }, 1),
            (Need { cpus: 1, memory: 1, ..Need::default() }, 8),
        ] {
            let mut queue = Queue::new(all);
            for job in 0..20 {
                queue.join(&job.to_string(), needing(1, need), 0);
            }
            assert_eq!(queue.running.len(), together, "{need:?}");
        }
    }

    #[test]
    fn places_far_behind_are_told_in_steps() {
        let steps: std::collections::BTreeSet<_> = (0..100_000).map(told).collect();
        assert!(steps.len() < 200 && (0..20).all(|near| told(near) == near), "{}", steps.len());
        assert!((0..100_000).all(|ahead| told(ahead) <= ahead));
    }

    proptest! {
        #[test]
        fn no_job_waits_for_room_that_is_there_and_nobody_overtakes(
            jobs in prop::collection::vec((1_u32..4, 0_u64..5, 0_u64..5, -1_i64..2), 1..20),
            capacity in (1_u32..6, 1_u64..8, 1_u64..8),
        ) {
            let (instances, cpus, memory) = capacity;
            let capacity = Need { instances, cpus, memory, gpus: 0 };
            let mut queue = Queue::new(capacity);
            let mut order = Vec::new();
            for (number, (instances, cpus, memory, priority)) in jobs.iter().enumerate() {
                let need = Need { cpus: *cpus, memory: *memory, ..Need::default() };
                queue.join(&number.to_string(), needing(*instances, need), *priority);
            }
            while let Some(job) = queue.running.keys().next().cloned() {
                let used: Need = queue.running.values().flatten().map(|(_, need)| *need).sum();
                prop_assert!(used.fits(capacity) || queue.running.len() == 1);
                if let Some(first) = queue.waiting.first() {
                    let more = first.needs.iter().map(|(_, need)| *need).sum();
                    prop_assert!(!(used + more).fits(capacity), "there is room for the first that waits");
                }
                queue.leave(&job);
                order.push(job);
            }
            prop_assert_eq!(order.len(), jobs.len());
        }
        #[test]
        fn every_job_runs_in_the_end_and_never_too_many_at_once(
            sizes in prop::collection::vec((1_u32..6, -2_i64..3), 1..20),
            capacity in 1_u32..8,
        ) {
            let mut queue = queue(capacity);
            for (number, (instances, priority)) in sizes.iter().enumerate() {
                queue.join(&number.to_string(), needs(*instances), *priority);
            }
            let mut left = sizes.len();
            while let Some(job) = queue.running.keys().next().cloned() {
                let used = queue.running.values().map(Vec::len).sum::<usize>() as u32;
                prop_assert!(used <= capacity || queue.running.len() == 1);
                queue.leave(&job);
                left -= 1;
            }
            prop_assert_eq!(left, 0);
        }
    }
}
