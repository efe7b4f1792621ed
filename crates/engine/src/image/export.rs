//! Images of our own making: one static program and nothing else.
//!
//! The archive is an OCI layout that also has the `manifest.json` of `docker save`, so that
//! `docker load`, Podman and skopeo take it alike. The same program gives the same bytes, wherever and
//! whenever it is written.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

use super::config::DEFAULT_PATH;
use super::digest::Digest;
use super::platform::Platform;
use crate::executable;

/// Where the program lies in the image: a folder of [`DEFAULT_PATH`].
const FOLDERS: [&str; 3] = ["usr/", "usr/local/", "usr/local/bin/"];

/// An image of one program.
#[derive(Clone, Debug)]
pub struct ProgramImage {
    /// A static program of this machine.
    pub program: PathBuf,
    /// Its name in the image.
    pub name: String,
    /// Another name for it, a link, which is also the image's CMD.
    pub alias: String,
    /// Names of the image, as `team/fit:1`.
    pub tags: Vec<String>,
    /// Labels.
    pub labels: Vec<(String, String)>,
}

/// An image that can't be written.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The program needs files of this machine.
    #[error(
        "{} is linked dynamically and would not start in an image without {interpreter}: build it where \
         the static C library is installed (Debian: libc6-dev, Fedora: glibc-static)",
        path.display()
    )]
    Dynamic {
        /// The program.
        path: PathBuf,
        /// What it needs first of all.
        interpreter: String,
    },
    /// The program can't be read, or the archive not be written.
    #[error("the image can't be written")]
    Io(#[from] io::Error),
}

impl ProgramImage {
    /// Writes the image as an archive.
    ///
    /// # Errors
    ///
    /// Fails if the program is not static, or something can't be read or written.
    pub fn write(&self, out: impl Write) -> Result<(), ExportError> {
        if let Some(interpreter) = executable::look(&self.program).interpreter {
            let interpreter = String::from_utf8_lossy(&interpreter).into_owned();
            return Err(ExportError::Dynamic { path: self.program.clone(), interpreter });
        }
        let layer = self.layer()?;
        let config = self.config(&Digest::of(&layer)).to_string();
        Ok(self.archive(out, &layer, config.as_bytes())?)
    }

    fn layer(&self) -> io::Result<Vec<u8>> {
        let program = fs::read(&self.program)?;
        let mut layer = Builder::new(Vec::with_capacity(program.len() + 8192));
        for folder in FOLDERS {
            layer.append_data(&mut header(EntryType::Directory, 0), folder, io::empty())?;
        }
        let folder = Path::new(FOLDERS[FOLDERS.len() - 1]);
        let length = program.len() as u64;
        layer.append_data(&mut header(EntryType::Regular, length), folder.join(&self.name), &program[..])?;
        layer.append_link(&mut header(EntryType::Symlink, 0), folder.join(&self.alias), &self.name)?;
        layer.into_inner()
    }

    fn config(&self, layer: &Digest) -> Value {
        let Platform { os, architecture, .. } = Platform::of_this_machine();
        let labels: serde_json::Map<_, _> =
            self.labels.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        json!({
            "architecture": architecture,
            "os": os,
            "config": {
                "Env": [format!("PATH={DEFAULT_PATH}")],
                "Cmd": [self.alias],
                "WorkingDir": "/",
                "Labels": labels,
            },
            "rootfs": { "type": "layers", "diff_ids": [layer] },
            "history": [{ "created_by": "trainyard image export" }],
        })
    }

    fn archive(&self, out: impl Write, layer: &[u8], config: &[u8]) -> io::Result<()> {
        let blob = |kind: &str, bytes: &[u8]| {
            let media_type = ["application/vnd.oci.image.", kind].concat();
            json!({ "mediaType": media_type, "digest": Digest::of(bytes), "size": bytes.len() })
        };
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": blob("config.v1+json", config),
            "layers": [blob("layer.v1.tar", layer)],
        });
        let manifest = manifest.to_string();
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [blob("manifest.v1+json", manifest.as_bytes())],
        });
        let saved = json!([{ "Config": path(config), "RepoTags": self.tags, "Layers": [path(layer)] }]);
        let mut archive = Builder::new(out);
        let mut add = |name: &str, bytes: &[u8]| {
            archive.append_data(&mut header(EntryType::Regular, bytes.len() as u64), name, bytes)
        };
        add("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        add("index.json", index.to_string().as_bytes())?;
        add("manifest.json", saved.to_string().as_bytes())?;
        for bytes in [manifest.as_bytes(), config, layer] {
            add(&path(bytes), bytes)?;
        }
        archive.into_inner()?.flush()
    }
}

fn path(blob: &[u8]) -> String {
    ["blobs/sha256/", &Digest::of(blob).hex()].concat()
}

/// Of root, of no time, and executable by everyone: a program and its folders.
fn header(kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(0o755);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}
