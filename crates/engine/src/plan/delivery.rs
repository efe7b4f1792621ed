//! How a channel reaches an instance.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Deal, ObjectPlan};

/// How a channel reaches an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Delivery {
    /// As files that are there before `train` starts and may be changed.
    #[default]
    Files,
    /// As files that can only be read, and are fetched no earlier.
    WhenRead,
    /// Through named pipes, one for each epoch.
    Pipe(PipePlan),
    /// As a folder of a shared file system.
    Folder(FolderPlan),
}

/// What comes through the pipes of a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipePlan {
    /// What is dealt out and shuffled, in the order of the keys or lines.
    pub entries: Vec<Entry>,
    /// How the entries become those of this host in each epoch.
    pub deal: Deal,
    /// Which of the hosts of the deal this is, from 0.
    pub index: usize,
    /// Whether objects are gunzipped.
    pub gunzip: bool,
    /// Whether each piece is a RecordIO record.
    pub records: bool,
}

/// What stays together: one object, or all attributes of a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry(pub Vec<Piece>);

/// What becomes a record, where there are records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Piece {
    /// The value of an attribute.
    Text(String),
    /// The content of an object.
    Object(ObjectPlan),
}

/// A folder of this machine that stands for one of a shared file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderPlan {
    /// On this machine.
    pub source: PathBuf,
    /// Whether it can only be read.
    pub read_only: bool,
}

impl PipePlan {
    /// The entries of an epoch by their number, in the order in which they come.
    pub fn order(&self, epoch: u64) -> Vec<usize> {
        let sizes: Vec<_> = self.entries.iter().map(Entry::size).collect();
        self.deal.shares(&sizes, epoch).swap_remove(self.index)
    }

    /// The same for one host alone, if no epoch deals the entries out anew.
    pub(super) fn of_host(self, index: usize) -> Self {
        if self.deal.seed.is_some() && self.deal.shard_by.is_some() {
            return Self { index, ..self };
        }
        let alone = Deal { hosts: 1, shard_by: None, seed: self.deal.seed };
        let own = match self.deal.shard_by {
            None => self.entries,
            Some(_) => {
                let order = Self { index, ..self.clone() }.order(0);
                order.into_iter().map(|entry| self.entries[entry].clone()).collect()
            }
        };
        Self { entries: own, deal: alone, index: 0, ..self }
    }
}

impl Entry {
    /// In bytes, as objects were listed.
    pub fn size(&self) -> u64 {
        let sizes = self.0.iter().map(|piece| match piece {
            Piece::Text(text) => text.len() as u64,
            Piece::Object(object) => object.size,
        });
        sizes.fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ShardBy;

    fn plan(shard_by: Option<ShardBy>, seed: Option<i64>) -> PipePlan {
        let entries = (0..10).map(|number| Entry(vec![Piece::Text(number.to_string())])).collect();
        let deal = Deal { hosts: 3, shard_by, seed };
        PipePlan { entries, deal, index: 0, gunzip: false, records: false }
    }

    fn sent(plan: &PipePlan, epoch: u64) -> Vec<Entry> {
        plan.order(epoch).into_iter().map(|entry| plan.entries[entry].clone()).collect()
    }

    #[test]
    fn a_host_alone_gets_what_the_whole_deal_gives_it() {
        for shard_by in [None, Some(ShardBy::Key), Some(ShardBy::Size)] {
            for seed in [None, Some(4)] {
                let whole = plan(shard_by, seed);
                for index in 0..3 {
                    let own = whole.clone().of_host(index);
                    for epoch in 0..4 {
                        assert_eq!(sent(&own, epoch), sent(&PipePlan { index, ..whole.clone() }, epoch));
                    }
                }
            }
        }
    }
}
