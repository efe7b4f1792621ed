//! Pairs as a sparse matrix in the form of `scipy.sparse.save_npz`: rows of this host by rows of the matrix.
//!
//! How many entries there are stands before them in the file, so they wait in files without a name until all are
//! known.

use super::{Layout, PartError, measured};
use crate::neighbours::Neighbour;
use crate::settings::Measure;
use fs_err::File;
use std::io::{self, BufWriter, Read, Seek, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

pub(super) struct NpzWriter {
    path: PathBuf,
    measure: Measure,
    rows: Range<usize>,
    columns: usize,
    /// Where each row begins, and the number of entries so far.
    offsets: Vec<i64>,
    indices: BufWriter<std::fs::File>,
    numbers: BufWriter<std::fs::File>,
}

impl NpzWriter {
    pub(super) fn create(path: &Path, layout: &Layout) -> io::Result<Self> {
        // That the file can not be made shows before any work is done.
        File::create(path)?;
        let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        let waiting = || tempfile::tempfile_in(folder).map(BufWriter::new);
        Ok(Self {
            path: path.to_owned(),
            measure: layout.measure,
            rows: layout.rows.clone(),
            columns: layout.columns,
            offsets: vec![0],
            indices: waiting()?,
            numbers: waiting()?,
        })
    }

    pub(super) fn push(&mut self, row: usize, neighbours: &[Neighbour]) -> io::Result<()> {
        self.fill_up(row);
        let mut neighbours = neighbours.to_vec();
        neighbours.sort_unstable_by_key(|neighbour| neighbour.column);
        for neighbour in &neighbours {
            self.indices.write_all(&i64::from(neighbour.column).to_le_bytes())?;
            self.numbers.write_all(&measured(neighbour.similarity, self.measure).to_le_bytes())?;
        }
        let end = self.entries() + neighbours.len() as i64;
        self.offsets.push(end);
        Ok(())
    }

    /// Rows before this one that were not pushed have no entry.
    fn fill_up(&mut self, row: usize) {
        let end = self.entries();
        self.offsets.resize(row - self.rows.start + 1, end);
    }

    fn entries(&self) -> i64 {
        self.offsets.last().copied().unwrap_or(0)
    }

    pub(super) fn finish(&mut self) -> Result<(), PartError> {
        self.fill_up(self.rows.end);
        let entries = self.entries();
        let mut archive = Archive(ZipWriter::new(BufWriter::new(File::create(&self.path)?)));
        let vector = |count: usize| format!("({count},)");
        for waiting in [&mut self.indices, &mut self.numbers] {
            waiting.flush()?;
            waiting.get_mut().rewind()?;
        }
        archive.array("indices", ("<i8", &vector(entries as usize)), self.indices.get_mut())?;
        let offsets: Vec<u8> = self.offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect();
        archive.array("indptr", ("<i8", &vector(self.offsets.len())), &mut offsets.as_slice())?;
        archive.array("format", ("|S3", "()"), &mut b"csr".as_slice())?;
        let shape = [self.rows.len() as i64, self.columns as i64];
        let shape: Vec<u8> = shape.iter().flat_map(|length| length.to_le_bytes()).collect();
        archive.array("shape", ("<i8", "(2,)"), &mut shape.as_slice())?;
        archive.array("data", ("<f4", &vector(entries as usize)), self.numbers.get_mut())?;
        archive.0.finish().map_err(io::Error::from)?.flush()?;
        Ok(())
    }
}

struct Archive(ZipWriter<BufWriter<File>>);

impl Archive {
    fn array(&mut self, name: &str, (descr, shape): (&str, &str), bytes: &mut impl Read) -> io::Result<()> {
        let options = SimpleFileOptions::default().large_file(true);
        self.0.start_file(format!("{name}.npy"), options)?;
        self.0.write_all(&crate::npy::header(descr, shape, 64))?;
        io::copy(bytes, &mut self.0)?;
        Ok(())
    }
}
