//! Showing how a container image is brought here.

use std::collections::BTreeSet;
use std::io::{Write, stderr};
use std::sync::{Arc, Mutex, PoisonError};

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use trainyard_engine::image::{Progress, Step};
use trainyard_engine::prepare::ImageProgress;

use super::Form;

/// Of a digest, as many digits as Docker shows.
const DIGITS: usize = 12;

/// What shows it: nothing for programs, a line for each step of a layer, or one bar.
pub(crate) fn show(form: Form) -> ImageProgress {
    match form {
        Form::Json => Arc::new(|_| ()),
        Form::Lines => lines(),
        Form::Live => bar(),
    }
}

fn lines() -> ImageProgress {
    let begun = Mutex::new(BTreeSet::new());
    Arc::new(move |progress| {
        let text = text(&progress);
        if begun.lock().unwrap_or_else(PoisonError::into_inner).insert(text.clone()) {
            // Nobody may be there to read it.
            let _ = writeln!(stderr(), "{text} ({})", HumanBytes(progress.total));
        }
    })
}

fn bar() -> ImageProgress {
    let bar = ProgressBar::no_length();
    if let Ok(style) = ProgressStyle::with_template("{msg} {bytes} of {total_bytes}") {
        bar.set_style(style);
    }
    Arc::new(move |progress| {
        bar.set_message(text(&progress));
        bar.set_length(progress.total);
        bar.set_position(progress.done);
    })
}

fn text(progress: &Progress) -> String {
    let digits: String = progress.layer.trim_start_matches("sha256:").chars().take(DIGITS).collect();
    match progress.step {
        Step::Fetch => format!("image: fetching layer {digits}"),
        Step::Unpack => format!("image: unpacking layer {digits}"),
    }
}
