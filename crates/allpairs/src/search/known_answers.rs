//! The handwritten digits, dense and sparse, by every kind of vectors: all find the answers that were computed
//! elsewhere, bit for bit, on any number of hosts and threads, whether pairs are shared out or rows.

use super::*;
use crate::bytes::Scales;
use crate::dense::{DenseFile, DenseMatrix, DenseRows};
use crate::element::Element;
use crate::machine::{Vectors, bytes};
use crate::matrix::inspect;
use crate::sparse::{Indices, SparseFile, SparseRows, StoredCsr, Values};
use std::path::{Path, PathBuf};
use way::Way;

/// For each row columns and bits of scores.
type Lists = Vec<Vec<(u32, u32)>>;

/// Adds what a host finds to the lists of all rows.
type Run<'a> = dyn Fn(&Search, &Share, &mut Vec<Vec<Neighbour>>) + Sync + 'a;

const HOSTS: [usize; 6] = [1, 2, 3, 4, 7, 12];

fn from_here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// For each row its neighbours of at least this score, by column and bits of the score.
fn answers(least: f32) -> Lists {
    let text = fs_err::read_to_string(from_here("tests/data/digits-top10.csv")).unwrap();
    let mut lists = vec![Vec::new(); 1797];
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let similarity: f32 = fields[2].parse().unwrap();
        if similarity >= least {
            lists[fields[0].parse::<usize>().unwrap()]
                .push((fields[1].parse().unwrap(), similarity.to_bits()));
        }
    }
    lists
}

fn digits() -> Matrix {
    let file = DenseFile::open_npy(&from_here("../../examples/digits/digits.npy")).unwrap();
    Matrix::Dense(inspect(DenseMatrix::join(vec![file]), true, &AtomicBool::new(false)).unwrap().0)
}

fn sparse_digits() -> Matrix {
    let Matrix::Dense(dense) = digits() else { unreachable!() };
    let (mut indptr, mut indices, mut bytes) = (vec![0], Vec::<i64>::new(), Vec::<u8>::new());
    let mut row = vec![0.0; 64];
    for at in 0..dense.matrix.rows() {
        dense.matrix.read(at..at + 1, &mut row);
        for (column, value) in (0..).zip(&row).filter(|(_, value)| **value != 0.0) {
            indices.push(column);
            bytes.extend((*value as f32).to_le_bytes());
        }
        indptr.push(indices.len() as i64);
    }
    let values = Values::decoded(&bytes, Element::F32.little_endian());
    let indices = Indices::new(&indices, (64, 0));
    let stored = StoredCsr { columns: 64, indptr, indices, values, element: Element::F32 };
    Matrix::Sparse(SparseRows::join(vec![SparseFile::new("digits".as_ref(), stored).unwrap()]).unwrap())
}

/// Runs a search on all hosts and combines their lists.
fn on_hosts(
    (matrix, selection): (&Matrix, Selection),
    (hosts, symmetric): (usize, bool),
    run: &Run,
) -> Lists {
    let rows = matrix.rows();
    let mut lists = vec![Vec::new(); rows];
    for rank in 0..hosts {
        let own = trainyard_toolkit::split::row_range(rank, hosts, rows as u64);
        let own = own.start as usize..own.end as usize;
        let share = match symmetric {
            true => Share::of_pairs(rank, hosts, rows),
            false => Share::of_rows(own.clone(), 0..rows),
        };
        let stop = AtomicBool::new(false);
        run(
            &Search { matrix, selection, rows: own, others: 0..rows, stop: &stop, done: &|_| {} },
            &share,
            &mut lists,
        );
    }
    let finish = |mut list: Vec<Neighbour>| {
        list.sort_by(Neighbour::rank);
        list.truncate(selection.top_k.unwrap());
        list.iter().map(|neighbour| (neighbour.column, neighbour.similarity.to_bits())).collect()
    };
    lists.into_iter().map(finish).collect()
}

fn assert_known((matrix, selection): (&Matrix, Selection), hosts: &[usize], way: &str, run: &Run) {
    let expected = answers(selection.threshold.unwrap_or(-1.0));
    for threads in [1, 2] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        for hosts in hosts.iter().copied() {
            for symmetric in [true, false] {
                let found = pool.install(|| on_hosts((matrix, selection), (hosts, symmetric), run));
                assert!(found == expected, "{way}, {hosts} hosts, {threads} threads, symmetric {symmetric}");
            }
        }
    }
}

fn taken(lists: &mut [Vec<Neighbour>]) -> impl FnMut(usize, &[Neighbour]) -> Result<(), ()> + Send {
    |row, neighbours| {
        lists[row].extend_from_slice(neighbours);
        Ok(())
    }
}

#[test]
fn every_kernel_finds_the_known_neighbours_on_any_number_of_hosts_and_threads() {
    // Both begin with the fastest and end with what every machine has.
    let vectors = Vectors::available();
    for (at, kernel) in Kernel::available().into_iter().enumerate() {
        let vectors = vectors[at.min(vectors.len() - 1)];
        assert_known_by(&(|_| Way::Words(kernel)), (vectors, &format!("{kernel:?}, {vectors:?}")));
    }
    for (at, kernel) in bytes::Kernel::available().into_iter().enumerate() {
        let vectors = vectors[at.min(vectors.len() - 1)];
        let way = |rows: &DenseRows| Way::Bytes(kernel, Scales::measure(rows).unwrap());
        assert_known_by(&way, (vectors, &format!("bytes, {kernel:?}, {vectors:?}")));
    }
}

fn assert_known_by(way: &(dyn Fn(&DenseRows) -> Way + Sync), (vectors, name): (Vectors, &str)) {
    let (matrix, selection) = (digits(), Selection { top_k: Some(10), threshold: None });
    let run = |search: &Search, share: &Share, lists: &mut Vec<Vec<Neighbour>>| {
        let Matrix::Dense(rows) = search.matrix else { unreachable!() };
        assert!(rows.matrix.is_float32());
        let screen = screen::Screen::by(search, share, rows, (search.margin().unwrap(), way(rows)));
        screen.scored_by(vectors).run(taken(lists)).unwrap();
    };
    assert_known((&matrix, selection), &HOSTS, name, &run);
}

#[test]
fn sparse_rows_have_the_neighbours_of_the_same_dense_rows_by_sums_and_by_signatures() {
    let matrix = sparse_digits();
    for (at, vectors) in Vectors::available().into_iter().enumerate() {
        let hosts = if at == 0 { &HOSTS[..] } else { &HOSTS[2..3] };
        for (signatures, threshold) in [(true, Some(0.95)), (false, Some(0.95))] {
            let run = |search: &Search, share: &Share, lists: &mut Vec<Vec<Neighbour>>| {
                let Matrix::Sparse(rows) = search.matrix else { unreachable!() };
                let screen = sparse::SparseScreen::new(search, share, rows, search.margin().unwrap());
                screen.by_signatures(signatures).compared_by(vectors).run(taken(lists)).unwrap();
            };
            let way = format!("{vectors:?}, signatures: {signatures}, at least {threshold:?}");
            assert_known((&matrix, Selection { top_k: Some(10), threshold }), hosts, &way, &run);
        }
    }
}
