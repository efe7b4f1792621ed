//! The neighbours of a range of rows, block by block and in order.

mod blocks;
mod candidates;
mod dense;
#[cfg(test)]
mod known_answers;
mod meetings;
mod scorer;
mod screen;
mod share;
mod sparse;
mod tiles;
mod way;

use crate::machine::Kernel;
use crate::matrix::Matrix;
use crate::neighbours::Neighbour;
use crate::quantised::Margin;
use crate::settings::Selection;
use rayon::prelude::*;
use share::{Counts, Share};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Neighbours that the blocks under way may hold together, so that a large `top_k` takes smaller blocks.
const NEIGHBOURS_UNDER_WAY: usize = 1 << 24;

/// Neighbours that lists which are finished together may hold: 16 bytes each in the worst case.
const KEPT_IN_LISTS: usize = 1 << 26;

/// Rows of a block that are compared with all others at a time.
const BLOCK_ROWS: usize = 64;

/// Blocks under way at a time for each thread: enough to even out their times.
const BLOCKS_PER_THREAD: usize = 4;

/// What to look for.
pub(crate) struct Search<'a> {
    pub(crate) matrix: &'a Matrix,
    pub(crate) selection: Selection,
    /// The rows whose neighbours are wanted.
    pub(crate) rows: Range<usize>,
    /// The rows that may be neighbours.
    pub(crate) others: Range<usize>,
    pub(crate) stop: &'a AtomicBool,
    /// Told again and again how many rows' worth of work is done.
    pub(crate) done: &'a (dyn Fn(usize) + Sync),
}

/// Why a search ended early.
#[derive(Debug)]
pub(crate) enum Ended<E> {
    /// The stop flag was set.
    Stopped,
    /// The taker of the neighbours failed.
    Taker(E),
}

impl Search<'_> {
    /// Hands the neighbours of each row to `take`, rows in order, on the current pool of threads.
    pub(crate) fn run<E: Send>(
        &self,
        take: impl FnMut(usize, &[Neighbour]) -> Result<(), E> + Send,
    ) -> Result<(), Ended<E>> {
        self.search(&Share::of_rows(self.rows.clone(), self.others.clone()), take)
    }

    /// Compares the pairs that belong to host `rank` of `hosts` and to no other host, and hands over what was
    /// found, rows in order. [`Self::others`] must be all rows; [`Self::rows`] only tell how much of the work is done.
    ///
    /// With `top_k` that is a list for each row that the host had to do with, the best of its partners here.
    /// Without, each pair comes up for one of its rows. Lists of one row from all hosts have no pair in common.
    pub(crate) fn run_symmetric<E: Send>(
        &self,
        (rank, hosts): (usize, usize),
        take: impl FnMut(usize, &[Neighbour]) -> Result<(), E> + Send,
    ) -> Result<(), Ended<E>> {
        let share = Share::of_pairs(rank, hosts, self.matrix.rows());
        let share = if self.selection.top_k.is_some() { share } else { share.once() };
        self.search(&share, take)
    }

    /// Whether [`Self::run_symmetric`] can be used; the answer is the same on every host.
    pub(crate) fn can_be_symmetric(&self, hosts: usize) -> bool {
        let lists = Share::most_lists(hosts, self.matrix.rows());
        let can_turn = match self.matrix {
            Matrix::Dense(_) => true,
            // All at once, since hosts may have blocks of different sizes.
            Matrix::Sparse(matrix) => sparse::can_turn(matrix.entries(), matrix),
        };
        self.few_are_wanted() && self.margin().is_some() && self.have_room(lists) && can_turn
    }

    fn search<E: Send>(
        &self,
        share: &Share,
        take: impl FnMut(usize, &[Neighbour]) -> Result<(), E> + Send,
    ) -> Result<(), Ended<E>> {
        match (self.matrix, self.margin(), Kernel::available().first()) {
            (Matrix::Dense(matrix), Some(margin), Some(&kernel)) if self.few_are_wanted() => {
                screen::Screen::new(self, share, matrix, (margin, kernel)).run(take)
            }
            (Matrix::Sparse(matrix), Some(margin), _) if self.few_are_wanted() => {
                sparse::SparseScreen::new(self, share, matrix, margin).run(take)
            }
            _ => self.run_unscreened(share, take),
        }
    }

    /// How far the sums of a screen may be from the scores; `None` if there can be no screen.
    fn margin(&self) -> Option<Margin> {
        match self.matrix {
            Matrix::Dense(rows) => Margin::new(rows.quantisation_error, rows.matrix.columns()),
            Matrix::Sparse(rows) => Margin::of_short_sums(rows.longest_row()),
        }
    }

    /// Whether a screen would keep enough pairs away from being scored to be worth it.
    fn few_are_wanted(&self) -> bool {
        match self.selection.top_k {
            Some(top_k) => top_k <= self.others.len() / 16,
            None => self.selection.threshold.is_some_and(|threshold| {
                // Sparse rows that have nothing in common score 0, and there are too many of them to look at.
                let sparse = matches!(self.matrix, Matrix::Sparse(_));
                threshold > 0.0
                    && (!sparse || self.margin().is_some_and(|margin| margin.is_positive(threshold)))
            }),
        }
    }

    /// Whether lists of so many rows can be in memory at a time.
    fn have_room(&self, lists: usize) -> bool {
        self.selection.top_k.is_none_or(|top_k| lists.saturating_mul(top_k) <= KEPT_IN_LISTS)
    }

    /// Whether all lists of a share can be kept and finished together.
    fn can_keep_lists(&self, share: &Share) -> bool {
        match share.counts {
            Counts::ForRows => !share.among.is_empty() && self.have_room(share.lists()),
            Counts::ForBoth | Counts::Once => true,
        }
    }

    fn run_unscreened<E: Send>(
        &self,
        share: &Share,
        mut take: impl FnMut(usize, &[Neighbour]) -> Result<(), E> + Send,
    ) -> Result<(), Ended<E>> {
        let block = self.block_rows();
        let cut = |rows: &Range<usize>| {
            let end = rows.end;
            rows.clone().step_by(block).map(move |start| start..end.min(start + block))
        };
        let (pieces, mut rows_done): (Vec<Range<usize>>, _) = (share.rows.iter().flat_map(cut).collect(), 0);
        for wave in pieces.chunks(rayon::current_num_threads() * BLOCKS_PER_THREAD) {
            let found: Vec<_> = wave.par_iter().map(|rows| self.block(rows.clone(), share)).collect();
            for (rows, block) in wave.iter().zip(found) {
                let block = block.ok_or(Ended::Stopped)?;
                for (row, neighbours) in rows.clone().zip(&block) {
                    take(row, neighbours).map_err(Ended::Taker)?;
                }
                rows_done += block.len();
                self.tell(rows_done, share.row_count());
            }
        }
        Ok(())
    }

    /// Tells how much of the work is done.
    fn tell(&self, done: usize, of_all: usize) {
        (self.done)(self.rows.len() * done / of_all.max(1));
    }

    fn block_rows(&self) -> usize {
        let all = self.others.len().max(1);
        let in_a_list = self.selection.top_k.unwrap_or(all).min(all);
        let blocks = rayon::current_num_threads() * BLOCKS_PER_THREAD;
        (NEIGHBOURS_UNDER_WAY / (in_a_list * blocks)).clamp(1, BLOCK_ROWS)
    }

    /// The neighbours of each row of a block; `None` once the stop flag is set.
    fn block(&self, rows: Range<usize>, share: &Share) -> Option<Vec<Vec<Neighbour>>> {
        match self.matrix {
            Matrix::Dense(matrix) => dense::neighbours(matrix, rows, self),
            Matrix::Sparse(matrix) => sparse::neighbours(matrix, rows, (self, share)),
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::way::Way;
    use super::*;
    use crate::bytes::{FirstFloors, Scales, Wanted};
    use crate::dense::{Bytes, DenseFile, DenseMatrix, DenseRows};
    use crate::element::Element;
    use crate::machine::bytes;
    use crate::matrix::inspect;
    use crate::sparse::{Indices, SparseFile, SparseRows, StoredCsr, Values};
    use proptest::prelude::*;

    fn dense(rows: &[Vec<f64>]) -> Matrix {
        let file = DenseFile {
            path: "rows".into(),
            bytes: Bytes::Owned(rows.iter().flatten().flat_map(|v| v.to_le_bytes()).collect()),
            start: 0,
            row_head: 0,
            encoding: Element::F64.little_endian(),
            fortran_order: false,
            rows: rows.len(),
            columns: rows[0].len(),
        };
        Matrix::Dense(inspect(DenseMatrix::join(vec![file]), true, &AtomicBool::new(false)).unwrap().0)
    }

    type Found = Vec<(usize, Vec<Neighbour>)>;

    /// The same rows in float32.
    fn single(rows: &[Vec<f64>]) -> Matrix {
        let bytes = rows.iter().flatten().flat_map(|value| (*value as f32).to_le_bytes()).collect();
        let mut file = DenseFile::empty("rows".as_ref(), rows.len(), rows[0].len());
        (file.bytes, file.encoding) = (Bytes::Owned(bytes), Element::F32.little_endian());
        Matrix::Dense(inspect(DenseMatrix::join(vec![file]), true, &AtomicBool::new(false)).unwrap().0)
    }

    /// All ways to compare the rows.
    fn ways(rows: &DenseRows) -> Vec<Way> {
        let words = Kernel::available().into_iter().map(Way::Words);
        let scales = || Scales::measure(rows).unwrap();
        words
            .chain(bytes::Kernel::available().into_iter().map(|kernel| Way::Bytes(kernel, scales())))
            .collect()
    }

    fn collect(found: &mut Found, row: usize, neighbours: &[Neighbour]) -> Result<(), ()> {
        found.push((row, neighbours.to_vec()));
        Ok(())
    }

    /// The result without a screen, and that of each way to compare.
    fn results(matrix: &Matrix, selection: Selection, rows: Range<usize>) -> (Found, Vec<(String, Found)>) {
        let stop = AtomicBool::new(false);
        let others = 0..matrix.rows();
        let search = Search { matrix, selection, rows, others, stop: &stop, done: &|_| {} };
        let mut plain = Vec::new();
        let share = Share::of_rows(search.rows.clone(), search.others.clone());
        search.run_unscreened(&share, |row, n| collect(&mut plain, row, n)).unwrap();
        let Matrix::Dense(rows) = matrix else { unreachable!() };
        let margin = Margin::new(rows.quantisation_error, rows.matrix.columns()).unwrap();
        let mut screened = Vec::new();
        for way in ways(rows) {
            let name =
                format!("{way:?}").split_once(", Scales").map_or(String::new(), |(way, _)| way.to_owned());
            let screen = screen::Screen::by(&search, &share, rows, (margin, way));
            let (mut together, mut in_order) = (Vec::new(), Vec::new());
            screen.run(|row, n| collect(&mut together, row, n)).unwrap();
            screen.run_in_order(|row, n| collect(&mut in_order, row, n)).unwrap();
            assert_eq!(in_order, together, "{name}");
            screened.push((name, together));
        }
        (plain, screened)
    }

    /// Rows in clusters: equal ones, near-copies that differ in the last bits, multiples, zero rows.
    fn clustered(seed: u64, count: usize, columns: usize, clusters: u64, noise: f64) -> Vec<Vec<f64>> {
        let mut state = seed | 1;
        let mut next = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        let mut unit = move || next() as f64 / 2f64.powi(30) - 1.0;
        let centres: Vec<Vec<f64>> = (0..clusters).map(|_| (0..columns).map(|_| unit()).collect()).collect();
        (0..count)
            .map(|row| {
                let centre = &centres[((unit() + 1.0) * 1e6) as usize % centres.len()];
                let factor = if row % 7 == 0 { 0.0 } else { 2f64.powi((row % 60) as i32 * 30 - 900) };
                centre.iter().map(|v| (v + noise * unit()) * factor).collect()
            })
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn the_screen_changes_no_bit_of_the_result_whatever_the_kernel(
            seed in any::<u64>(),
            count in 1usize..500,
            columns in 1usize..40,
            clusters in 1u64..60,
            noise in prop::sample::select(vec![0.0, 1e-16, 1e-8, 1e-5, 1e-3, 0.1, 1.0]),
            top_k in prop::option::of(1usize..20),
            threshold in prop::option::of(-1.0..=1.0f32),
            bounds in (0.0..1.0f64, 0.0..1.0f64),
            (short, held) in any::<(bool, bool)>(),
        ) {
            let selection = Selection { top_k: if threshold.is_none() { top_k.or(Some(3)) } else { top_k }, threshold };
            let mut values = clustered(seed, count, columns, clusters, noise);
            let mut matrix = if short {
                // What float32 has no number for is brought to where it has.
                values.iter_mut().flatten().for_each(|value| *value = value.clamp(-1e30, 1e30));
                single(&values)
            } else {
                dense(&values)
            };
            if let (Matrix::Dense(rows), false) = (&mut matrix, held) {
                rows.held = None;
            }
            let at = |part: f64| (part * (count + 1) as f64) as usize;
            let rows = at(bounds.0.min(bounds.1))..at(bounds.0.max(bounds.1)).min(count);
            let (plain, screened) = results(&matrix, selection, rows);
            for (kernel, found) in screened {
                // A threshold below zero without top_k is never screened: there a zero row has neighbours.
                if top_k.is_some() || threshold.is_none_or(|threshold| threshold > 0.0) {
                    prop_assert_eq!(&found, &plain, "{:?}", kernel);
                }
            }
        }
    }

    #[test]
    fn first_floors_change_no_bit_of_the_result() {
        for (clusters, noise, top_k) in [(1, 1e-5, 1), (40, 0.1, 3), (1000, 1.0, 9), (3, 0.0, 5)] {
            let mut values = clustered(clusters, 2500, 6, clusters, noise);
            values.iter_mut().flatten().for_each(|value| *value = value.clamp(-1e30, 1e30));
            let matrix = single(&values);
            let Matrix::Dense(rows) = &matrix else { unreachable!() };
            let (scales, stop) = (Scales::measure(rows).unwrap(), AtomicBool::new(false));
            let selection = Selection { top_k: Some(top_k), threshold: None };
            for (own, others) in [(100..700, 0..2500), (0..2500, 0..2500), (0..300, 300..2500)] {
                let search = Search {
                    matrix: &matrix,
                    selection,
                    rows: own.clone(),
                    others: others.clone(),
                    stop: &stop,
                    done: &|_| {},
                };
                let share = Share::of_rows(own.clone(), others.clone());
                let mut plain = Vec::new();
                search.run_unscreened(&share, |row, found| collect(&mut plain, row, found)).unwrap();
                for (kernel, way) in bytes::Kernel::available()
                    .into_iter()
                    .flat_map(|kernel| ways(rows).into_iter().map(move |way| (kernel, way)))
                {
                    let margin = Margin::new(rows.quantisation_error, rows.matrix.columns()).unwrap();
                    let wanted = Wanted {
                        rows: std::slice::from_ref(&own),
                        others: &others,
                        top_k,
                        rounds: 3,
                        margin,
                        stop: &stop,
                    };
                    let first = FirstFloors::find((rows, &scales), kernel, wanted);
                    assert!(first.is_some(), "{kernel:?}");
                    let screen = screen::Screen::by(&search, &share, rows, (margin, way));
                    let mut found = Vec::new();
                    screen.with_first_floors(first).run(|row, list| collect(&mut found, row, list)).unwrap();
                    assert!(found == plain, "{kernel:?}, {own:?} among {others:?}");
                }
            }
        }
    }

    fn sparse(rows: &[Vec<f64>]) -> Matrix {
        let (mut indptr, mut indices, mut values) = (vec![0], Vec::<i64>::new(), Vec::<u8>::new());
        for row in rows {
            let entries = row.iter().enumerate().filter(|(_, value)| **value != 0.0);
            entries.for_each(|(column, value)| {
                indices.push(column as i64);
                values.extend(value.to_le_bytes());
            });
            indptr.push(indices.len() as i64);
        }
        let columns = rows[0].len() as u64;
        let indices = Indices::new(&indices, (columns, 0));
        let values = Values::decoded(&values, Element::F64.little_endian());
        let stored = StoredCsr { columns, indptr, indices, values, element: Element::F64 };
        let file = SparseFile::new("rows".as_ref(), stored).unwrap();
        Matrix::Sparse(SparseRows::join(vec![file]).unwrap())
    }

    /// The lists of all hosts, combined.
    fn combined(matrix: &Matrix, selection: Selection, hosts: usize) -> Found {
        let all = 0..matrix.rows();
        let mut found: Found = all.clone().map(|row| (row, Vec::new())).collect();
        for rank in 0..hosts {
            let rows = trainyard_toolkit::split::row_range(rank, hosts, matrix.rows() as u64);
            let search = Search {
                matrix,
                selection,
                rows: rows.start as usize..rows.end as usize,
                others: all.clone(),
                stop: &AtomicBool::new(false),
                done: &|_| {},
            };
            let mut last = 0;
            let take = |row: usize, neighbours: &[Neighbour]| {
                assert!(row >= last);
                last = row;
                for neighbour in neighbours {
                    found[row].1.push(*neighbour);
                    if selection.top_k.is_none() {
                        found[neighbour.column as usize]
                            .1
                            .push(Neighbour { column: row as u32, ..*neighbour });
                    }
                }
                Ok::<(), ()>(())
            };
            search.run_symmetric((rank, hosts), take).unwrap();
        }
        for (_, list) in &mut found {
            list.sort_by(Neighbour::rank);
            list.truncate(selection.top_k.unwrap_or(usize::MAX));
        }
        found
    }

    /// The pairs of a host by the way that is taken first, and by that for too many pairs: rows, lower first, and bits.
    fn pairs_of_host(
        matrix: &Matrix,
        selection: Selection,
        (rank, hosts): (usize, usize),
    ) -> [Vec<(usize, usize, u32)>; 2] {
        let (all, stop) = (0..matrix.rows(), AtomicBool::new(false));
        let search = Search { matrix, selection, rows: all.clone(), others: all, stop: &stop, done: &|_| {} };
        let mut found = [Vec::new(), Vec::new()];
        let [first, in_order] = &mut found;
        let taken = |found: &mut Vec<_>, row: usize, neighbours: &[Neighbour]| {
            found.extend(neighbours.iter().map(|neighbour| {
                let column = neighbour.column as usize;
                (row.min(column), row.max(column), neighbour.similarity.to_bits())
            }));
            Ok::<(), ()>(())
        };
        search.run_symmetric((rank, hosts), |row, list| taken(first, row, list)).unwrap();
        let share = Share::of_pairs(rank, hosts, matrix.rows()).once();
        assert!(search.can_keep_lists(&share));
        let take = |row: usize, list: &[Neighbour]| taken(in_order, row, list);
        match matrix {
            Matrix::Dense(rows) => {
                let (margin, kernel) = (search.margin().unwrap(), Kernel::available()[0]);
                screen::Screen::new(&search, &share, rows, (margin, kernel)).run_in_order(take).unwrap();
            }
            Matrix::Sparse(_) => search.run_unscreened(&share, take).unwrap(),
        }
        found.iter_mut().for_each(|pairs| pairs.sort_unstable());
        found
    }

    fn plain(matrix: &Matrix, selection: Selection) -> Found {
        let stop = AtomicBool::new(false);
        let (rows, others) = (0..matrix.rows(), 0..matrix.rows());
        let search = Search { matrix, selection, rows, others, stop: &stop, done: &|_| {} };
        let mut plain = Vec::new();
        let share = Share::of_rows(search.rows.clone(), search.others.clone());
        let take = |row: usize, neighbours: &[Neighbour]| {
            plain.push((row, neighbours.to_vec()));
            Ok::<(), ()>(())
        };
        search.run_unscreened(&share, take).unwrap();
        plain
    }

    fn screened(matrix: &Matrix, selection: Selection, rows: Range<usize>) -> Found {
        let stop = AtomicBool::new(false);
        let others = 0..matrix.rows();
        let search = Search { matrix, selection, rows, others, stop: &stop, done: &|_| {} };
        let mut found = Vec::new();
        let take = |row: usize, neighbours: &[Neighbour]| {
            found.push((row, neighbours.to_vec()));
            Ok::<(), ()>(())
        };
        search.run(take).unwrap();
        found
    }

    /// Rows of which most entries are zero: some columns are in most rows, most are in few.
    fn thinned(mut rows: Vec<Vec<f64>>, signs: bool) -> Vec<Vec<f64>> {
        for (row, values) in rows.iter_mut().enumerate() {
            for (column, value) in values.iter_mut().enumerate() {
                if !(row * 31 + column * 17 + row * column).is_multiple_of(column + 1) {
                    *value = 0.0;
                }
                *value = if signs { *value } else { value.abs() };
            }
        }
        rows
    }

    /// Was once met as if the first piece were all: pairs of later pieces were missing, and those of the whole block
    /// with others.
    #[test]
    fn a_sparse_block_that_meets_itself_in_pieces_finds_all_pairs() {
        let row = |row: usize| {
            let mut values = vec![0.0; 700];
            // Three rows each that are alike, far away from each other.
            (0..4).for_each(|at| {
                values[(row % 3500 * (at + 1) + 7 * at) % 700] = 1.0 + (row % 3500 % (at + 5)) as f64
            });
            values
        };
        let matrix = sparse(&(0..10_500).map(row).collect::<Vec<_>>());
        let pool = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        for threshold in [0.95, 0.3] {
            let selection = Selection { top_k: Some(3), threshold: Some(threshold) };
            let expected = pool(2).install(|| plain(&matrix, selection));
            for threads in [1, 2, 4] {
                let found = pool(threads).install(|| screened(&matrix, selection, 0..10_500));
                assert!(found == expected, "threshold {threshold}, {threads} threads");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn signatures_and_sums_find_the_same_sparse_rows(
            seed in any::<u64>(),
            (count, columns, clusters) in (2usize..500, 1usize..60, 1u64..60),
            noise in prop::sample::select(vec![0.0, 1e-16, 1e-8, 1e-3, 0.1, 0.4]),
            top_k in prop::option::of(1usize..20),
            threshold in 0.5..=1.0f32,
            signs in any::<bool>(),
        ) {
            let selection = Selection { top_k, threshold: Some(threshold) };
            let matrix = sparse(&thinned(clustered(seed, count, columns, clusters, noise), signs));
            let expected = plain(&matrix, selection);
            let Matrix::Sparse(rows) = &matrix else { unreachable!() };
            let search = Search {
                matrix: &matrix,
                selection,
                rows: 0..count,
                others: 0..count,
                stop: &AtomicBool::new(false),
                done: &|_| {},
            };
            let share = Share::of_rows(0..count, 0..count);
            for wanted in [true, false] {
                let margin = search.margin().unwrap();
                let screen = sparse::SparseScreen::new(&search, &share, rows, margin).by_signatures(wanted);
                let mut found = Vec::new();
                let take = |row: usize, neighbours: &[Neighbour]| {
                    found.push((row, neighbours.to_vec()));
                    Ok::<(), ()>(())
                };
                screen.run(take).unwrap();
                prop_assert_eq!(&found, &expected, "by signatures: {}", wanted);
            }
        }

        #[test]
        fn sharing_out_pairs_changes_no_bit_of_the_result_dense_or_sparse(
            seed in any::<u64>(),
            count in 1usize..400,
            columns in 1usize..60,
            clusters in 1u64..60,
            noise in prop::sample::select(vec![0.0, 1e-16, 1e-8, 1e-3, 0.3, 1.0]),
            top_k in prop::option::of(1usize..20),
            threshold in prop::option::of(0.001..=1.0f32),
            (hosts, threads, signs) in (1usize..14, 1usize..5, any::<bool>()),
        ) {
            let selection = Selection { top_k: if threshold.is_none() { top_k.or(Some(3)) } else { top_k }, threshold };
            let rows = clustered(seed, count, columns, clusters, noise);
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            for matrix in [dense(&rows), sparse(&thinned(rows.clone(), signs))] {
                let expected = plain(&matrix, selection);
                let own = count / 3..count - count / 4;
                let found = pool.install(|| screened(&matrix, selection, own.clone()));
                prop_assert_eq!(&found, &expected[own].to_vec());
                let whole = Search {
                    matrix: &matrix,
                    selection,
                    rows: 0..count,
                    others: 0..count,
                    stop: &AtomicBool::new(false),
                    done: &|_| {},
                };
                if whole.can_be_symmetric(hosts) {
                    prop_assert_eq!(&pool.install(|| combined(&matrix, selection, hosts)), &expected);
                    for rank in (0..hosts).filter(|_| top_k.is_none() && threshold.is_some()) {
                        let [first, in_order] = pool.install(|| pairs_of_host(&matrix, selection, (rank, hosts)));
                        prop_assert_eq!(first, in_order, "host {} of {}", rank, hosts);
                    }
                }
            }
        }
    }

    #[test]
    fn a_stop_ends_the_search_while_lists_are_handed_over() {
        let matrix = dense(&clustered(3, 2000, 24, 50, 0.3));
        let stop = AtomicBool::new(false);
        let selection = Selection { top_k: Some(5), threshold: None };
        let (rows, others) = (0..2000, 0..2000);
        let search = Search { matrix: &matrix, selection, rows, others, stop: &stop, done: &|_| {} };
        let mut taken = 0;
        let take = |_: usize, _: &[Neighbour]| {
            taken += 1;
            stop.store(true, Ordering::Relaxed);
            Ok::<(), ()>(())
        };
        assert!(matches!(search.run(take), Err(Ended::Stopped)));
        assert!((1..2000).contains(&taken), "{taken}");
    }

    #[test]
    fn rows_that_tie_within_the_margin_by_the_thousand_are_told_apart() {
        for noise in [0.0, 1e-9, 1e-6] {
            let matrix = dense(&clustered(5, 3000, 24, 1, noise));
            let (plain, screened) = results(&matrix, Selection { top_k: Some(10), threshold: None }, 0..3000);
            for (kernel, found) in screened {
                assert!(found == plain, "{kernel:?}, noise {noise}");
            }
        }
    }
}
