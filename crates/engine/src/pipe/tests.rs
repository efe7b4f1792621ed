//! Serves pipes of a folder to readers that behave in all the ways that programs do.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::Instant;

use flate2::Compression;
use flate2::write::GzEncoder;
use fs_err as fs;
use tokio::task::spawn_blocking;

use super::*;
use crate::plan::{Deal, Entry, ObjectPlan, Piece};
use crate::storage::{Buckets, StoreCredentials};

const DEADLINE: Duration = Duration::from_secs(30);

/// A channel called `c` and the folder of its pipes.
struct Yard {
    folder: tempfile::TempDir,
    plan: PipePlan,
}

impl Yard {
    fn new(objects: &[&[u8]]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let entries = objects.iter().enumerate().map(|(number, content)| {
            let source = folder.path().join(format!("object-{number}"));
            fs::write(&source, content).unwrap();
            let size = content.len() as u64;
            Entry(vec![Piece::Object(ObjectPlan { source: source.into(), relative: String::new(), size })])
        });
        let deal = Deal { hosts: 1, shard_by: None, seed: None };
        let plan = PipePlan { entries: entries.collect(), deal, index: 0, gunzip: false, records: false };
        fs::create_dir(folder.path().join("pipes")).unwrap();
        Self { folder, plan }
    }

    fn pipes(&self) -> PathBuf {
        self.folder.path().join("pipes")
    }

    fn serve(&self) -> Pipes {
        let channel = ChannelPlan {
            name: "c".to_owned(),
            objects: Vec::new(),
            replicated: true,
            manifest: false,
            delivery: Delivery::Pipe(self.plan.clone()),
        };
        make_first(&self.pipes(), "c").unwrap();
        let nowhere = Stores::new(Buckets::in_stores(BTreeMap::new()), StoreCredentials::default());
        Pipes::serve(&[channel], &nowhere, &self.pipes()).unwrap()
    }

    /// Reads one epoch as a program would, which opens it at once.
    async fn read(&self, epoch: u64) -> Vec<u8> {
        let path = self.pipes().join(format!("c_{epoch}"));
        let read = spawn_blocking(move || {
            let mut bytes = Vec::new();
            fs::File::open(path).unwrap().read_to_end(&mut bytes).unwrap();
            bytes
        });
        tokio::time::timeout(DEADLINE, read).await.unwrap().unwrap()
    }

    /// Reads one epoch, of which something has to be wrong.
    async fn broken(&self, pipes: &mut Pipes) -> String {
        let path = self.pipes().join("c_0");
        let reading = spawn_blocking(move || {
            let mut bytes = Vec::new();
            fs::File::open(path).unwrap().read_to_end(&mut bytes).unwrap();
        });
        let broken = tokio::time::timeout(DEADLINE, pipes.broken()).await.unwrap();
        assert!(!reading.is_finished(), "the reader takes what it has got for all");
        let text = crate::explain::chain(&broken);
        drop(broken);
        reading.await.unwrap();
        text
    }
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn every_epoch_is_all_objects_and_the_next_pipe_is_there_at_its_end() {
    let large = vec![7; 3 << 20];
    let yard = Yard::new(&[b"one", b"", &large, b"two"]);
    let _pipes = yard.serve();
    let expected = [b"one", large.as_slice(), b"two"].concat();
    for epoch in 0..5 {
        assert!(yard.read(epoch).await == expected, "epoch {epoch}");
    }
}

#[tokio::test]
async fn a_reader_that_has_enough_gets_the_next_epoch_from_its_start() {
    let large: Vec<u8> = (0..4 << 20_u32).map(|number| number as u8).collect();
    let yard = Yard::new(&[&large]);
    let _pipes = yard.serve();
    for epoch in 0..20 {
        let path = yard.pipes().join(format!("c_{epoch}"));
        let first = spawn_blocking(move || {
            let mut first = [0; 1000];
            fs::File::open(path).unwrap().read_exact(&mut first).unwrap();
            first
        });
        assert_eq!(first.await.unwrap(), large[..1000]);
        let end = Instant::now() + DEADLINE;
        while !yard.pipes().join(format!("c_{}", epoch + 1)).exists() {
            assert!(Instant::now() < end, "there is no next pipe");
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_channel_without_entries_has_empty_epochs() {
    let yard = Yard::new(&[]);
    let _pipes = yard.serve();
    for epoch in 0..3 {
        assert_eq!(yard.read(epoch).await, b"");
    }
}

#[tokio::test]
async fn all_members_of_a_gzip_file_are_unpacked() {
    let two = [gzip(b"first"), gzip(b"second")].concat();
    let mut yard = Yard::new(&[&two, b"", &gzip(b"third")]);
    yard.plan.gunzip = true;
    let _pipes = yard.serve();
    assert_eq!(yard.read(0).await, b"firstsecondthird");
}

#[tokio::test]
async fn unpacked_objects_are_records_of_their_unpacked_length() {
    let large = vec![1; 20 << 20];
    let mut yard = Yard::new(&[&gzip(b"abcde"), &gzip(&large), b""]);
    (yard.plan.gunzip, yard.plan.records) = (true, true);
    let _pipes = yard.serve();
    let head = |length: u32| [0xced7_230a_u32.to_le_bytes(), length.to_le_bytes()].concat();
    let expected = [head(5), b"abcde\0\0\0".to_vec(), head(20 << 20), large, head(0)].concat();
    assert!(yard.read(0).await == expected);
}

#[tokio::test]
async fn data_that_is_not_what_was_planned_breaks_the_channel_and_never_ends_it() {
    let whole = gzip(&vec![5; 100_000]);
    let damaged: [(&[u8], bool, &str); 3] = [
        (&whole[..whole.len() - 9], true, "can't be gunzipped"),
        (b"no gzip", true, "can't be gunzipped"),
        (b"changed", false, "7 bytes"),
    ];
    for (content, gunzip, expected) in damaged {
        let mut yard = Yard::new(&[b"fine", content]);
        if gunzip {
            fs::write(yard.folder.path().join("object-0"), gzip(b"fine")).unwrap();
            yard.plan.entries.remove(0);
        } else {
            fs::write(yard.folder.path().join("object-1"), "longer than planned").unwrap();
        }
        yard.plan.gunzip = gunzip;
        let mut pipes = yard.serve();
        let text = yard.broken(&mut pipes).await;
        assert!(
            text.contains("channel \"c\"") && text.contains("object-1") && text.contains(expected),
            "{text}"
        );
    }
}

#[test]
fn what_a_job_puts_in_the_place_of_a_pipe_is_not_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let victim = folder.path().join("victim");
    fs::write(&victim, "untouched").unwrap();
    fs::os::unix::fs::symlink(&victim, folder.path().join("link")).unwrap();
    let opened = node::open_folder(folder.path()).unwrap();
    assert_eq!(open(&opened, "link").unwrap_err(), Errno::LOOP);
    assert_eq!(open(&opened, "victim").unwrap_err(), Errno::INVAL);
    make(&opened, "pipe").unwrap();
    assert_eq!(open(&opened, "pipe").unwrap_err(), Errno::NXIO);
}
