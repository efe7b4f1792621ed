use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::plan::CachePlan;
use crate::storage::{Buckets, StoreAddress, StoreCredentials};

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at / 3 + at / 70_000) as u8).collect()
}

fn blocks(limit: u64) -> Arc<Blocks> {
    in_cache(StoragePlan::default(), limit)
}

fn in_cache(storage: StoragePlan, limit: u64) -> Arc<Blocks> {
    let buckets = Buckets::in_stores(storage.stores.clone());
    Arc::new(Blocks::new(Stores::new(buckets, StoreCredentials::default()), storage, limit))
}

fn wanted(number: usize, path: PathBuf, size: u64) -> Wanted {
    let object = ObjectPlan { source: path.into(), relative: number.to_string(), size };
    Wanted { number, object: Arc::new(object) }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn whatever_is_read_is_what_is_there(
        sizes in prop::collection::vec(0_usize..900_000, 1..4),
        reads in prop::collection::vec((0_usize..4, 0.0..1.0_f64, 0_u64..300_000, 0_u64..8), 1..40),
        limit in prop::sample::select(vec![0, BLOCK, 3 * BLOCK, 100 * BLOCK]),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let contents: Vec<_> = sizes.iter().map(|&size| bytes(size)).collect();
        let objects: Vec<_> = contents.iter().enumerate().map(|(number, content)| {
            let path = folder.path().join(number.to_string());
            fs_err::write(&path, content).unwrap();
            wanted(number, path, content.len() as u64)
        }).collect();
        let blocks = blocks(limit);
        let read = runtime().block_on(async {
            let reading = reads.iter().map(|&(object, at, length, further)| {
                let wanted = objects[object % objects.len()].clone();
                let size = wanted.object.size;
                let start = (at * size as f64) as u64;
                let range = start..(start + length).min(size);
                let count = size.div_ceil(BLOCK);
                let next = of_bytes(&range).end;
                let further = next..(next + further).min(count).max(next);
                let blocks = Arc::clone(&blocks);
                // All at once, so that they take blocks from each other.
                tokio::spawn(async move {
                    let read = blocks.read(&wanted, range.clone(), further).await.unwrap();
                    (wanted.number, range, read)
                })
            }).collect::<Vec<_>>();
            let mut all = Vec::new();
            for one in reading {
                all.push(one.await.unwrap());
            }
            all
        });
        for (number, range, read) in read {
            let range = range.start as usize..range.end as usize;
            prop_assert!(read == contents[number][range.clone()], "object {} {:?}", number, range);
        }
        let held = blocks.held();
        prop_assert!(held.bytes <= limit);
        prop_assert_eq!(held.bytes, held.slots.values().map(|slot| slot.size).sum::<u64>());
        prop_assert_eq!(held.slots.len(), held.by_use.len());
    }
}

#[test]
fn what_is_held_is_not_fetched_again_and_what_was_used_longest_ago_goes_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("object");
    fs_err::write(&path, bytes(4 * BLOCK as usize)).unwrap();
    let (blocks, object) = (blocks(2 * BLOCK), wanted(0, path.clone(), 4 * BLOCK));
    runtime().block_on(async {
        let read = |block: u64| blocks.read(&object, block * BLOCK..block * BLOCK + 1, 0..0);
        for block in [0, 1, 0, 2] {
            read(block).await.unwrap();
        }
        fs_err::remove_file(&path).unwrap();
        read(0).await.unwrap();
        read(2).await.unwrap();
        read(1).await.unwrap_err();
    });
}

#[test]
fn who_reads_again_after_an_error_is_not_given_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("object");
    let content = bytes(300_000);
    let (blocks, object) = (blocks(100 * BLOCK), wanted(0, path.clone(), content.len() as u64));
    runtime().block_on(async {
        let read = || blocks.read(&object, 0..300_000, 0..0);
        read().await.unwrap_err();
        // It comes short first: what has come of it is right.
        fs_err::write(&path, &content[..200_000]).unwrap();
        read().await.unwrap_err();
        assert_eq!(blocks.read(&object, 0..1000, 0..0).await.unwrap(), content[..1000]);
        fs_err::write(&path, &content).unwrap();
        assert_eq!(read().await.unwrap(), content);
    });
}

#[test]
fn what_another_job_has_fetched_is_not_fetched_again() {
    let folder = tempfile::tempdir().unwrap();
    let content = bytes(300_000);
    let stores = [("bucket".to_owned(), StoreAddress::default())].into();
    let cache = CachePlan { folder: folder.path().to_owned(), limit: 1 << 20 };
    let storage = StoragePlan { stores, cache: Some(cache) };
    let source = ObjectSource::Store { bucket: "bucket".into(), key: "key".into(), etag: "\"e\"".into() };
    let object = ObjectPlan { source, relative: "key".into(), size: 300_000 };
    let entry = Cache::of(&storage).unwrap().entry_of(&object, &storage).unwrap();
    let file = entry.begin().unwrap().unwrap();
    std::io::Write::write_all(&mut file.file(), &content).unwrap();
    entry.finish(&file).unwrap();
    let wanted = Wanted { number: 0, object: Arc::new(object) };
    let read = |blocks: Arc<Blocks>| {
        let wanted = wanted.clone();
        runtime().block_on(async move { blocks.read(&wanted, 1000..299_000, 0..0).await })
    };
    let elsewhere = StoragePlan { cache: None, ..storage.clone() };
    // Nobody is asked: there are no credentials for it.
    assert_eq!(read(in_cache(storage, 0)).unwrap(), content[1000..299_000]);
    read(in_cache(elsewhere, 0)).unwrap_err();
}
