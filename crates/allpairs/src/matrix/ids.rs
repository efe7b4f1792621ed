//! Ids of rows: what a file calls its rows, carried through to the result in place of their numbers.

use crate::problem::FileProblem;
use arrow::array::{Array, ArrayRef, AsArray, Int64Array, LargeStringArray};
use arrow::compute::{CastOptions, cast_with_options, concat};
use arrow::datatypes::{DataType, Int64Type};
use arrow::error::ArrowError;
use std::sync::Arc;

/// The ids of rows, in their order.
#[derive(Debug, Clone)]
pub(crate) enum Ids {
    /// Whole numbers.
    Numbers(Int64Array),
    /// Anything else, as text.
    Texts(LargeStringArray),
}

impl Ids {
    /// The ids in a column: whole numbers if all are, else text.
    pub(crate) fn of_column(column: &ArrayRef) -> Result<Self, ArrowError> {
        let strict = CastOptions { safe: false, ..CastOptions::default() };
        if column.data_type().is_integer()
            && let Ok(numbers) = cast_with_options(column, &DataType::Int64, &strict)
        {
            return Ok(Self::Numbers(numbers.as_primitive::<Int64Type>().clone()));
        }
        let texts = cast_with_options(column, &DataType::LargeUtf8, &strict)?;
        Ok(Self::Texts(texts.as_string::<i64>().clone()))
    }

    /// The ids of texts: numbers if every one of them is written as a number would be.
    pub(crate) fn of_texts(texts: &[String]) -> Self {
        let number = |text: &String| text.parse::<i64>().ok().filter(|number| number.to_string() == *text);
        match texts.iter().map(number).collect::<Option<Vec<i64>>>() {
            Some(numbers) => Self::Numbers(numbers.into()),
            None => Self::Texts(LargeStringArray::from_iter_values(texts)),
        }
    }

    /// Joins the ids of several files; numbers become text if any of the others is.
    pub(crate) fn join(pieces: &[Self]) -> Result<Option<Self>, ArrowError> {
        let all_numbers = pieces.iter().all(|ids| matches!(ids, Self::Numbers(_)));
        let pieces: Vec<ArrayRef> = pieces
            .iter()
            .map(|ids| if all_numbers { Ok(ids.array()) } else { ids.texts() })
            .collect::<Result<_, _>>()?;
        let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
        if pieces.is_empty() {
            return Ok(None);
        }
        Self::of_column(&concat(&pieces)?).map(Some)
    }

    /// The first row without an id.
    pub(crate) fn first_missing(&self) -> Option<usize> {
        let array = self.array();
        (array.null_count() > 0).then(|| (0..array.len()).find(|row| array.is_null(*row))).flatten()
    }

    fn array(&self) -> ArrayRef {
        match self {
            Self::Numbers(numbers) => Arc::new(numbers.clone()),
            Self::Texts(texts) => Arc::new(texts.clone()),
        }
    }

    fn texts(&self) -> Result<ArrayRef, ArrowError> {
        arrow::compute::cast(&self.array(), &DataType::LargeUtf8)
    }
}

/// Which column holds the ids: the one that is asked for by name, else one that is called as ids are.
pub(crate) fn id_column(names: &[&str], asked: Option<&str>) -> Result<Option<usize>, FileProblem> {
    // What pandas calls the index of a table that has no name.
    const USUAL: [&str; 2] = ["id", "__index_level_0__"];
    let Some(asked) = asked else { return Ok(names.iter().position(|name| USUAL.contains(name))) };
    match names.iter().position(|name| *name == asked) {
        Some(at) => Ok(Some(at)),
        None => {
            let shown: Vec<String> = names.iter().take(20).map(|name| format!("`{name}`")).collect();
            Err(FileProblem::NoIdColumn { column: asked.to_owned(), names: shown.join(", ") })
        }
    }
}
