//! Sparse rows in blocks: most pairs are told apart by bounds, and whoever may matter is scored as defined.
//!
//! The rows of a block are turned by columns, so that one row of the other side meets all rows of the block that share a
//! column with it. By *sums*, it adds its products to those of these rows, whose sums fit the first cache, and a bound
//! stands for the frequent columns. By *signatures*, for high thresholds, it meets the rows of few columns, compares a
//! bound at once, and adds up the products of the few pairs that pass.

use super::frequent::{COMPARED, Frequent, Plan};
use super::prefix::Prefixes;
use super::scorer::SparseScorer;
use super::signature::{LongSignature, unsigned};
use super::turned::{Kept, Turned};
use super::weights::Weights;
use crate::machine::{Limits, SIGNATURES_TOGETHER, Vectors};
use crate::neighbours::Neighbour;
use crate::quantised::Margin;
use crate::search::blocks::{Block, Board, Found, Hit, Parts, Side, Worker};
use crate::search::candidates::{Bench, Scorer};
use crate::search::share::Share;
use crate::search::{Ended, Search};
use crate::settings::Selection;
use crate::sparse::SparseRows;

/// Rows of a block: their sums take a first-level cache, or most of it.
const BLOCK_ROWS: usize = 8192;

/// Rows of a block that are known by signatures: these take a second-level cache.
const SIGNATURE_ROWS: usize = 1 << 15;

/// Blocks for each thread, at least: they meet in pieces, so that few are enough to even out their times.
const BLOCKS_OF_THREAD: usize = 2;

/// Pairs are handed over once there are so many.
const HITS: usize = 2048;

/// With a lower threshold or none, most rows soon have as many neighbours as are asked for.
const LOW_THRESHOLD: f32 = 0.25;

/// Rows of the other side between two looks at the stop flag.
const STOP_STEP: usize = 256;

/// A search over a sparse matrix.
pub(in crate::search) struct SparseScreen<'a> {
    pub(super) board: Board<'a>,
    pub(super) share: &'a Share,
    pub(super) matrix: &'a SparseRows,
    weights: Weights<'a>,
    way: Way,
    vectors: Vectors,
}

/// How pairs are told apart.
enum Way {
    Signatures(Prefixes),
    Sums(Frequent),
}

impl Way {
    fn choose(weights: Weights, selection: &Selection) -> Self {
        let of_prefixes = Prefixes::cost(weights, selection.threshold).unwrap_or(f64::INFINITY);
        // Sums are compared for every pair, which alone takes longer.
        if of_prefixes > COMPARED {
            let plan = Plan::choose(weights, selection);
            if of_prefixes >= plan.cost {
                return Self::Sums(Frequent::new(weights, plan));
            }
        }
        Self::signatures(weights, selection)
    }

    /// By signatures, if that can be.
    fn signatures(weights: Weights, selection: &Selection) -> Self {
        match Prefixes::new(weights, selection.threshold) {
            Some(prefixes) => Self::Signatures(prefixes),
            None => Self::Sums(Frequent::new(weights, Plan::choose(weights, selection))),
        }
    }

    /// Hands over what a row is looked for by; weights only where they matter.
    #[inline]
    fn front(&self, weights: Weights, row: usize, mut take: impl FnMut(usize, f32)) {
        match self {
            Self::Signatures(prefixes) => prefixes.of_row(row, |column| take(column, 0.0)),
            Self::Sums(frequent) => weights.front(row, frequent.first, take),
        }
    }
}

/// Whether blocks of so many entries can be screened.
pub(in crate::search) fn can_turn(entries: usize, matrix: &SparseRows) -> bool {
    Turned::can_hold(entries, matrix.used_columns())
}

impl<'a> SparseScreen<'a> {
    pub(in crate::search) fn new(
        search: &'a Search<'a>,
        share: &'a Share,
        matrix: &'a SparseRows,
        margin: Margin,
    ) -> Self {
        let weights = Weights { matrix };
        let way = Way::choose(weights, &search.selection);
        // Pairs without a common column are never looked at.
        let board = Board::new(search, margin, margin.positive());
        Self { board, share, matrix, weights, way, vectors: Vectors::best() }
    }

    /// The same by signatures, if it can be, or by sums, whatever is cheaper.
    #[cfg(test)]
    pub(in crate::search) fn by_signatures(mut self, wanted: bool) -> Self {
        let selection = &self.board.search.selection;
        self.way = if wanted {
            Way::signatures(self.weights, selection)
        } else {
            Way::Sums(Frequent::new(self.weights, Plan::choose(self.weights, selection)))
        };
        self
    }

    /// The same with other vectors.
    #[cfg(test)]
    pub(in crate::search) fn compared_by(mut self, vectors: Vectors) -> Self {
        self.vectors = vectors;
        self
    }

    /// Hands the neighbours of each row to `take`, rows in order.
    pub(in crate::search) fn run<E: Send>(
        self,
        mut take: impl FnMut(usize, &[Neighbour]) -> Result<(), E> + Send,
    ) -> Result<(), Ended<E>> {
        let search = self.board.search;
        let of_block = self.matrix.most_entries(self.block_rows());
        if !can_turn(of_block, self.matrix) || !search.can_keep_lists(self.share) {
            return search.run_unscreened(self.share, take);
        }
        let new_block = |rows| Block::new(rows, &self.board, |row| self.matrix.norms[row] > 0.0);
        let blocks = self.board.compare(self.share, self.block_rows(), &new_block, &|| Room::new(&self));
        // What pairs are told apart by takes as much memory as writing the result does, and nothing needs it any more.
        let Self { board, share, matrix, way, .. } = self;
        drop(way);
        match blocks {
            _ if search.stopped() => Err(Ended::Stopped),
            Some(blocks) => board.hand_over(
                blocks,
                &Parts::whole(),
                &|| SparseScorer::new((&board, share, matrix)),
                &mut take,
            ),
            None => search.run_unscreened(share, take),
        }
    }

    /// How many rows are to be scored for a row with this floor when it meets a block: as many as are wanted, if it has
    /// no list yet. Else its first block would be scored whole.
    fn scored_first(&self, floor: f32) -> Option<usize> {
        let Selection { top_k, threshold } = self.board.search.selection;
        let has_none = floor <= Margin::short(self.board.first_floor);
        top_k.filter(|_| threshold.unwrap_or(0.0) < LOW_THRESHOLD && has_none)
    }

    /// Long lists are walked through faster, but all threads need blocks.
    fn block_rows(&self) -> usize {
        let most = match self.way {
            Way::Signatures(_) => SIGNATURE_ROWS,
            Way::Sums(_) => BLOCK_ROWS,
        };
        let even = self.share.row_count().div_ceil(BLOCKS_OF_THREAD * rayon::current_num_threads());
        even.clamp(BLOCK_ROWS, most)
    }
}

/// As many sums as places of 16 bits count, so that none needs a check; each vector of them in one line of the cache.
#[repr(align(64))]
struct Sums([f32; 1 << 16]);

/// One thread's room to work in.
struct Room<'a> {
    screen: &'a SparseScreen<'a>,
    scorer: SparseScorer<'a>,
    bench: Bench,
    turned: Turned,
    /// First row of the block that is turned.
    loaded: Option<usize>,
    means: Means,
    floors: Vec<i32>,
    /// Places of rows of the block that may reach a floor.
    passed: Vec<u16>,
    hits: Vec<Hit>,
    mirrored_hits: Vec<Hit>,
}

/// What is needed besides for one way or the other.
enum Means {
    Signatures,
    Sums {
        /// The sums of a block's rows; all zero between two rows of the other side.
        sums: Box<Sums>,
        limits: Limits,
        /// Signatures of the block's rows in frequent columns, in their order; none if no column is frequent.
        signatures: Vec<LongSignature>,
        above: Vec<(u16, f32)>,
        promising: Vec<(f32, u16)>,
    },
}

impl<'a> Room<'a> {
    fn new(screen: &'a SparseScreen<'a>) -> Self {
        let means = match screen.way {
            Way::Signatures(_) => Means::Signatures,
            Way::Sums(_) => Means::Sums {
                sums: Box::new(Sums([0.0; 1 << 16])),
                limits: Limits::default(),
                signatures: Vec::new(),
                above: Vec::new(),
                promising: Vec::new(),
            },
        };
        Self {
            screen,
            scorer: SparseScorer::new((&screen.board, screen.share, screen.matrix)),
            bench: Bench::new(screen.vectors),
            turned: Turned::default(),
            loaded: None,
            means,
            floors: Vec::new(),
            passed: Vec::new(),
            hits: Vec::new(),
            mirrored_hits: Vec::new(),
        }
    }

    /// Loads the floors of a block, if all of them are compared with sums.
    fn load_floors(&mut self, block: &Block) {
        if matches!(self.means, Means::Signatures) {
            return;
        }
        self.floors.resize(block.rows.len(), i32::MAX);
        block.load_floors(0, &mut self.floors);
        if let Means::Sums { limits, .. } = &mut self.means {
            let order = self.turned.order.iter();
            limits.set_floors(order.map(|at| Margin::short(self.floors[usize::from(*at)])));
        }
    }

    /// Compares all rows of the block with one other row.
    fn compare(&mut self, block: &Block, other: usize, side: Side) {
        let mut floor = [i32::MAX];
        if let Some(mirror) = side.mirror {
            mirror.load_floors(other - mirror.rows.start, &mut floor);
        }
        let mut floor = Margin::short(floor[0]);
        let row = |at: u16| block.rows.start + usize::from(self.turned.order[usize::from(at)]);
        // Within one block each pair is seen once, when the later one of both comes.
        let shown = self.turned.shown();
        let counts = |at: u16| usize::from(at) < shown && row(at) != other;
        self.passed.clear();
        match (&self.screen.way, &mut self.means) {
            (Way::Signatures(prefixes), Means::Signatures) => {
                sift(self.screen, (other, prefixes), (&self.turned, block.rows.start), &mut self.passed);
                let scorer = &mut self.scorer;
                let mut may_exceed = |row: usize| {
                    let floor = floor.min(floor_of(block, row - block.rows.start));
                    scorer.may_exceed(floor, (other, row))
                };
                self.passed.retain(|at| counts(*at) && may_exceed(row(*at)));
            }
            (Way::Sums(frequent), Means::Sums { sums, limits, signatures, above, promising }) => {
                above.clear();
                add_up(self.screen, (other, frequent), (&self.turned, &mut sums.0));
                let sums = &mut sums.0[..limits.len_of(shown)];
                if let Some(wanted) = self.screen.scored_first(floor).filter(|_| side.mirror.is_some()) {
                    limits.promising(sums, (frequent.rests[other], wanted), promising);
                    let rows = promising.iter().filter(|(_, at)| counts(*at)).map(|(_, at)| row(*at));
                    floor = raised(floor, (other, wanted), rows, &mut self.scorer);
                }
                self.screen.vectors.pass_sums(sums, limits, (frequent.rests[other], floor), above);
                above.retain(|(at, _)| counts(*at));
                keep_near(self.screen, (other, frequent, floor), (limits, signatures), above);
                self.passed.extend(above.iter().map(|(at, _)| *at));
            }
            // Room is made for the way that was chosen.
            _ => {}
        }
        for at in 0..self.passed.len() {
            let place = self.turned.order[usize::from(self.passed[at])];
            let floors = (floor_of(block, usize::from(place)), floor);
            self.note(block.rows.start + usize::from(place), other, floors);
        }
    }

    /// The row of the block at this place in their order.
    fn row(&self, block: &Block, place: usize) -> usize {
        block.rows.start + usize::from(self.turned.order[place])
    }

    fn show_next(&mut self, block: &Block, place: usize) {
        let (screen, row) = (self.screen, self.row(block, place));
        self.turned.show_next(|take| screen.way.front(screen.weights, row, take));
    }

    fn note(&mut self, row: usize, other: usize, floors: (f32, f32)) {
        let similarity = self.scorer.score(other, row);
        let found = Found::Score(similarity);
        if similarity > floors.0 {
            self.hits.push(Hit { row: row as u32, column: other as u32, found });
        }
        if similarity > floors.1 {
            self.mirrored_hits.push(Hit { row: other as u32, column: row as u32, found });
        }
    }

    fn hand_hits(&mut self, block: &Block, mirror: Option<&Block>) {
        let board = &self.screen.board;
        block.take(&mut self.hits, board, &mut self.bench, &mut self.scorer);
        if let Some(mirror) = mirror {
            mirror.take(&mut self.mirrored_hits, board, &mut self.bench, &mut self.scorer);
        }
    }
}

/// The floor of a row of the block at the moment.
fn floor_of(block: &Block, at: usize) -> f32 {
    let mut floor = [i32::MAX];
    block.load_floors(at, &mut floor);
    Margin::short(floor[0])
}

/// Passes the rows that share a column of their prefixes and may reach the threshold by their signatures.
fn sift(
    screen: &SparseScreen,
    (other, prefixes): (usize, &Prefixes),
    (turned, first): (&Turned, usize),
    passed: &mut Vec<u16>,
) {
    let one = unsigned(&prefixes.signatures.rows()[other]);
    prefixes.of_row(other, |column| {
        let places = (turned.places(column), &prefixes.signatures, first);
        screen.vectors.pass_rows((&one, prefixes.least), places, passed);
    });
    passed.sort_unstable();
    passed.dedup();
}

/// Adds the products of a row to the sums of all rows of the block.
fn add_up(
    screen: &SparseScreen,
    (other, frequent): (usize, &Frequent),
    (turned, sums): (&Turned, &mut [f32; 1 << 16]),
) {
    screen.weights.front(other, frequent.first, |column, weight| turned.add(column, weight, sums));
}

/// The floor of a row, raised to what as many rows as are wanted have been found to score at least.
fn raised(
    floor: f32,
    (other, wanted): (usize, usize),
    rows: impl Iterator<Item = usize>,
    scorer: &mut SparseScorer,
) -> f32 {
    let (mut count, mut least) = (0, f32::INFINITY);
    for row in rows {
        least = least.min(scorer.score(other, row));
        count += 1;
    }
    if count < wanted { floor } else { floor.max(Margin::short(scorer.margin().below(least))) }
}

/// Keeps the rows that may reach a floor by their sums and their signatures in frequent columns.
fn keep_near(
    screen: &SparseScreen,
    (other, frequent, floor): (usize, &Frequent, f32),
    (limits, signatures): (&Limits, &[LongSignature]),
    above: &mut Vec<(u16, f32)>,
) {
    let unit = frequent.rests[other] * Frequent::OF_PRODUCT;
    let Some(one) = frequent.signatures.get(other).map(unsigned) else { return };
    above.retain(|(at, sum)| {
        let at = usize::from(*at);
        let product = screen.vectors.product(&one, &signatures[at]);
        sum + unit * limits.rest(at) * product as f32 > limits.floor(at).min(floor)
    });
}

impl Worker for Room<'_> {
    fn load(&mut self, block: &Block) {
        if self.loaded == Some(block.rows.start) {
            return;
        }
        let screen = self.screen;
        // A block has fewer rows than 16 bits count.
        self.turned.order.clear();
        self.turned.order.extend(0..block.rows.len() as u16);
        let kept = match (&screen.way, &mut self.means) {
            (Way::Signatures(_), _) => Kept::Places(SIGNATURES_TOGETHER),
            (Way::Sums(frequent), Means::Sums { limits, signatures, .. }) => {
                let rests = &frequent.rests[block.rows.clone()];
                let rest = |at: &u16| rests[usize::from(*at)];
                self.turned.order.sort_unstable_by(|a, b| rest(a).total_cmp(&rest(b)));
                limits.set_rests(self.turned.order.iter().map(rest));
                signatures.clear();
                if let Some(of_block) = frequent.signatures.get(block.rows.clone()) {
                    signatures.extend(self.turned.order.iter().map(|at| of_block[usize::from(*at)]));
                }
                Kept::Weights
            }
            _ => Kept::Weights,
        };
        let front =
            |row: usize, take: &mut dyn FnMut(usize, f32)| screen.way.front(screen.weights, row, take);
        self.turned.turn(screen.weights.columns(), block.rows.clone(), (front, kept));
        self.loaded = Some(block.rows.start);
    }

    fn meet(&mut self, block: &Block, side: Side) {
        let (screen, board) = (self.screen, &self.screen.board);
        self.load_floors(block);
        let mut places = 0..side.rows().len();
        if side.later_only {
            // Of a block that meets itself, a side is a piece of its places, not of its rows.
            places = side.first - block.rows.start..side.end - block.rows.start;
            self.turned.hide_all();
            (0..places.start).for_each(|place| self.show_next(block, place));
        }
        for (step, place) in places.enumerate() {
            if step.is_multiple_of(STOP_STEP) && (board.search.stopped() || board.has_too_many(0.0)) {
                return;
            }
            let other = if side.later_only { self.row(block, place) } else { side.first + place };
            if screen.matrix.norms[other] > 0.0 {
                self.compare(block, other, side);
            }
            if side.later_only {
                self.show_next(block, place);
            }
            if self.hits.len().max(self.mirrored_hits.len()) >= HITS {
                self.hand_hits(block, side.mirror);
                self.load_floors(block);
            }
        }
        self.hand_hits(block, side.mirror);
        if side.later_only {
            self.turned.show_all();
        }
    }
}
