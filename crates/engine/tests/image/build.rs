//! Makes layers and images, good and bad ones.

use std::io::Write;
use std::path::Path;

use fs_err as fs;
use serde_json::{Value, json};
use tar::{EntryType, Header};
use trainyard_engine::image::{Digest, Platform};

/// A layer that is being written.
pub(crate) struct Layer(tar::Builder<Vec<u8>>);

/// An entry whose parts need not fit together.
pub(crate) struct Raw<'a> {
    pub(crate) path: &'a str,
    pub(crate) kind: EntryType,
    pub(crate) link: &'a str,
    pub(crate) mode: u32,
    pub(crate) size: u64,
    pub(crate) device: (u32, u32),
}

impl Default for Raw<'_> {
    fn default() -> Self {
        Self { path: "", kind: EntryType::Regular, link: "", mode: 0o644, size: 0, device: (0, 0) }
    }
}

impl Layer {
    pub(crate) fn new() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }

    pub(crate) fn file(self, path: &str, content: &str) -> Self {
        self.file_with(path, content.as_bytes(), 0o644)
    }

    pub(crate) fn file_with(mut self, path: &str, content: &[u8], mode: u32) -> Self {
        let mut header = header(EntryType::Regular, mode);
        header.set_size(content.len() as u64);
        self.0.append_data(&mut header, path, content).unwrap();
        self
    }

    pub(crate) fn folder(mut self, path: &str, mode: u32) -> Self {
        self.0.append_data(&mut header(EntryType::Directory, mode), path, &[][..]).unwrap();
        self
    }

    pub(crate) fn link(mut self, kind: EntryType, path: &str, target: &str) -> Self {
        self.0.append_link(&mut header(kind, 0o777), path, target).unwrap();
        self
    }

    /// Records for the entry that comes next.
    pub(crate) fn pax(mut self, records: &[(&str, &[u8])]) -> Self {
        self.0.append_pax_extensions(records.iter().copied()).unwrap();
        self
    }

    /// An extended header just as it is said.
    pub(crate) fn pax_bytes(mut self, records: &[u8]) -> Self {
        let mut header = header(EntryType::XHeader, 0o644);
        header.set_size(records.len() as u64);
        self.0.append_data(&mut header, "pax", records).unwrap();
        self
    }

    /// Deletes something of the layers below.
    pub(crate) fn delete(self, path: &str) -> Self {
        let (folder, name) = path.rsplit_once('/').unwrap_or((".", path));
        self.file(&format!("{folder}/.wh.{name}"), "")
    }

    /// An entry just as it is said, without any content.
    pub(crate) fn raw(mut self, raw: &Raw<'_>) -> Self {
        let mut header = header(raw.kind, raw.mode);
        header.as_old_mut().name[..raw.path.len()].copy_from_slice(raw.path.as_bytes());
        header.as_old_mut().linkname[..raw.link.len()].copy_from_slice(raw.link.as_bytes());
        header.set_size(raw.size);
        header.set_device_major(raw.device.0).unwrap();
        header.set_device_minor(raw.device.1).unwrap();
        header.set_cksum();
        self.0.get_mut().write_all(header.as_bytes()).unwrap();
        self
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.get_mut().write_all(bytes).unwrap();
        self
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

/// All of them belong to user 1234 and were changed in 2001.
fn header(kind: EntryType, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(1234);
    header.set_gid(1234);
    header.set_mtime(1_000_000_000);
    header.set_size(0);
    header
}

/// How layers are compressed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Packing {
    Plain,
    Gzip,
    Zstd,
}

impl Packing {
    pub(crate) fn pack(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Plain => bytes.to_vec(),
            Self::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            Self::Zstd => zstd::encode_all(bytes, 1).unwrap(),
        }
    }

    fn media_type(self) -> &'static str {
        match self {
            Self::Plain => "application/vnd.oci.image.layer.v1.tar",
            Self::Gzip => "application/vnd.oci.image.layer.v1.tar+gzip",
            Self::Zstd => "application/vnd.oci.image.layer.v1.tar+zstd",
        }
    }
}

/// An image in memory.
#[derive(Clone)]
pub(crate) struct Image {
    /// Plain tar archives, lowest first.
    pub(crate) layers: Vec<Vec<u8>>,
    /// What stands in the config under `config`.
    pub(crate) run: Value,
    pub(crate) platform: Platform,
    pub(crate) packing: Packing,
}

/// All of an image's blobs and what points to its manifest.
pub(crate) struct Blobs {
    pub(crate) blobs: Vec<(Digest, Vec<u8>)>,
    pub(crate) manifest: Vec<u8>,
}

impl Image {
    pub(crate) fn new(layers: Vec<Layer>) -> Self {
        Self {
            layers: layers.into_iter().map(Layer::finish).collect(),
            run: json!({"Entrypoint": ["/bin/run"], "Env": ["A=b"]}),
            platform: Platform::of_this_machine(),
            packing: Packing::Gzip,
        }
    }

    pub(crate) fn packed(mut self, packing: Packing) -> Self {
        self.packing = packing;
        self
    }

    pub(crate) fn config(&self) -> Vec<u8> {
        let diff_ids: Vec<String> = self.layers.iter().map(|layer| Digest::of(layer).to_string()).collect();
        let config = json!({
            "os": self.platform.os,
            "architecture": self.platform.architecture,
            "config": self.run,
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        config.to_string().into_bytes()
    }

    pub(crate) fn blobs(&self) -> Blobs {
        let config = self.config();
        let packed: Vec<Vec<u8>> = self.layers.iter().map(|layer| self.packing.pack(layer)).collect();
        let pointer = |media_type: &str, bytes: &[u8]| json!({"mediaType": media_type, "digest": Digest::of(bytes), "size": bytes.len()});
        let layers: Vec<Value> =
            packed.iter().map(|layer| pointer(self.packing.media_type(), layer)).collect();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": pointer("application/vnd.oci.image.config.v1+json", &config),
            "layers": layers,
        });
        let manifest = manifest.to_string().into_bytes();
        let all = packed.into_iter().chain([config, manifest.clone()]);
        Blobs { blobs: all.map(|blob| (Digest::of(&blob), blob)).collect(), manifest }
    }

    /// Writes an OCI layout with this image under `tag`.
    pub(crate) fn write_oci(&self, folder: &Path, tag: &str) {
        write_oci(folder, &[(tag, self)]);
    }

    /// Writes what `docker save` of version 25 and later does.
    pub(crate) fn write_docker(&self, file: &Path, tag: &str) {
        let mut archive = tar::Builder::new(fs::File::create(file).unwrap());
        let blob = |bytes: &[u8]| format!("blobs/sha256/{}", Digest::of(bytes).hex());
        let config = self.config();
        let manifest = json!([{
            "Config": blob(&config),
            "RepoTags": [tag],
            "Layers": self.layers.iter().map(|layer| blob(layer)).collect::<Vec<_>>(),
        }]);
        for bytes in self.layers.iter().chain([&config]) {
            add(&mut archive, &blob(bytes), bytes);
        }
        add(&mut archive, "manifest.json", manifest.to_string().as_bytes());
        archive.finish().unwrap();
    }

    /// Writes what `docker save` of versions before 25 does; a layer that comes again is a link.
    pub(crate) fn write_old_docker(&self, file: &Path, tag: &str) {
        let mut archive = tar::Builder::new(fs::File::create(file).unwrap());
        let mut names: Vec<(String, &[u8])> = Vec::new();
        for (number, layer) in self.layers.iter().enumerate() {
            let name = format!("{number}/layer.tar");
            match names.iter().find(|(_, there)| *there == layer.as_slice()) {
                None => add(&mut archive, &name, layer),
                Some((there, _)) => {
                    let mut header = header(EntryType::Symlink, 0o777);
                    archive.append_link(&mut header, &name, format!("../{there}")).unwrap();
                }
            }
            names.push((name, layer));
        }
        let config = self.config();
        let config_name = format!("{}.json", Digest::of(&config).hex());
        let layers: Vec<&String> = names.iter().map(|(name, _)| name).collect();
        let manifest = json!([{"Config": config_name, "RepoTags": [tag], "Layers": layers}]);
        add(&mut archive, &config_name, &config);
        add(&mut archive, "manifest.json", manifest.to_string().as_bytes());
        archive.finish().unwrap();
    }
}

/// Writes an OCI layout with several images.
pub(crate) fn write_oci(folder: &Path, images: &[(&str, &Image)]) {
    let blobs = folder.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let mut manifests = Vec::new();
    for (tag, image) in images {
        let made = image.blobs();
        for (digest, blob) in &made.blobs {
            fs::write(blobs.join(digest.hex()), blob).unwrap();
        }
        manifests.push(json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": Digest::of(&made.manifest),
            "size": made.manifest.len(),
            "platform": {"os": image.platform.os, "architecture": image.platform.architecture},
            "annotations": {"org.opencontainers.image.ref.name": tag},
        }));
    }
    fs::write(folder.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    let index = json!({"schemaVersion": 2, "manifests": manifests});
    fs::write(folder.join("index.json"), index.to_string()).unwrap();
}

/// Packs a folder into a tar archive.
pub(crate) fn archive(folder: &Path, file: &Path) {
    let mut archive = tar::Builder::new(fs::File::create(file).unwrap());
    archive.append_dir_all(".", folder).unwrap();
    archive.finish().unwrap();
}

fn add(archive: &mut tar::Builder<fs::File>, name: &str, bytes: &[u8]) {
    let mut header = header(EntryType::Regular, 0o644);
    header.set_size(bytes.len() as u64);
    archive.append_data(&mut header, name, bytes).unwrap();
}
