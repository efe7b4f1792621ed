//! What the GPUs of an instance do, as NVIDIA's own program tells it.

use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::process::Command;

/// The program takes a tenth of a second and more, so it is asked no more often.
const PAUSE: Duration = Duration::from_secs(10);
/// For its answer.
const PATIENCE: Duration = Duration::from_secs(5);
const QUESTION: &str = "--query-gpu=index,uuid,utilization.gpu,memory.used,memory.total";

/// The GPUs of one instance and what they last did.
pub(super) struct Gpus {
    /// With what comes before the question.
    program: Vec<String>,
    /// Without the kind: numbers, identities, or `all`.
    names: Vec<String>,
    asked: Option<Instant>,
    /// 100 for each that was busy.
    pub(super) busy: Option<f64>,
    /// 100 for each whose memory was full.
    pub(super) memory: Option<f64>,
}

impl Gpus {
    pub(super) fn new(program: &[&str], names: &[String]) -> Self {
        let names =
            names.iter().filter_map(|name| name.strip_prefix("nvidia.com/gpu=")).map(ToOwned::to_owned);
        let program = program.iter().map(|word| (*word).to_owned()).collect();
        Self { program, names: names.collect(), asked: None, busy: None, memory: None }
    }

    /// Asks again if it is time; a machine without the program tells nothing.
    pub(super) async fn look(&mut self) {
        let Some((program, before)) = self.program.split_first() else { return };
        if self.names.is_empty() || self.asked.is_some_and(|asked| asked.elapsed() < PAUSE) {
            return;
        }
        self.asked = Some(Instant::now());
        let mut command = Command::new(program);
        command.args(before).args([QUESTION, "--format=csv,noheader,nounits"]);
        command.stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let answer = tokio::time::timeout(PATIENCE, command.output()).await;
        let Ok(Ok(answer)) = answer else { return };
        (self.busy, self.memory) = read(&String::from_utf8_lossy(&answer.stdout), &self.names);
    }
}

/// Sums over the named GPUs of an answer; each none if no card tells it, as those that are cut into parts (MIG) do.
fn read(answer: &str, names: &[String]) -> (Option<f64>, Option<f64>) {
    let (mut all_busy, mut all_memory) = (None, None);
    for line in answer.lines() {
        let fields: Vec<_> = line.split(',').map(str::trim).collect();
        let [index, identity, busy, used, total] = fields[..] else { continue };
        if !names.iter().any(|name| name == index || name == identity || name == "all") {
            continue;
        }
        let number = |text: &str| text.parse::<f64>().ok();
        let memory = number(used).zip(number(total).filter(|total| *total > 0.0));
        add(&mut all_busy, number(busy));
        add(&mut all_memory, memory.map(|(used, total)| 100.0 * used / total));
    }
    (all_busy, all_memory)
}

fn add(sum: &mut Option<f64>, more: Option<f64>) {
    if let Some(more) = more {
        *sum = Some(sum.unwrap_or(0.0) + more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the form that the program has: a line for each card, `[N/A]` for what it does not tell, and a word for a card that
    /// does not answer.
    const ANSWER: &str = "0, GPU-8a56a4bc-e184-a047-2620-be19fdf913d5, 50, 8192, 32768\n\
                          1, GPU-29c96fd6-8c23-4e11-b8f3-6f0f5a6b7c11, 25, 32768, 32768\n\
                          2, GPU-c03d1f2e-11aa-4d6e-a8f9-1d2b3c4d5e6f, [N/A], 19968, 39936\n\
                          3, GPU-d4f0a1b2-77de-41c3-9a51-0a1b2c3d4e5f, 7, [Not Supported], [Not Supported]\n\
                          Unable to determine the device handle for GPU 0000:05:00.0: Unknown Error\n\n";

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn busy_gpus_are_summed_by_their_names() {
        let read = |wanted: &[&str]| read(ANSWER, &names(wanted));
        assert_eq!(read(&["0"]), (Some(50.0), Some(25.0)));
        assert_eq!(read(&["GPU-29c96fd6-8c23-4e11-b8f3-6f0f5a6b7c11", "0"]), (Some(75.0), Some(125.0)));
        assert_eq!(read(&["all"]), (Some(82.0), Some(175.0)));
        assert_eq!(read(&["7"]), (None, None));
    }

    #[test]
    fn what_a_card_does_not_tell_is_unknown_and_not_nothing() {
        let read = |wanted: &[&str]| read(ANSWER, &names(wanted));
        assert_eq!(read(&["2"]), (None, Some(50.0)));
        assert_eq!(read(&["3"]), (Some(7.0), None));
    }

    #[tokio::test]
    async fn the_program_is_asked_for_what_is_read_and_not_again_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let (program, asked) = (folder.path().join("nvidia-smi"), folder.path().join("asked"));
        let lines = ANSWER.lines().map(|line| format!("echo '{line}'\n")).collect::<String>();
        fs_err::write(&program, format!("echo \"$@\" >> {}\n{lines}", asked.display())).unwrap();
        let names = names(&["nvidia.com/gpu=0", "example.com/gpu=1"]);
        // Through the shell, since a file that was just written may be held by a fork of another test.
        let mut gpus = Gpus::new(&["sh", &program.display().to_string()], &names);
        gpus.look().await;
        assert_eq!((gpus.busy, gpus.memory), (Some(50.0), Some(25.0)));
        gpus.look().await;
        let asked = fs_err::read_to_string(asked).unwrap();
        assert_eq!(
            asked,
            "--query-gpu=index,uuid,utilization.gpu,memory.used,memory.total --format=csv,noheader,nounits\n"
        );
    }

    #[tokio::test]
    async fn a_machine_without_the_program_tells_nothing() {
        let mut gpus = Gpus::new(&["/nowhere/nvidia-smi"], &names(&["nvidia.com/gpu=0"]));
        gpus.look().await;
        assert_eq!((gpus.busy, gpus.memory), (None, None));
    }
}
