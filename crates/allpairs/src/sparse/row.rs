//! One sparse row, and the arrays that rows lie in: each number in as few bytes as hold it.

use crate::element::Element;
use rayon::prelude::*;
use std::ops::Range;

/// Numbers that 16 bits tell apart.
const SHORT_NUMBERS: u64 = 1 << 16;

/// Columns of the entries of many rows.
#[derive(Debug)]
pub(crate) enum Columns {
    /// For up to 2¹⁶ columns.
    Short(Vec<u16>),
    /// For more.
    Long(Vec<u32>),
}

/// Values of the entries of many rows.
#[derive(Debug)]
pub(crate) enum Values {
    /// Those that are stored as float32.
    Short(Vec<f32>),
    /// All others.
    Long(Vec<f64>),
}

/// The entries of one row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row<'a> {
    columns: RowColumns<'a>,
    values: RowValues<'a>,
}

#[derive(Debug, Clone, Copy)]
enum RowColumns<'a> {
    Short(&'a [u16]),
    Long(&'a [u32]),
}

#[derive(Debug, Clone, Copy)]
enum RowValues<'a> {
    Short(&'a [f32]),
    Long(&'a [f64]),
}

/// A column as it is kept.
pub(crate) trait Column: Copy + Default + Ord + Into<u32> + Send + Sync {
    /// The lowest bits of a number, which are all of it where columns are as few as that.
    fn cut(number: u32) -> Self;
}

impl Column for u16 {
    #[inline]
    fn cut(number: u32) -> Self {
        number as Self
    }
}

impl Column for u32 {
    #[inline]
    fn cut(number: u32) -> Self {
        number
    }
}

/// Does something with columns, however they are kept.
macro_rules! with_columns {
    ($columns:expr, $each:ident => $done:expr) => {
        match $columns {
            $crate::sparse::Columns::Short($each) => $done,
            $crate::sparse::Columns::Long($each) => $done,
        }
    };
}

pub(super) use with_columns;

impl Columns {
    /// Whether 16 bits are enough for columns below this width.
    pub(crate) fn are_short(width: u64) -> bool {
        width <= SHORT_NUMBERS
    }

    /// The column of one entry.
    pub(super) fn at(&self, entry: usize) -> u32 {
        match self {
            Self::Short(columns) => columns[entry].into(),
            Self::Long(columns) => columns[entry],
        }
    }

    /// Adds other columns; all take 32 bits if some do.
    pub(super) fn append(&mut self, others: Self) {
        *self = match (std::mem::replace(self, Self::Short(Vec::new())), others) {
            (one, others) if one.len() == 0 => others,
            (Self::Short(mut one), Self::Short(others)) => {
                one.extend(others);
                Self::Short(one)
            }
            (one, others) => {
                let mut one = one.into_long();
                one.extend(others.into_long());
                Self::Long(one)
            }
        };
    }

    fn into_long(self) -> Vec<u32> {
        match self {
            Self::Short(columns) => columns.into_iter().map(u32::from).collect(),
            Self::Long(columns) => columns,
        }
    }

    pub(super) fn of<'a>(&'a self, range: Range<usize>, values: &'a Values) -> Row<'a> {
        let columns = match self {
            Self::Short(columns) => RowColumns::Short(&columns[range.clone()]),
            Self::Long(columns) => RowColumns::Long(&columns[range.clone()]),
        };
        Row { columns, values: values.of(range) }
    }

    pub(crate) fn len(&self) -> usize {
        with_columns!(self, columns => columns.len())
    }

    /// Columns below `end`, those of one piece after the other.
    pub(crate) fn new(pieces: &[Vec<u32>], end: usize) -> Self {
        if Self::are_short(end as u64) {
            return Self::Short(joined(pieces, |column| column as u16));
        }
        Self::Long(joined(pieces, |column| column))
    }

    /// Hands over columns, each by itself.
    #[inline]
    pub(crate) fn for_each(&self, range: Range<usize>, mut take: impl FnMut(usize)) {
        match self {
            Self::Short(columns) => columns[range].iter().for_each(|column| take(usize::from(*column))),
            Self::Long(columns) => columns[range].iter().for_each(|column| take(*column as usize)),
        }
    }
}

impl Values {
    /// Whether numbers of this type are kept in 32 bits.
    pub(crate) fn are_short(element: Element) -> bool {
        element == Element::F32
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Short(values) => values.len(),
            Self::Long(values) => values.len(),
        }
    }

    fn of(&self, range: Range<usize>) -> RowValues<'_> {
        match self {
            Self::Short(values) => RowValues::Short(&values[range]),
            Self::Long(values) => RowValues::Long(&values[range]),
        }
    }

    pub(super) fn into_long(self) -> Vec<f64> {
        match self {
            Self::Short(values) => values.into_iter().map(f64::from).collect(),
            Self::Long(values) => values,
        }
    }

    /// Adds other values; all become float64 if some are.
    pub(super) fn append(&mut self, others: Self) {
        *self = match (std::mem::replace(self, Self::Short(Vec::new())), others) {
            (one, others) if one.len() == 0 => others,
            (Self::Short(mut one), Self::Short(others)) => {
                one.extend(others);
                Self::Short(one)
            }
            (one, others) => {
                let mut one = one.into_long();
                one.extend(others.into_long());
                Self::Long(one)
            }
        };
    }
}

impl<'a> Row<'a> {
    pub(crate) fn len(self) -> usize {
        match self.columns {
            RowColumns::Short(columns) => columns.len(),
            RowColumns::Long(columns) => columns.len(),
        }
    }

    /// Dot product with a row that is spread out, added up in some order.
    #[inline]
    pub(super) fn dot_in_any_order(self, spread: &[f64]) -> f64 {
        match (self.columns, self.values) {
            (RowColumns::Short(columns), RowValues::Short(values)) => dot(columns, values, spread),
            (RowColumns::Short(columns), RowValues::Long(values)) => dot(columns, values, spread),
            (RowColumns::Long(columns), RowValues::Short(values)) => dot(columns, values, spread),
            (RowColumns::Long(columns), RowValues::Long(values)) => dot(columns, values, spread),
        }
    }

    /// Hands over column and value of each entry, in the order of the columns as the file numbers them.
    #[inline]
    pub(crate) fn for_each(self, take: impl FnMut(usize, f64)) {
        match (self.columns, self.values) {
            (RowColumns::Short(columns), RowValues::Short(values)) => each(columns, values, take),
            (RowColumns::Short(columns), RowValues::Long(values)) => each(columns, values, take),
            (RowColumns::Long(columns), RowValues::Short(values)) => each(columns, values, take),
            (RowColumns::Long(columns), RowValues::Long(values)) => each(columns, values, take),
        }
    }
}

/// Products with a row that is spread out, added up with accumulators that take turns.
#[inline]
fn dot<C: Copy + Into<u32>, V: Copy + Into<f64>>(columns: &[C], values: &[V], spread: &[f64]) -> f64 {
    let product = |column: C, value: V| value.into() * spread[column.into() as usize];
    let ((columns, last), (values, last_values)) = (columns.as_chunks::<4>(), values.as_chunks::<4>());
    let mut sums = [0.0; 4];
    for (columns, values) in columns.iter().zip(values) {
        sums = std::array::from_fn(|at| sums[at] + product(columns[at], values[at]));
    }
    let last = last.iter().zip(last_values).map(|(column, value)| product(*column, *value));
    sums.iter().sum::<f64>() + last.sum::<f64>()
}

/// All pieces as one, written by all threads.
fn joined<T: Copy + Default + Send>(pieces: &[Vec<u32>], number: impl Fn(u32) -> T + Sync) -> Vec<T> {
    let mut all = vec![T::default(); pieces.iter().map(Vec::len).sum()];
    let mut rest = all.as_mut_slice();
    let places: Vec<&mut [T]> = pieces
        .iter()
        .map(|piece| {
            let (place, behind) = std::mem::take(&mut rest).split_at_mut(piece.len());
            rest = behind;
            place
        })
        .collect();
    places.into_par_iter().zip(pieces).for_each(|(place, piece)| {
        place.iter_mut().zip(piece).for_each(|(out, column)| *out = number(*column));
    });
    all
}

#[inline]
fn each<C: Copy + Into<u32>, V: Copy + Into<f64>>(
    columns: &[C],
    values: &[V],
    mut take: impl FnMut(usize, f64),
) {
    columns.iter().zip(values).for_each(|(column, value)| take((*column).into() as usize, (*value).into()));
}
