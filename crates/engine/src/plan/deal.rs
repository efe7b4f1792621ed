//! Which hosts get which entries of a channel.

use serde::{Deserialize, Serialize};

use super::order::shuffled;
use super::{ChannelPlan, Delivery, Entry, FolderPlan, Listing, ObjectPlan, Piece, PipePlan, shard};
use crate::spec::{
    ChannelSource, ChannelSpec, Compression, Distribution, FileSystemAccess, InputMode, RecordWrapper,
    ShardBy, TrainingJobSpec,
};
use crate::storage::Object;

/// How the entries of a channel (objects, or the lines of a manifest) are dealt out to the hosts that get it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deal {
    /// How many hosts get the channel.
    pub hosts: usize,
    /// What the shards are cut by; absent where every host gets all entries.
    pub shard_by: Option<ShardBy>,
    /// Where the random order starts, if there is one.
    pub seed: Option<i64>,
}

impl Deal {
    /// How a channel is dealt out to so many hosts.
    pub(super) fn of(channel: &ChannelSpec, by: ShardBy, hosts: usize) -> Self {
        let sharded = channel.distribution == Distribution::ShardedByS3Key;
        Self { hosts, shard_by: sharded.then_some(by), seed: channel.shuffle_seed }
    }

    /// For each host, the entries of an epoch by their number, in the order in which they come.
    ///
    /// A new order deals shards out anew. Those by size stay together and go round the hosts, for balance leaves
    /// little choice of which entries are together.
    pub fn shares(&self, sizes: &[u64], epoch: u64) -> Vec<Vec<usize>> {
        let order = match self.seed {
            Some(seed) => shuffled(sizes.len(), seed, epoch),
            None => (0..sizes.len()).collect(),
        };
        let mut places = match self.shard_by {
            None => vec![(0..order.len()).collect(); self.hosts],
            Some(ShardBy::Key) => shard::by_key(order.len(), self.hosts),
            Some(ShardBy::Size) => {
                let sizes: Vec<_> = order.iter().map(|&entry| sizes[entry]).collect();
                shard::by_size(&sizes, self.hosts)
            }
        };
        if self.seed.is_some() && self.shard_by == Some(ShardBy::Size) {
            places.rotate_right(usize::try_from(epoch % self.hosts.max(1) as u64).unwrap_or_default());
        }
        let entries = |places: Vec<usize>| places.into_iter().map(|place| order[place]).collect();
        places.into_iter().map(entries).collect()
    }
}

/// What each host gets of each channel, and what is worth a warning.
pub(super) fn deal_out(spec: &TrainingJobSpec, listings: &[Listing]) -> (Vec<Vec<ChannelPlan>>, Vec<String>) {
    let groups: Vec<_> = spec.resources.group_of_each_host().collect();
    let mut shares = vec![Vec::new(); groups.len()];
    let mut warnings = Vec::new();
    for (channel, listing) in spec.channels.iter().zip(listings) {
        let receivers = groups.iter().enumerate().filter(|(_, group)| channel.is_for(&group.name));
        let receivers: Vec<usize> = receivers.map(|(rank, _)| rank).collect();
        let deal = Deal::of(channel, spec.settings.shard_by, receivers.len());
        let dealt = channel_plans(channel, listing, deal);
        warnings.extend(empty_warning(channel, listing, &dealt));
        for (rank, plan) in receivers.into_iter().zip(dealt) {
            shares[rank].push(plan);
        }
    }
    (shares, warnings)
}

/// The channel as each host gets it.
fn channel_plans(channel: &ChannelSpec, listing: &Listing, deal: Deal) -> Vec<ChannelPlan> {
    match (&channel.source, channel.input_mode) {
        (ChannelSource::FileSystem { access, .. }, _) => {
            let read_only = *access == FileSystemAccess::ReadOnly;
            let folder = FolderPlan { source: listing.place.clone().unwrap_or_default(), read_only };
            let plan = ChannelPlan { delivery: Delivery::Folder(folder), ..empty_plan(channel) };
            vec![plan; deal.hosts]
        }
        (_, InputMode::Pipe) => pipes(channel, listing, deal),
        (_, InputMode::File) => files(channel, listing, deal, &Delivery::Files),
        (_, InputMode::FastFile) => files(channel, listing, deal, &Delivery::WhenRead),
    }
}

fn empty_plan(channel: &ChannelSpec) -> ChannelPlan {
    ChannelPlan {
        name: channel.name.clone(),
        objects: Vec::new(),
        replicated: channel.distribution == Distribution::FullyReplicated,
        manifest: false,
        delivery: Delivery::Files,
    }
}

fn pipes(channel: &ChannelSpec, listing: &Listing, deal: Deal) -> Vec<ChannelPlan> {
    let of_object = |object| Entry(vec![Piece::Object(planned(listing, object))]);
    let entries = match &listing.lines {
        Some(lines) => lines.clone(),
        None => listing.objects.iter().map(of_object).collect(),
    };
    let gunzip = channel.compression == Compression::Gzip;
    let records = channel.record_wrapper == RecordWrapper::RecordIo;
    let whole = PipePlan { entries, deal, index: 0, gunzip, records };
    let plan = |index| {
        let delivery = Delivery::Pipe(whole.clone().of_host(index));
        ChannelPlan { delivery, ..empty_plan(channel) }
    };
    (0..deal.hosts).map(plan).collect()
}

fn files(channel: &ChannelSpec, listing: &Listing, deal: Deal, delivery: &Delivery) -> Vec<ChannelPlan> {
    let sizes: Vec<_> = listing.objects.iter().map(|object| object.size).collect();
    let plan = |mut share: Vec<usize>| {
        // Files have no order.
        share.sort_unstable();
        ChannelPlan {
            objects: share.into_iter().map(|index| planned(listing, &listing.objects[index])).collect(),
            manifest: *delivery == Delivery::Files,
            delivery: delivery.clone(),
            ..empty_plan(channel)
        }
    };
    deal.shares(&sizes, 0).into_iter().map(plan).collect()
}

fn planned(listing: &Listing, object: &Object) -> ObjectPlan {
    let relative = listing.relative(&object.key).to_owned();
    ObjectPlan { source: object.source.clone(), relative, size: object.size }
}

fn empty_warning(channel: &ChannelSpec, listing: &Listing, dealt: &[ChannelPlan]) -> Option<String> {
    if let ChannelSource::FileSystem { .. } = channel.source {
        return None;
    }
    let empty = dealt.iter().filter(|share| share.entries() == 0).count();
    let (count, noun) = match &listing.lines {
        Some(lines) => (lines.len(), "line"),
        None => (listing.objects.len(), "object"),
    };
    let plural = if count == 1 { "" } else { "s" };
    let get = if empty == 1 { "gets" } else { "get" };
    let (name, hosts) = (&channel.name, dealt.len());
    (empty > 0)
        .then(|| format!("channel {name}: {count} {noun}{plural} for {hosts} instances: {empty} {get} none"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn deal(hosts: usize, shard_by: Option<ShardBy>, seed: Option<i64>) -> Deal {
        Deal { hosts, shard_by, seed }
    }

    #[test]
    fn without_a_seed_every_epoch_is_in_the_order_of_the_keys() {
        let shares = deal(2, Some(ShardBy::Key), None).shares(&[1; 5], 3);
        assert_eq!(shares, [vec![0, 2, 4], vec![1, 3]]);
        assert_eq!(deal(2, None, None).shares(&[1; 3], 1), [vec![0, 1, 2], vec![0, 1, 2]]);
    }

    #[test]
    fn replicated_entries_come_in_the_same_new_order_on_each_host() {
        let shares = deal(3, None, Some(1)).shares(&[1; 20], 0);
        assert!(shares.iter().all(|share| *share == shares[0]));
        assert_ne!(shares[0], (0..20).collect::<Vec<_>>());
    }

    proptest! {
        #[test]
        fn shards_are_dealt_out_anew_in_each_epoch_and_nothing_is_lost(
            sizes in prop::collection::vec(0..1000_u64, 20..60),
            hosts in 2..6_usize,
            seed: i64,
            by_size: bool,
        ) {
            let by = if by_size { ShardBy::Size } else { ShardBy::Key };
            let deal = deal(hosts, Some(by), Some(seed));
            let sorted = |epoch| {
                let mut shares = deal.shares(&sizes, epoch);
                shares.iter_mut().for_each(|share| share.sort_unstable());
                shares
            };
            let (first, second) = (sorted(0), sorted(1));
            prop_assert_ne!(&first, &second);
            for shares in [first, second] {
                let mut all = shares.concat();
                all.sort_unstable();
                prop_assert_eq!(all, (0..sizes.len()).collect::<Vec<_>>());
            }
        }
    }
}
