//! A notice as a program that is run: JSON on its standard input, the most important of it in variables.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Child;
use tokio::time::timeout;
use trainyard_engine::notice::Notice;

/// Of what a program says before it fails, in bytes.
const HEARD: u64 = 4096;
/// For what its children may still say.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// A program and its arguments.
#[derive(Clone)]
pub(super) struct Command {
    pub(super) words: Vec<String>,
    pub(super) timeout: Duration,
}

impl Command {
    /// Runs the program; exit code 0 says that it has told.
    pub(super) async fn run(&self, notice: &Notice) -> Result<(), String> {
        let program = self.words.first().map(String::as_str).unwrap_or_default();
        let mut command = tokio::process::Command::new(program);
        command.args(self.words.get(1..).unwrap_or_default()).envs(variables(notice));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        // A group of its own, so that what it starts can be ended with it.
        command.process_group(0).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| format!("{program}: {error}"))?;
        let group = child.id();
        match timeout(self.timeout, talk(&mut child, &notice.body)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(trouble)) => Err(format!("{program}: {trouble}")),
            Err(_) => {
                end(group);
                Err(format!("{program}: not done after {} s, killed", self.timeout.as_secs()))
            }
        }
    }
}

/// Gives the notice to a program and waits for its end.
async fn talk(child: &mut Child, body: &str) -> Result<(), String> {
    let mut stdin = child.stdin.take();
    let stderr = child.stderr.take();
    let giving = async {
        if let Some(stdin) = stdin.as_mut() {
            // A program need not read it.
            let _ = stdin.write_all(body.as_bytes()).await;
        }
        drop(stdin);
    };
    let hearing = async move {
        let mut said = Vec::new();
        if let Some(stderr) = stderr {
            // Closed after that: whoever goes on must not wait for a reader.
            let _ = stderr.take(HEARD).read_to_end(&mut said).await;
        }
        said
    };
    let ended = async {
        let ((), status) = tokio::join!(giving, child.wait());
        status
    };
    let (mut hearing, mut ended) = (std::pin::pin!(hearing), std::pin::pin!(ended));
    let (status, said) = tokio::select! {
        status = &mut ended => (status, timeout(LAST_WORDS, hearing).await.unwrap_or_default()),
        said = &mut hearing => (ended.await, said),
    };
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            let said = String::from_utf8_lossy(&said);
            let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
            Err(if last.is_empty() { status.to_string() } else { format!("{status}: {last}") })
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Ends a program that was not waited for yet, and all that it has started.
fn end(group: Option<u32>) {
    let group = group.and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()));
    if let Some(group) = group {
        // It may have ended just now.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

/// What a shell script wants without reading JSON.
fn variables(notice: &Notice) -> Vec<(&'static str, String)> {
    let body: Value = serde_json::from_str(&notice.body).unwrap_or_default();
    let told = |member: &str| body["data"][member].as_str().unwrap_or_default().to_owned();
    vec![
        ("TRAINYARD_NOTICE_ID", notice.id.clone()),
        ("TRAINYARD_JOB", told("TrainingJobName")),
        ("TRAINYARD_STATUS", told("TrainingJobStatus")),
        ("TRAINYARD_SECONDARY_STATUS", told("SecondaryStatus")),
        ("TRAINYARD_FAILURE_REASON", told("FailureReason")),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    async fn run(script: &str, seconds: u64) -> Result<(), String> {
        let words = ["sh", "-c", script].map(str::to_owned).to_vec();
        let body = r#"{"data": {"TrainingJobName": "fit", "TrainingJobStatus": "Failed"}}"#;
        let notice = Notice { subscriber: "desk".into(), id: "fit-1-1".into(), body: body.into() };
        Command { words, timeout: Duration::from_secs(seconds) }.run(&notice).await
    }

    #[tokio::test]
    async fn a_program_gets_the_notice_and_its_exit_code_counts() {
        let right = r#"test "$TRAINYARD_JOB $TRAINYARD_STATUS $TRAINYARD_NOTICE_ID" = "fit Failed fit-1-1" && grep -q '"data"'"#;
        assert_eq!(run(right, 60).await, Ok(()));
        assert_eq!(run("exit 0", 60).await, Ok(()));
        let error = run("echo first >&2; echo no paper >&2; exit 3", 60).await.unwrap_err();
        assert_eq!(error, "sh: exit status: 3: no paper");
        assert!(run("yes >&2", 60).await.is_err());
    }

    #[tokio::test]
    async fn a_program_that_takes_too_long_is_ended_with_what_it_has_started() {
        let started = Instant::now();
        let error = run("sleep 60 & sleep 60", 1).await.unwrap_err();
        assert_eq!(error, "sh: not done after 1 s, killed");
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[tokio::test]
    async fn what_a_program_leaves_in_the_background_holds_nothing_up() {
        let started = Instant::now();
        assert_eq!(run("sleep 2 & exit 0", 59).await, Ok(()));
        assert!(started.elapsed() < Duration::from_secs(2));
    }
}
