//! Which jobs may run at the same time: a pure count of instances, in order of priority and arrival.

use std::collections::BTreeMap;

/// The jobs that run and those that wait.
#[derive(Debug)]
pub(super) struct Queue {
    /// Instances that may run at once.
    capacity: u32,
    /// Instances of each job that runs.
    running: BTreeMap<String, u32>,
    /// In the order in which they will start.
    waiting: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    job: String,
    instances: u32,
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
    pub(super) fn new(capacity: u32) -> Self {
        Self { capacity: capacity.max(1), running: BTreeMap::new(), waiting: Vec::new() }
    }

    /// Takes in a job behind all of its priority and above.
    pub(super) fn join(&mut self, job: &str, instances: u32, priority: i64) {
        let behind = self.waiting.iter().position(|entry| entry.priority < priority);
        let entry = Entry { job: job.to_owned(), instances, priority };
        self.waiting.insert(behind.unwrap_or(self.waiting.len()), entry);
        self.admit();
    }

    /// A job that ran before this queue was made.
    pub(super) fn runs(&mut self, job: &str, instances: u32) {
        self.running.insert(job.to_owned(), instances);
    }

    /// Some instances of a job have ended; their room is free at once.
    pub(super) fn shrinks(&mut self, job: &str, instances: u32) {
        if let Some(running) = self.running.get_mut(job)
            && instances < *running
        {
            *running = instances;
            self.admit();
        }
    }

    /// A job has ended, or waits no more.
    pub(super) fn leave(&mut self, job: &str) {
        self.running.remove(job);
        self.waiting.retain(|entry| entry.job != job);
        self.admit();
    }

    /// Where a job stands that has joined and not left.
    pub(super) fn place(&self, job: &str) -> Place {
        match self.waiting.iter().position(|entry| entry.job == job) {
            Some(ahead) => Place::Waiting { ahead: u32::try_from(ahead).unwrap_or(u32::MAX) },
            None => Place::Admitted,
        }
    }

    /// Lets jobs start as long as there is room for the first. Nobody overtakes it, or a large job would
    /// wait for ever; one that is larger than all there is runs alone.
    fn admit(&mut self) {
        while let Some(first) = self.waiting.first() {
            let used: u32 = self.running.values().sum();
            let fits = used.saturating_add(first.instances) <= self.capacity;
            if !fits && used > 0 {
                return;
            }
            let first = self.waiting.remove(0);
            self.running.insert(first.job, first.instances);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ahead(queue: &Queue, job: &str) -> Option<u32> {
        match queue.place(job) {
            Place::Admitted => None,
            Place::Waiting { ahead } => Some(ahead),
        }
    }

    #[test]
    fn jobs_start_in_order_and_nobody_overtakes_a_large_one() {
        let mut queue = Queue::new(4);
        queue.join("a", 3, 0);
        queue.join("large", 4, 0);
        queue.join("small", 1, 0);
        assert_eq!(
            (ahead(&queue, "a"), ahead(&queue, "large"), ahead(&queue, "small")),
            (None, Some(0), Some(1))
        );
        queue.leave("a");
        assert_eq!((ahead(&queue, "large"), ahead(&queue, "small")), (None, Some(0)));
        queue.shrinks("large", 3);
        assert_eq!(ahead(&queue, "small"), None, "what an ended instance frees is used at once");
    }

    #[test]
    fn priorities_come_first_and_equal_ones_in_order_of_arrival() {
        let mut queue = Queue::new(1);
        queue.join("running", 1, 0);
        for (job, priority) in [("a", 0), ("b", 5), ("c", 5), ("d", -1), ("e", 0)] {
            queue.join(job, 1, priority);
        }
        let order: Vec<_> = ["b", "c", "a", "e", "d"].iter().map(|job| ahead(&queue, job)).collect();
        assert_eq!(order, (0..5).map(Some).collect::<Vec<_>>());
        queue.leave("b");
        assert_eq!(ahead(&queue, "c"), Some(0), "a job that gives up makes room in the queue");
    }

    #[test]
    fn a_job_that_is_larger_than_the_machine_runs_alone() {
        let mut queue = Queue::new(2);
        queue.join("small", 1, 0);
        queue.join("huge", 100, 0);
        assert_eq!(ahead(&queue, "huge"), Some(0));
        queue.leave("small");
        assert_eq!(ahead(&queue, "huge"), None);
    }

    proptest! {
        #[test]
        fn every_job_runs_in_the_end_and_never_too_many_at_once(
            sizes in prop::collection::vec((1_u32..6, -2_i64..3), 1..20),
            capacity in 1_u32..8,
        ) {
            let mut queue = Queue::new(capacity);
            for (number, (instances, priority)) in sizes.iter().enumerate() {
                queue.join(&number.to_string(), *instances, *priority);
            }
            let mut left = sizes.len();
            while let Some(job) = queue.running.keys().next().cloned() {
                let used: u32 = queue.running.values().sum();
                prop_assert!(used <= capacity || queue.running.len() == 1);
                queue.leave(&job);
                left -= 1;
            }
            prop_assert_eq!(left, 0);
        }
    }
}
