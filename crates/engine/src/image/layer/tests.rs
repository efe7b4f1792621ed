//! What needs other limits than real ones, or no archive at all.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;

use fs_err as fs;
use proptest::prelude::*;
use rustix::fs::{FileType, Mode, OFlags, mknodat, open};
use rustix::process::getuid;

use super::{LayerError, Limits, marks, unpack};

fn archive(files: u32) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for number in 0..files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(4);
        builder.append_data(&mut header, format!("folder/{number}"), &b"text"[..]).unwrap();
    }
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o777);
    header.set_size(0);
    header.set_entry_type(tar::EntryType::Symlink);
    builder.append_link(&mut header, "l".repeat(120), "../../bait").unwrap();
    builder.append_pax_extensions([("path", &b"named/by/pax"[..]), ("mtime", b"1.5")]).unwrap();
    header.set_entry_type(tar::EntryType::Directory);
    builder.append_data(&mut header, "x", &[][..]).unwrap();
    builder.into_inner().unwrap()
}

#[test]
fn more_entries_than_allowed_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { entries: 3, ..Limits::default() };
    let error = unpack(archive(9).as_slice(), folder.path(), limits, &|| true).unwrap_err();
    assert!(matches!(error, LayerError::Entries { limit: 3 }), "{error}");
}

#[test]
fn a_disk_that_would_become_full_is_told_with_what_is_free() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { reserve: u64::MAX, ..Limits::default() };
    let error = unpack(archive(1).as_slice(), folder.path(), limits, &|| true).unwrap_err();
    assert!(matches!(error, LayerError::NoRoom { free, .. } if free > 0), "{error}");
    assert!(error.to_string().contains(folder.path().to_str().unwrap()), "{error}");
}

#[test]
fn a_layer_that_nobody_wants_any_more_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let error = unpack(archive(1).as_slice(), folder.path(), Limits::default(), &|| false).unwrap_err();
    assert!(matches!(error, LayerError::Cancelled), "{error}");
}

fn opened(path: &Path) -> OwnedFd {
    fs::create_dir_all(path).unwrap();
    open(path, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

#[test]
fn the_kernels_overlay_understands_deletions_in_files_too() {
    let folder = tempfile::tempdir().unwrap();
    let (lower, upper) = (folder.path().join("lower"), folder.path().join("upper"));
    for name in ["some/a", "some/b", "all/a", "all/b", "turned/a", "turned/b"] {
        fs::create_dir_all(lower.join(name).parent().unwrap()).unwrap();
        fs::write(lower.join(name), name).unwrap();
    }
    let (some, all, turned) = ["some", "all", "turned"].map(|name| opened(&upper.join(name))).into();
    marks::whiteout_file(&some, b"a").unwrap();
    assert!(marks::is_whiteout(&some, b"a").unwrap() && !marks::is_whiteout(&some, b"b").unwrap());
    marks::opaque(&all).unwrap();
    marks::whiteout_file(&all, b"a").unwrap();
    marks::whiteout_file(&turned, b"a").unwrap();
    mknodat(&turned, "pipe", FileType::Fifo, Mode::RWXU, 0).unwrap();
    marks::opaque(&turned).unwrap();

    let mounted = folder.path().join("mounted");
    fs::create_dir(&mounted).unwrap();
    let script = format!(
        "mount -t overlay overlay -o userxattr,lowerdir={}:{} {mounted} && cd {mounted} && find . -type f",
        upper.display(),
        lower.display(),
        mounted = mounted.display()
    );
    let namespaces = if getuid().is_root() { "--mount" } else { "-Urm" };
    let output = Command::new("unshare").args([namespaces, "sh", "-c", &script]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "./some/b\n");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_damage_leads_out_of_the_folder_or_to_a_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        mended in any::<bool>(),
        end in any::<prop::sample::Index>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let (target, bait) = (folder.path().join("a/b/target"), folder.path().join("a/b/bait"));
        fs::create_dir_all(&target).unwrap();
        fs::create_dir(&bait).unwrap();
        let mut bytes = archive(3);
        for (place, byte) in changes {
            let at = place.index(bytes.len());
            bytes[at] = byte;
        }
        if mended {
            mend(&mut bytes);
        } else {
            bytes.truncate(end.index(bytes.len()));
        }
        let _ = unpack(bytes.as_slice(), &target, Limits::default(), &|| true);
        prop_assert_eq!(fs::read_dir(&bait).unwrap().count(), 0);
        prop_assert_eq!(fs::read_dir(folder.path().join("a/b")).unwrap().count(), 2);
        prop_assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        crate::artifact::remove_tree(&target).unwrap();
    }
}

/// Makes the checksums of all blocks right that look like headers, so that damage gets further.
fn mend(bytes: &mut [u8]) {
    for block in bytes.chunks_exact_mut(512).filter(|block| &block[257..262] == b"ustar") {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
}
