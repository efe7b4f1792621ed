//! Archives and parts to merge.

use std::cell::RefCell;
use std::io::Write;
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use flate2::Compression;
use flate2::write::GzEncoder;
use fs_err as fs;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::properties::WriterProperties;
use tempfile::TempDir;
use trainyard_merge::{MergeError, MergeOptions, MergeReport, Order, Progress, merge};

/// A folder with an archive, in which results are made; it must hold nothing else in the end.
pub(crate) struct Place {
    folder: TempDir,
}

/// An entry: host, path, contents.
pub(crate) type Entry<'a> = (Option<&'a str>, &'a str, Vec<u8>);

impl Place {
    /// A `model.tar.gz` with these entries.
    pub(crate) fn gzipped(entries: &[Entry<'_>]) -> Self {
        Self::with_archive(&gzip(&tar(entries)))
    }

    pub(crate) fn with_archive(bytes: &[u8]) -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        fs::write(place.archive(), bytes).unwrap();
        place
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn archive(&self) -> PathBuf {
        self.path().join("model.tar.gz")
    }

    /// Merges and returns the bytes of the result, after looking that nothing else is left.
    pub(crate) fn merge(&self, output: &str, options: &MergeOptions) -> Result<Vec<u8>, MergeError> {
        self.report(output, options).map(|_| fs::read(self.path().join(output)).unwrap())
    }

    pub(crate) fn report(&self, output: &str, options: &MergeOptions) -> Result<MergeReport, MergeError> {
        let before = self.names();
        let result = merge(&self.archive(), &self.path().join(output), options, &|_| {});
        let mut expected = before;
        if result.is_ok() && !expected.iter().any(|name| name == output) {
            expected.push(output.to_owned());
            expected.sort();
        }
        assert_eq!(self.names(), expected, "something was left behind");
        result
    }

    /// The text of the error and its causes.
    pub(crate) fn error(&self, output: &str, options: &MergeOptions) -> String {
        chain(&self.merge(output, options).unwrap_err())
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

pub(crate) fn by_host() -> MergeOptions {
    MergeOptions::default()
}

pub(crate) fn by(column: &str) -> MergeOptions {
    MergeOptions { order: Order::Column(column.to_owned()), ..MergeOptions::default() }
}

pub(crate) fn parts(contents: &[Vec<u8>], ending: &str) -> Place {
    let named: Vec<(String, String)> =
        (1..=contents.len()).map(|n| (format!("algo-{n}"), format!("part-algo-{n}.{ending}"))).collect();
    let entries: Vec<Entry<'_>> = named
        .iter()
        .zip(contents)
        .map(|((host, path), contents)| (Some(host.as_str()), path.as_str(), contents.clone()))
        .collect();
    Place::gzipped(&entries)
}

pub(crate) fn tar(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (host, path, contents) in entries {
        if let Some(host) = host {
            let comment = format!("trainyard.host={host}");
            builder.append_pax_extensions([("comment", comment.as_bytes())]).unwrap();
        }
        let mut header = tar::Header::new_ustar();
        header.set_size(contents.len() as u64);
        header.set_mode(0o644);
        // Written by hand: set_path refuses what a hostile archive holds.
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_cksum();
        builder.append(&header, &contents[..]).unwrap();
    }
    builder.into_inner().unwrap()
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A Parquet file of one batch, with row groups of `group` rows.
pub(crate) fn parquet(batch: &RecordBatch, group: usize) -> Vec<u8> {
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(group)).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.into_inner().unwrap()
}

/// All rows of a Parquet file.
pub(crate) fn read_parquet(bytes: Vec<u8>) -> RecordBatch {
    let file = tempfile::tempfile().unwrap();
    (&file).write_all(&bytes).unwrap();
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    let schema = builder.schema().clone();
    let batches: Vec<RecordBatch> = builder.build().unwrap().map(Result::unwrap).collect();
    arrow::compute::concat_batches(&schema, &batches).unwrap()
}

/// A `.npy` file of version 1 as NumPy writes it.
pub(crate) fn npy(descr: &str, shape: &str, values: &[u8]) -> Vec<u8> {
    let mut dict = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    while !(10 + dict.len() + 1).is_multiple_of(64) {
        dict.push(' ');
    }
    dict.push('\n');
    let length = u16::try_from(dict.len()).unwrap().to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], dict.as_bytes(), values].concat()
}

#[test]
fn progress_tells_of_parts_taken_and_rows_joined() {
    let place = parts(&[b"a\n1\n".to_vec(), b"a\n2\n3\n".to_vec()], "csv");
    let heard = RefCell::new(Vec::new());
    let report = merge(&place.archive(), &place.path().join("all.csv"), &by_host(), &|progress| {
        heard.borrow_mut().push(progress);
    })
    .unwrap();
    assert_eq!(
        heard.into_inner(),
        [
            Progress::Taken { parts: 1, bytes: 4 },
            Progress::Taken { parts: 2, bytes: 10 },
            Progress::Joined { parts: 1, rows: 1 },
            Progress::Joined { parts: 2, rows: 3 },
            Progress::Joined { parts: 2, rows: 3 },
        ]
    );
    assert_eq!((report.parts, report.rows, report.bytes), (2, 3, 8));
}
