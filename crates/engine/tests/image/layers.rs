//! What is in a layer is in its folder, as overlayfs wants it.

use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use fs_err as fs;
use rustix::process::getuid;
use tar::EntryType;
use trainyard_engine::artifact::remove_tree;
use trainyard_engine::image::{UnpackedImage, User};

use crate::build::{Image, Layer, Raw};
use crate::support::{Place, also_as_ordinary_user, chain};

async fn unpack(place: &Place, layers: Vec<Layer>) -> UnpackedImage {
    let folder = place.path("layout");
    Image::new(layers).write_oci(&folder, "x");
    let got = place.obtain(&format!("oci:{}", folder.display())).await;
    got.unwrap_or_else(|error| panic!("{}", chain(&error)))
}

/// The folder of an image with a single layer.
async fn unpack_one(place: &Place, layer: Layer) -> PathBuf {
    unpack(place, vec![layer]).await.lowers.folders()[0].clone()
}

fn xattr(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = [0; 256];
    let length = rustix::fs::lgetxattr(path, name, &mut value).ok()?;
    Some(value[..length].to_vec())
}

#[tokio::test]
async fn files_folders_and_links_come_out_as_they_went_in() {
    also_as_ordinary_user("layers::files_folders_and_links_come_out_as_they_went_in");
    let place = Place::new();
    let long = format!("deep/{}/{}", "d".repeat(200), "f".repeat(255));
    let layer = Layer::new()
        .folder("shut", 0o000)
        .file_with("shut/inside", b"in", 0o000)
        .folder("read-only", 0o555)
        .file_with("read-only/setuid", b"x", 0o4755)
        .folder("sticky", 0o1777)
        .file(&long, "long")
        .file("plain", "content")
        .link(EntryType::Link, "sticky/hard", "plain")
        .link(EntryType::Symlink, "soft", "sticky/hard")
        .link(EntryType::Symlink, "away", "/etc/passwd")
        .link(EntryType::Link, "hard-to-soft", "soft")
        .raw(&Raw { path: "pipe", kind: EntryType::Fifo, mode: 0o620, ..Raw::default() });
    let tree = unpack_one(&place, layer).await;
    let found = |path: &str| fs::symlink_metadata(tree.join(path)).unwrap();
    let mode = |path: &str| found(path).permissions().mode() & 0o7777;
    assert_eq!(mode("shut"), 0o000);
    assert_eq!(mode("read-only"), 0o555);
    assert_eq!(mode("read-only/setuid"), 0o4755);
    assert_eq!(mode("sticky"), 0o1777);
    assert_eq!(mode("plain"), 0o644);
    assert_eq!(fs::read_to_string(tree.join(&long)).unwrap(), "long");
    assert_eq!(found("plain").ino(), found("sticky/hard").ino());
    assert_eq!(fs::read_link(tree.join("soft")).unwrap(), Path::new("sticky/hard"));
    assert_eq!(fs::read_link(tree.join("away")).unwrap(), Path::new("/etc/passwd"));
    assert_eq!(found("soft").ino(), found("hard-to-soft").ino());
    assert!(found("pipe").file_type().is_fifo());
    assert_eq!(mode("pipe"), 0o620);
    for path in ["shut", "read-only/setuid", "soft", "pipe"] {
        assert_eq!(found(path).mtime(), 1_000_000_000, "{path}");
        let owner = if getuid().is_root() { 1234 } else { getuid().as_raw() };
        assert_eq!(found(path).uid(), owner, "{path}");
    }
    remove_tree(&place.path("images")).unwrap();
}

#[tokio::test]
async fn attributes_are_kept_but_none_that_overlayfs_would_take_as_its_own() {
    also_as_ordinary_user("layers::attributes_are_kept_but_none_that_overlayfs_would_take_as_its_own");
    let place = Place::new();
    // Version 2, effective, CAP_NET_RAW permitted: what setcap writes for ping.
    let capability = b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let layer = Layer::new()
        .pax(&[
            ("SCHILY.xattr.user.note", b"a=b\nc"),
            ("SCHILY.xattr.security.capability", capability),
            ("SCHILY.xattr.user.overlay.opaque", b"y"),
            ("SCHILY.xattr.trusted.overlay.redirect", b"/etc"),
        ])
        .file("ping", "x")
        .pax(&[("SCHILY.xattr.user.overlay.opaque", b"y"), ("SCHILY.xattr.user.kind", b"folder")])
        .folder("folder", 0o755);
    let tree = unpack_one(&place, layer).await;
    let (file, folder) = (tree.join("ping"), tree.join("folder"));
    assert_eq!(xattr(&file, "user.note").as_deref(), Some(&b"a=b\nc"[..]));
    let kept = getuid().is_root().then(|| capability.to_vec());
    assert_eq!(xattr(&file, "security.capability"), kept);
    assert_eq!(xattr(&folder, "user.kind").as_deref(), Some(&b"folder"[..]));
    for name in ["user.overlay.opaque", "trusted.overlay.redirect", "trusted.overlay.opaque"] {
        assert_eq!(xattr(&file, name), None, "{name}");
        assert_eq!(xattr(&folder, name), None, "{name}");
    }
}

#[tokio::test]
async fn a_later_entry_replaces_an_earlier_one_of_any_kind() {
    let place = Place::new();
    let layer = Layer::new()
        .file("a", "old")
        .link(EntryType::Link, "a-too", "a")
        .file("a", "new")
        .folder("b", 0o700)
        .file("b/c/d", "x")
        .link(EntryType::Symlink, "b", "a")
        .link(EntryType::Symlink, "e", "a")
        .folder("e", 0o750)
        .file("e", "file");
    let tree = unpack_one(&place, layer).await;
    let read = |path: &str| fs::read_to_string(tree.join(path)).unwrap();
    assert_eq!((read("a").as_str(), read("a-too").as_str()), ("new", "old"));
    assert_eq!(fs::read_link(tree.join("b")).unwrap(), Path::new("a"));
    assert_eq!(read("e"), "file");
}

#[tokio::test]
async fn deletions_become_what_overlayfs_understands() {
    also_as_ordinary_user("layers::deletions_become_what_overlayfs_understands");
    let place = Place::new();
    let layer = Layer::new()
        .delete("gone")
        .delete("unlisted/gone")
        .file("replaced/.wh..wh..opq", "")
        .file("replaced/new", "x")
        .delete("renewed")
        .folder("renewed", 0o755)
        .folder("before", 0o755)
        .file("before/new", "x")
        .delete("before")
        .file("kept", "x")
        .delete("kept")
        .file(".wh..wh.plnk/1.2", "aufs")
        .raw(&Raw { path: "device", kind: EntryType::Char, ..Raw::default() });
    let tree = unpack_one(&place, layer).await;
    for path in ["gone", "unlisted/gone", "device"] {
        let found = fs::symlink_metadata(tree.join(path)).unwrap();
        assert!(found.file_type().is_char_device() && found.rdev() == 0, "{path}");
    }
    for path in ["replaced", "renewed", "before"] {
        assert_eq!(xattr(&tree.join(path), "user.overlay.opaque").as_deref(), Some(&b"y"[..]), "{path}");
        let trusted = getuid().is_root().then(|| b"y".to_vec());
        assert_eq!(xattr(&tree.join(path), "trusted.overlay.opaque"), trusted, "{path}");
    }
    assert!(tree.join("before/new").is_file() && tree.join("kept").is_file());
    assert!(!tree.join(".wh..wh.plnk").exists());
}

#[tokio::test]
async fn the_kernels_overlay_shows_what_the_layers_say() {
    also_as_ordinary_user("layers::the_kernels_overlay_shows_what_the_layers_say");
    let place = Place::new();
    let base = Layer::new()
        .file("etc/keep", "1")
        .file("etc/gone", "1")
        .file("data/old/a", "1")
        .file("data/b", "1")
        .file("swap/was-folder", "1")
        .file("again/old", "1");
    let middle = Layer::new()
        .delete("etc/gone")
        .file("data/.wh..wh..opq", "")
        .file("data/new", "2")
        .delete("swap")
        .file("swap", "2")
        .delete("again")
        .file("again/new", "2");
    let top = Layer::new()
        .file("etc/keep", "3")
        .link(EntryType::Symlink, "etc/passwd", "../data/accounts")
        .file("data/accounts", "fit:x:1000:100::/home/fit:\n");
    let image = unpack(&place, vec![base, middle, top]).await;

    let seen = overlay(&place, &image);
    let expected = "./again\n./again/new\n./data\n./data/accounts\n./data/new\n./etc\n./etc/keep\n./etc/passwd\n./swap\n";
    assert_eq!(seen, expected);
    for line in seen.lines().filter(|line| line.contains('/')) {
        let found = image.lowers.find(Path::new(line)).unwrap();
        let folder = ["./again", "./data", "./etc"].contains(&line);
        assert_eq!(found.is_none(), folder, "{line}");
    }
    for gone in ["etc/gone", "data/b", "data/old/a", "swap/was-folder", "again/old"] {
        assert_eq!(image.lowers.find(Path::new(gone)).unwrap(), None, "{gone}");
    }
    let user = User::resolve("fit", &image.lowers).unwrap();
    assert_eq!((user.uid, user.gid, user.home.as_str()), (1000, 100, "/home/fit"));
    remove_tree(&place.path("images")).unwrap();
}

/// All paths in a real overlay of the layers.
fn overlay(place: &Place, image: &UnpackedImage) -> String {
    let folders: Vec<String> =
        image.lowers.folders().iter().map(|folder| folder.display().to_string()).collect();
    let target = place.path("mounted");
    fs::create_dir(&target).unwrap();
    let script = format!(
        "mount -t overlay overlay -o userxattr,lowerdir={} {target} && cd {target} && find . -mindepth 1 | sort",
        folders.join(":"),
        target = target.display()
    );
    let namespaces = if getuid().is_root() { "--mount" } else { "-Urm" };
    let output = Command::new("unshare").args([namespaces, "sh", "-c", &script]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn links_to_accounts_lead_through_the_image_and_not_the_machine() {
    let place = Place::new();
    let image = unpack(
        &place,
        vec![
            Layer::new().file("store/passwd", "fit:x:7:8::/home:\n").file("etc/group", "fit:x:9:fit\n"),
            Layer::new().link(EntryType::Symlink, "etc/passwd", "/../store/../store/passwd"),
        ],
    )
    .await;
    let user = User::resolve("fit", &image.lowers).unwrap();
    assert_eq!((user.uid, user.gid, user.groups), (7, 8, vec![9]));
    let circle = unpack(&Place::new(), vec![Layer::new().link(EntryType::Symlink, "etc", "etc")]).await;
    assert_eq!(circle.lowers.find(Path::new("etc/passwd")).unwrap(), None);
}

#[tokio::test]
async fn names_and_sizes_of_every_dialect_are_read() {
    let place = Place::new();
    let folder = place.path("source");
    // Together too long for a header's first field.
    let long = format!("{}/{}", "d".repeat(90), "f".repeat(90));
    fs::create_dir_all(folder.join("d".repeat(90))).unwrap();
    fs::write(folder.join(&long), "long").unwrap();
    let sparse = fs::File::create(folder.join("sparse")).unwrap();
    sparse.set_len(10 << 20).unwrap();
    for (offset, content) in [(1 << 20, "one"), (5 << 20, "two")] {
        std::os::unix::fs::FileExt::write_all_at(sparse.file(), content.as_bytes(), offset).unwrap();
    }
    for format in ["gnu", "pax", "ustar", "oldgnu", "pax --sparse-version=0.0", "pax --sparse-version=0.1"] {
        let sparse = if format == "ustar" { "" } else { "--sparse" };
        let script = format!("tar -c {sparse} --format={format} -C {} .", folder.display());
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let other = Place::new();
        let tree = unpack_one(&other, Layer::new().bytes(&output.stdout)).await;
        assert_eq!(fs::read_to_string(tree.join(&long)).unwrap(), "long", "{format}");
        let expected = fs::read(folder.join("sparse")).unwrap();
        assert!(fs::read(tree.join("sparse")).unwrap() == expected, "{format}");
        if !sparse.is_empty() {
            let blocks = fs::metadata(tree.join("sparse")).unwrap().blocks();
            assert!(blocks * 512 < 1 << 20, "{format}: {blocks} blocks");
        }
    }
}

#[tokio::test]
async fn an_image_without_layers_and_one_with_an_empty_layer_are_images() {
    let place = Place::new();
    let image = unpack(&place, vec![Layer::new()]).await;
    assert_eq!(fs::read_dir(&image.lowers.folders()[0]).unwrap().count(), 0);
    let none = unpack(&Place::new(), vec![]).await;
    assert!(none.lowers.folders().is_empty());
}
