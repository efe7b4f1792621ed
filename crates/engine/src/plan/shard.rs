//! Dealing out the objects of a channel to hosts.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// For each host, the indexes of its objects, ascending: object i goes to host i mod N.
///
/// This is what SageMaker was seen to do, with keys in order of their bytes.
pub(super) fn by_key(objects: usize, hosts: usize) -> Vec<Vec<usize>> {
    let mut shards = vec![Vec::new(); hosts];
    for object in 0..objects {
        shards[object % hosts].push(object);
    }
    shards
}

/// For each host, the indexes of its objects, ascending, so that the hosts get about as many bytes.
///
/// The largest object goes first, each to the host that has least (Graham 1969, longest processing
/// time first): no host has more than the mean plus its smallest object, so with many objects the
/// shares are equal but for a fraction of a percent. Deterministic; ties go to the earlier
/// object and the earlier host, so that equal sizes are dealt out in turn.
pub(super) fn by_size(sizes: &[u64], hosts: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&object| Reverse(sizes[object]));
    // Bytes, then objects: empty objects are spread as well.
    let mut loads: BinaryHeap<_> = (0..hosts).map(|host| Reverse((0_u128, 0_usize, host))).collect();
    let mut shards = vec![Vec::new(); hosts];
    for object in order {
        if let Some(Reverse((bytes, count, host))) = loads.pop() {
            shards[host].push(object);
            loads.push(Reverse((bytes + u128::from(sizes[object]), count + 1, host)));
        }
    }
    for shard in &mut shards {
        shard.sort_unstable();
    }
    shards
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn twenty_objects_over_six_hosts_are_three_or_four_each() {
        let counts: Vec<_> = by_key(20, 6).iter().map(Vec::len).collect();
        assert_eq!(counts, [4, 4, 3, 3, 3, 3]);
    }

    #[test]
    fn one_large_object_weighs_as_much_as_eight_small_ones() {
        assert_eq!(by_size(&[8, 1, 1, 1, 1, 1, 1, 1, 1], 2), [vec![0], (1..9).collect::<Vec<_>>()]);
    }

    proptest! {
        #[test]
        fn shards_are_disjoint_and_complete(
            sizes in prop::collection::vec(0..1000_u64, 0..200),
            hosts in 1..50_usize,
        ) {
            for shards in [by_key(sizes.len(), hosts), by_size(&sizes, hosts)] {
                prop_assert_eq!(shards.len(), hosts);
                prop_assert!(shards.iter().all(|shard| shard.is_sorted()));
                let mut all: Vec<_> = shards.concat();
                all.sort_unstable();
                prop_assert_eq!(all, (0..sizes.len()).collect::<Vec<_>>());
            }
        }

        #[test]
        fn the_fullest_host_has_at_most_its_smallest_object_more_than_the_mean(
            sizes in prop::collection::vec(0..1000_u64, 1..200),
            hosts in 1..50_usize,
        ) {
            let mean = sizes.iter().sum::<u64>() / hosts as u64;
            for shard in by_size(&sizes, hosts) {
                let bytes: u64 = shard.iter().map(|&object| sizes[object]).sum();
                let smallest = shard.iter().map(|&object| sizes[object]).min().unwrap_or(0);
                prop_assert!(bytes - smallest <= mean, "{bytes} of mean {mean}, smallest {smallest}");
            }
        }

        #[test]
        fn no_host_has_more_bytes_than_the_mean_plus_one_object(
            sizes in prop::collection::vec(0..1000_u64, 1..200),
            hosts in 1..50_usize,
        ) {
            let largest = sizes.iter().max().copied().unwrap_or(0);
            let mean = sizes.iter().sum::<u64>() / hosts as u64;
            for shard in by_size(&sizes, hosts) {
                let bytes: u64 = shard.iter().map(|&object| sizes[object]).sum();
                prop_assert!(bytes <= mean + largest, "{bytes} of mean {mean}, largest {largest}");
            }
        }
    }
}
