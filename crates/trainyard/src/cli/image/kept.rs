//! The images that are kept for jobs: those in the data folder, and those of files that a daemon was given.

use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use indicatif::{HumanBytes, HumanDuration};
use jiff::Timestamp;
use serde::Serialize;
use trainyard_engine::image::{
    Amount, Digest, ImageReference, ImageStore, LoadedImage, LoadedImages, RemoveLoadedError, StoredImage,
    Unused,
};

use crate::config::{Config, Flags};
use crate::exit::{Exit, Refused};
use crate::show::out;

/// So many digits of a digest are enough to tell images apart, and no fewer are taken for one.
const SHORT: usize = 12;

/// List the images that are kept for jobs
///
/// Those that are run without a daemon lie in the data folder. Images of files that Docker or Podman were given for a
/// job are listed too; others of theirs are theirs alone (docker image ls).
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  trainyard image ls\n  trainyard image ls --json | jq -r .name")]
pub(super) struct List {
    /// Print one JSON object a line for each image
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: Flags,
}

/// Remove images that are kept for jobs
///
/// Layers that another image needs stay. An image that a job uses is not removed.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  trainyard image rm team/fit:1\n  trainyard image rm docker-archive:fit.tar 0123456789ab"
)]
pub(super) struct Remove {
    /// Names as `trainyard image ls` shows them, or the first 12 or more digits of digests
    #[arg(value_name = "IMAGE", required = true)]
    kept: Vec<String>,
    #[command(flatten)]
    flags: Flags,
}

/// Remove images that no job uses from this machine
///
/// Layers that another image needs stay. An image that is needed again is brought here again. Images of files that
/// Docker or Podman were given for jobs are removed there too.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  trainyard image prune --older-than 30\n  trainyard image prune --dry-run"
)]
pub(super) struct Prune {
    /// Keep what was used within so many days
    #[arg(long, value_name = "DAYS", default_value_t = 0)]
    older_than: u32,
    /// Only say what would be removed
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    flags: Flags,
}

/// An image, wherever it is kept.
enum Kept {
    Stored(StoredImage),
    Loaded(LoadedImage),
}

/// What is shown of an image.
#[derive(Serialize)]
struct Shown<'a> {
    name: Option<&'a str>,
    names: &'a [String],
    digest: String,
    /// Bytes of its files, layers that it shares with others included; none where its daemon can't tell.
    size: Option<u64>,
    layers: Option<usize>,
    /// By the rules of RFC 3339.
    last_used: String,
    in_use: bool,
    /// Where the daemon listens that has it; none if it lies in the data folder.
    daemon: Option<&'a Path>,
}

impl Kept {
    fn digest(&self) -> Digest {
        match self {
            Self::Stored(image) => image.digest,
            Self::Loaded(image) => image.digest,
        }
    }

    fn names(&self) -> &[String] {
        match self {
            Self::Stored(image) => &image.names,
            Self::Loaded(image) => &image.names,
        }
    }

    fn used(&self) -> SystemTime {
        match self {
            Self::Stored(image) => image.used,
            Self::Loaded(image) => image.used,
        }
    }

    async fn shown(&self) -> anyhow::Result<Shown<'_>> {
        let (amount, in_use, daemon) = match self {
            Self::Stored(image) => {
                let amount = Amount { layers: image.layers.len(), bytes: image.layers.iter().sum() };
                (Some(amount), image.in_use, None)
            }
            // A daemon that does not answer now may do so later.
            Self::Loaded(image) => {
                (LoadedImages::amount(image).await.ok().flatten(), image.in_use, Some(image.socket.as_path()))
            }
        };
        Ok(Shown {
            name: self.names().first().map(String::as_str),
            names: self.names(),
            digest: self.digest().to_string(),
            size: amount.map(|amount| amount.bytes),
            layers: amount.map(|amount| amount.layers),
            last_used: Timestamp::try_from(self.used())?.to_string(),
            in_use,
            daemon,
        })
    }

    /// Whether a text of the command line means it.
    fn is_called(&self, text: &str) -> bool {
        let full = ImageReference::parse(text, &std::env::current_dir().unwrap_or_default());
        let full = full.map(|reference| reference.to_string());
        let digits = text.strip_prefix("sha256:").unwrap_or(text);
        self.names().iter().any(|name| name == text || full.as_ref().is_ok_and(|full| full == name))
            || digits.len() >= SHORT && self.digest().hex().starts_with(digits)
    }
}

/// What there is for jobs of a data folder.
struct Shelf {
    store: ImageStore,
    loaded: LoadedImages,
}

impl Shelf {
    fn of(flags: &Flags) -> anyhow::Result<Self> {
        let config = Config::read(flags)?;
        let data = &config.data_dir.value;
        Ok(Self { store: ImageStore::open(data.join("images"))?, loaded: LoadedImages::of(data) })
    }

    /// All images, the one that was used last first.
    fn list(&self) -> anyhow::Result<Vec<Kept>> {
        let loaded = self.loaded.list().context("what is written down of images that daemons were given")?;
        let stored = self.store.list()?.into_iter().map(Kept::Stored);
        let mut all: Vec<Kept> = stored.chain(loaded.into_iter().map(Kept::Loaded)).collect();
        all.sort_by_key(|image| std::cmp::Reverse(image.used()));
        Ok(all)
    }

    async fn remove(&self, image: &Kept) -> anyhow::Result<u64> {
        match image {
            Kept::Stored(image) => Ok(bytes_of(&self.store.remove_image(&image.digest)?)),
            Kept::Loaded(image) => {
                let amount = LoadedImages::amount(image).await?;
                self.loaded.remove(image).await?;
                Ok(amount.map_or(0, |amount| amount.bytes))
            }
        }
    }
}

fn bytes_of(removed: &[Unused]) -> u64 {
    let bytes = removed.iter().map(|one| match one {
        Unused::Image(_) => 0,
        Unused::Layer { bytes, .. } | Unused::File { bytes, .. } => *bytes,
    });
    bytes.sum()
}

fn run<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

impl List {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let images = Shelf::of(&self.flags)?.list()?;
        let shown = run(async {
            let mut shown = Vec::new();
            for image in &images {
                shown.push(image.shown().await?);
            }
            Ok(shown)
        })?;
        if self.json {
            shown.iter().try_for_each(|image| out(&serde_json::to_string(image)?))?;
            return Ok(Exit::Completed);
        }
        let rows: Vec<[String; 5]> =
            shown.iter().zip(&images).map(|(shown, kept)| row(shown, kept)).collect();
        let head = ["IMAGE", "DIGEST", "LAYERS", "SIZE", "LAST USED"].map(str::to_owned);
        table(&head, &rows).iter().try_for_each(|line| out(line))?;
        Ok(Exit::Completed)
    }
}

fn row(image: &Shown<'_>, kept: &Kept) -> [String; 5] {
    let digits = image.digest.trim_start_matches("sha256:");
    // A clock that was put back makes it no older than now.
    let age = HumanDuration(kept.used().elapsed().unwrap_or_default());
    let unknown = || "?".to_owned();
    [
        image.name.unwrap_or("-").to_owned(),
        digits.get(..SHORT).unwrap_or(digits).to_owned(),
        image.layers.map_or_else(unknown, |layers| layers.to_string()),
        image.size.map_or_else(unknown, |size| HumanBytes(size).to_string()),
        match (image.in_use, image.daemon) {
            (true, _) => "now".to_owned(),
            (false, None) => format!("{age} ago"),
            (false, Some(daemon)) => format!("{age} ago, by the daemon at {}", daemon.display()),
        },
    ]
}

/// Lines in columns that are as wide as their widest cell; the last one ends where it ends.
fn table(head: &[String; 5], rows: &[[String; 5]]) -> Vec<String> {
    let all = || std::iter::once(head).chain(rows);
    let width = |column: usize| all().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |row: &[String; 5]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}  "));
        cells.collect::<String>().trim_end().to_owned()
    };
    all().map(line).collect()
}

impl Remove {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let shelf = Shelf::of(&self.flags)?;
        let images = shelf.list()?;
        // Nothing is removed where one name is wrong.
        let mut meant = Vec::new();
        for text in &self.kept {
            let found: Vec<&Kept> = images.iter().filter(|image| image.is_called(text)).collect();
            if found.is_empty() {
                let error = anyhow::anyhow!("no image {text:?} is kept here: trainyard image ls lists them");
                return Err(Refused::from(error).into());
            }
            meant.extend(found);
        }
        let mut done: Vec<Digest> = Vec::new();
        run(async {
            let mut bytes = 0;
            for image in meant {
                if !done.contains(&image.digest()) || matches!(image, Kept::Loaded(_)) {
                    bytes += shelf.remove(image).await?;
                    done.push(image.digest());
                    out(&image.digest().to_string())?;
                }
            }
            Ok(out(&format!("{} removed", HumanBytes(bytes)))?)
        })?;
        Ok(Exit::Completed)
    }
}

impl Prune {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let shelf = Shelf::of(&self.flags)?;
        let age = Duration::from_secs(u64::from(self.older_than) * 24 * 60 * 60);
        let before = SystemTime::now().checked_sub(age).context("--older-than is too long ago")?;
        let unused =
            if self.dry_run { shelf.store.unused(before) } else { shelf.store.remove_unused(before) }?;
        let mut images = 0_u64;
        for one in &unused {
            if let Unused::Image(digest) = one {
                images += 1;
                out(&digest.to_string())?;
            }
        }
        let loaded = shelf.loaded.list()?.into_iter();
        let loaded = loaded.filter(|image| image.used < before && !image.in_use).map(Kept::Loaded);
        let of_daemons = run(self.prune_loaded(&shelf, loaded.collect()))?;
        let done = if self.dry_run { "would be removed" } else { "removed" };
        out(&format!(
            "{} images {done}, {}",
            images + of_daemons.0,
            HumanBytes(bytes_of(&unused) + of_daemons.1)
        ))?;
        Ok(Exit::Completed)
    }

    /// How many they were, and their size.
    async fn prune_loaded(&self, shelf: &Shelf, images: Vec<Kept>) -> anyhow::Result<(u64, u64)> {
        let (mut count, mut bytes) = (0, 0);
        for image in images {
            let size = match self.dry_run {
                true => image.shown().await?.size.unwrap_or_default(),
                false => match shelf.remove(&image).await {
                    Ok(size) => size,
                    Err(error) if is_in_use(&error) => continue,
                    Err(error) => bail!("{}: {error:#}", image.digest()),
                },
            };
            count += 1;
            bytes += size;
            out(&image.digest().to_string())?;
        }
        Ok((count, bytes))
    }
}

fn is_in_use(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(RemoveLoadedError::InUse { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let row = |cells: [&str; 5]| cells.map(str::to_owned);
        let lines = table(&row(["A", "B", "C", "D", "E"]), &[row(["long name", "1", "2", "3", "last one"])]);
        assert_eq!(lines, ["A          B  C  D  E", "long name  1  2  3  last one"]);
    }
}
