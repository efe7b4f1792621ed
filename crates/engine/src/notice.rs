//! Who is told when a job has ended, and what.
//!
//! A notice is stored together with the event that ends its job, so that none is lost; whoever embeds the engine takes
//! it out, tells it, and says so. It may be told twice if that somebody is killed in between: its id tells.

use serde_json::{Value, json};

use crate::job::{Job, Status};
use crate::run::Timestamp;

/// Somebody who is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscriber {
    /// The name by which it is known again after a restart.
    pub name: String,
    /// Of which ends; none stands for all of them.
    pub of: Vec<Status>,
}

impl Subscriber {
    fn wants(&self, status: Status) -> bool {
        self.of.is_empty() || self.of.contains(&status)
    }
}

/// A notice to one subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The name of the subscriber.
    pub subscriber: String,
    /// The same for all subscribers and all tries; letters, digits and hyphens.
    pub id: String,
    /// JSON.
    pub body: String,
}

/// A notice that has not been told yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// By which it is taken out.
    pub number: i64,
    /// What is to be told.
    pub notice: Notice,
    /// How often it was tried in vain.
    pub tries: u32,
}

/// The id of the notices about an ended attempt of a job.
pub fn notice_id(job: &Job) -> String {
    format!("{}-{}-{}", job.name, job.created.0, job.attempt)
}

/// The notices about an ended job.
pub(crate) fn notices(job: &Job, subscribers: &[Subscriber]) -> Vec<Notice> {
    let wanting = subscribers.iter().filter(|subscriber| subscriber.wants(job.status));
    let notice = |subscriber: &Subscriber| Notice {
        subscriber: subscriber.name.clone(),
        id: notice_id(job),
        body: body(job).to_string(),
    };
    wanting.map(notice).collect()
}

/// What is told, with the API's names and times.
fn body(job: &Job) -> Value {
    let seconds = |at: Timestamp| at.0 as f64 / 1000.0;
    let status = job.status.to_string();
    let published = job.published.as_ref();
    let mut told = json!({
        "TrainingJobName": job.name,
        "TrainingJobStatus": job.status,
        "SecondaryStatus": job.secondary_status(),
        "CreationTime": seconds(job.created),
        "LastModifiedTime": seconds(job.modified),
        "Attempt": job.attempt,
    });
    let mut add = |member: &str, value: Option<Value>| {
        if let Some(value) = value {
            told[member] = value;
        }
    };
    add("FailureReason", job.failure_reason.as_ref().map(|reason| json!(reason)));
    add("TrainingStartTime", job.started.map(|at| json!(seconds(at))));
    add("TrainingEndTime", job.ended.map(|at| json!(seconds(at))));
    let model = published.and_then(|published| published.model.as_ref());
    add("ModelArtifacts", model.map(|uri| json!({ "S3ModelArtifacts": uri })));
    add("Merged", job.merged.as_ref().map(|uri| json!(uri)));
    json!({"type": format!("training_job.{}", status.to_lowercase()), "data": told})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Event, Outline};

    fn failed() -> Job {
        let outline = Outline { job: "fit".into(), hosts: vec!["algo-1".into()], merges: false };
        let mut job = Job::submit(&outline, Timestamp(1_500));
        job.apply(Timestamp(2_500), Event::NotPlanned { explanation: "no such image".into() });
        job
    }

    #[test]
    fn subscribers_are_told_of_the_ends_that_they_want() {
        let subscriber = |name: &str, of: &[Status]| Subscriber { name: name.into(), of: of.to_vec() };
        let subscribers = [
            subscriber("all", &[]),
            subscriber("bad", &[Status::Failed, Status::Stopped]),
            subscriber("good", &[Status::Completed]),
        ];
        let notices = notices(&failed(), &subscribers);
        let told: Vec<_> = notices.iter().map(|notice| notice.subscriber.as_str()).collect();
        assert_eq!(told, ["all", "bad"]);
        assert_eq!(notices[0].id, "fit-1500-1");
    }

    #[test]
    fn a_notice_tells_the_status_and_the_reason() {
        let body = body(&failed());
        assert_eq!(body["type"], "training_job.failed");
        assert_eq!(body["data"]["TrainingJobStatus"], "Failed");
        assert!(body["data"]["FailureReason"].as_str().unwrap().contains("no such image"));
        assert_eq!(
            (&body["data"]["CreationTime"], &body["data"]["TrainingEndTime"]),
            (&json!(1.5), &json!(2.5))
        );
        assert_eq!(body["data"].get("ModelArtifacts"), None);
    }
}
