//! Warnings for the person who reads the job's description: the first of them in full, the rest counted,
//! so that a folder full of dangling links does not become a list as long as the folder.

const SHOWN: usize = 100;

/// Warnings in the order they came.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    shown: Vec<String>,
    more: u64,
}

impl Warnings {
    pub(super) fn push(&mut self, text: String) {
        if self.shown.len() < SHOWN {
            self.shown.push(text);
        } else {
            self.more += 1;
        }
    }

    /// The texts; the last one counts those that were left out.
    pub(super) fn finish(mut self) -> Vec<String> {
        if self.more > 0 {
            self.shown.push(format!("{} more warnings like these", self.more));
        }
        self.shown
    }
}
