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
    program: &'static str,
    /// Without the kind: numbers, identities, or `all`.
    names: Vec<String>,
    asked: Option<Instant>,
    /// 100 for each that was busy.
    pub(super) busy: Option<f64>,
    /// 100 for each whose memory was full.
    pub(super) memory: Option<f64>,
}

impl Gpus {
    pub(super) fn new(program: &'static str, names: &[String]) -> Self {
        let names =
            names.iter().filter_map(|name| name.strip_prefix("nvidia.com/gpu=")).map(ToOwned::to_owned);
        Self { program, names: names.collect(), asked: None, busy: None, memory: None }
    }

    /// Asks again if it is time; a machine without the program tells nothing.
    pub(super) async fn look(&mut self) {
        if self.names.is_empty() || self.asked.is_some_and(|asked| asked.elapsed() < PAUSE) {
            return;
        }
        self.asked = Some(Instant::now());
        let mut command = Command::new(self.program);
        command.args([QUESTION, "--format=csv,noheader,nounits"]);
        command.stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let answer = tokio::time::timeout(PATIENCE, command.output()).await;
        let Ok(Ok(answer)) = answer else { return };
        if let Some((busy, memory)) = read(&String::from_utf8_lossy(&answer.stdout), &self.names) {
            (self.busy, self.memory) = (Some(busy), Some(memory));
        }
    }
}

/// Sums over the named GPUs of an answer; none if it names none of them.
fn read(answer: &str, names: &[String]) -> Option<(f64, f64)> {
    let mut sum = None;
    for line in answer.lines() {
        let fields: Vec<_> = line.split(',').map(str::trim).collect();
        let [index, identity, busy, used, total] = fields[..] else { continue };
        if !names.iter().any(|name| name == index || name == identity || name == "all") {
            continue;
        }
        // Some cards don't tell the one or the other.
        let number = |text: &str| text.parse::<f64>().unwrap_or(0.0);
        let memory = if number(total) > 0.0 { 100.0 * number(used) / number(total) } else { 0.0 };
        let (all_busy, all_memory) = sum.unwrap_or((0.0, 0.0));
        sum = Some((all_busy + number(busy), all_memory + memory));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "0, GPU-a, 50, 1000, 4000\n1, GPU-b, 25, 4000, 4000\n2, GPU-c, [N/A], 1, 0\n\n";

    #[test]
    fn busy_gpus_are_summed_by_their_names() {
        let read =
            |names: &[&str]| read(ANSWER, &names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(read(&["0"]), Some((50.0, 25.0)));
        assert_eq!(read(&["GPU-b", "0"]), Some((75.0, 125.0)));
        assert_eq!(read(&["all"]), Some((75.0, 125.0)));
        assert_eq!(read(&["2"]), Some((0.0, 0.0)));
        assert_eq!(read(&["7"]), None);
    }

    #[tokio::test]
    async fn a_machine_without_the_program_tells_nothing() {
        let mut gpus = Gpus::new("/nowhere/nvidia-smi", &["nvidia.com/gpu=0".to_owned()]);
        gpus.look().await;
        assert_eq!((gpus.busy, gpus.memory), (None, None));
    }
}
