//! Whether the hosts of a job share out pairs instead of rows, and what their parts say about it.
//!
//! A score serves both of its rows, so together the hosts have half of the work if each pair belongs to one of them
//! only. Then a row's neighbours are found on several hosts, and the merge has to combine lists: a part says so in
//! the metadata of its file.

use crate::matrix::Loaded;
use crate::search::Search;
use crate::settings::{Listing, Measure, PairFormat, Selection};
use crate::train::PairsInput;
use serde::Serialize;
use std::sync::atomic::AtomicBool;

/// Key of the metadata in the file of a part. The merge looks for the same.
const KEY: &str = "trainyard.partial";

/// Goes up whenever pairs are dealt out otherwise: parts of two versions would lack pairs and have others twice.
const VERSION: u32 = 2;

/// Hosts up to which lists of the best are combined by default: the merge reads about 1.25·√N·n·k pairs, and what each
/// host saves falls with N. `docs/design/allpairs.md` reckons from where on the one takes longer than the other.
const MOST_HOSTS: usize = 64;

/// What a part holds: for each row the best among the pairs of one host, or each pair once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Partial {
    version: u32,
    /// Neighbours that a combined list has; all of them if there is none.
    top_k: Option<usize>,
    /// Whether a pair is there for one of its rows only.
    once: bool,
    /// Number of the host, from 0.
    pub(crate) host: usize,
    pub(crate) hosts: usize,
}

impl Partial {
    /// Metadata for the file of the part.
    pub(crate) fn metadata(&self) -> (String, Option<String>) {
        // Numbers and truth values always have a form in JSON.
        (KEY.to_owned(), serde_json::to_string(self).ok())
    }
}

/// Decides; every host of a job comes to the same answer. Notes why pairs are not shared out though this was asked
/// for.
pub(crate) fn choose(
    input: &PairsInput,
    loaded: &Loaded,
    (selection, listing, mutual): (Selection, Listing, bool),
) -> Option<Partial> {
    let (host, hosts) = input.share;
    if hosts == 1 || input.settings.symmetric == Some(false) {
        return None;
    }
    let obstacle = obstacle(input, loaded, (selection, listing, mutual));
    if let (Some(reason), Some(true)) = (obstacle, input.settings.symmetric) {
        (input.note)(&format!("pairs are not shared out between instances: {reason}"));
    }
    let partial =
        Partial { version: VERSION, top_k: selection.top_k, once: selection.top_k.is_none(), host, hosts };
    obstacle.is_none().then_some(partial)
}

fn obstacle(
    input: &PairsInput,
    loaded: &Loaded,
    (selection, listing, mutual): (Selection, Listing, bool),
) -> Option<&'static str> {
    let settings = input.settings;
    let search = Search {
        matrix: &loaded.matrix,
        selection,
        rows: 0..loaded.matrix.rows(),
        others: 0..loaded.matrix.rows(),
        stop: &AtomicBool::new(false),
        done: &|_| {},
    };
    let by_default = settings.symmetric.is_none();
    let obstacles = [
        (loaded.query_rows > 0, "the rows of a query are not compared with one another"),
        (mutual, "`mutual` needs whole lists"),
        (listing == Listing::Once, "`pairs` is `once`"),
        (settings.measure == Measure::Distance, "`output` is `distance`"),
        (settings.format != PairFormat::Parquet, "`format` is not `parquet`"),
        (loaded.ids.is_some(), "the rows have ids"),
        (input.checkpoints.is_some(), "finished rows are kept as checkpoints"),
        (
            by_default && selection.top_k.is_some() && input.share.1 > MOST_HOSTS,
            "so many lists take long to combine",
        ),
        (!search.can_be_symmetric(input.share.1), "too many of the pairs are wanted"),
    ];
    obstacles.iter().find(|(is_there, _)| *is_there).map(|(_, reason)| *reason)
}
