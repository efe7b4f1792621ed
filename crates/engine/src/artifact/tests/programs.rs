//! Other programs read our archives without a word of complaint.

use std::process::Command;

use tempfile::TempDir;

use super::super::{ArchiveReader, EntryKind};
use super::*;

/// Runs a program that must succeed and say nothing on standard error; none, with the reason printed,
/// when it is not installed.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    run_in("C.UTF-8", program, arguments)
}

fn run_in(locale: &str, program: &str, arguments: &[&str]) -> Option<String> {
    let output = match Command::new(program).args(arguments).env("LC_ALL", locale).env("TZ", "UTC").output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skipped: cannot run {program}: {error}");
            return None;
        }
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{program} {arguments:?}: {errors}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Two parts with everything that readers are known to stumble over, and the tree that extracting both
/// gives.
fn odd_archive(scratch: &Path) -> (String, Nodes) {
    let (one, two) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    write(one.path(), "sub/deep/file.txt", "text");
    write(one.path(), "empty file", "");
    write(one.path(), "block", vec![5; 512]);
    write(
        one.path(),
        "large",
        (0..400_000_u32).flat_map(|i| (i ^ (i >> 3)).to_le_bytes()).collect::<Vec<_>>(),
    );
    write(one.path(), "ünïcödé/ж", "u");
    write(one.path(), &format!("{}/{}", "d".repeat(150), "f".repeat(99)), "fits");
    write(one.path(), &format!("{0}/{0}/{0}", "ü".repeat(120)), "long");
    fs_err::create_dir(one.path().join("nothing in it")).unwrap();
    set_mode(one.path().join("block"), 0o4751);
    let bytes = one.path().join(os(b"latin-\xfc\xff"));
    fs_err::write(bytes, "not utf-8").unwrap();
    let long_bytes = one.path().join(os(&b"\xfc".repeat(200))).join(os(&b"\xfd".repeat(90)));
    fs_err::create_dir(long_bytes.parent().unwrap()).unwrap();
    fs_err::write(long_bytes, "long and not utf-8").unwrap();
    write(two.path(), "sub/other", "second");
    write(two.path(), "empty file", "the last version wins");
    // Programs differ in whose time a folder gets that is in the archive twice; here it is the same.
    let both = [one.path().join("sub"), two.path().join("sub")];
    let time = fs_err::metadata(&both[0]).unwrap().modified().unwrap();
    for folder in both {
        fs_err::File::open(folder).unwrap().set_modified(time).unwrap();
    }
    let parts = [part_of(one.path(), "algo-1", scratch), part_of(two.path(), "algo-2", scratch)];
    archive_from(&parts, scratch);
    let mut nodes = nodes_on_disk(one.path());
    nodes.extend(nodes_on_disk(two.path()));
    (scratch.join("model.tar.gz").to_str().unwrap().to_owned(), nodes)
}

fn expect_extracted(folder: &Path, nodes: &Nodes) {
    let found = nodes_on_disk(folder);
    assert_eq!(found.keys().collect::<Vec<_>>(), nodes.keys().collect::<Vec<_>>());
    assert!(&found == nodes, "modes, times or content differ");
}

#[test]
fn gnu_tar_and_bsdtar_extract_everything() {
    let scratch = TempDir::new().unwrap();
    let (archive, nodes) = odd_archive(scratch.path());
    for (program, locale) in [("tar", "C"), ("tar", "C.UTF-8"), ("bsdtar", "C"), ("bsdtar", "C.UTF-8")] {
        let output = TempDir::new().unwrap();
        let folder = output.path().to_str().unwrap();
        if run_in(locale, program, &["-xpzf", &archive, "-C", folder]).is_some() {
            expect_extracted(output.path(), &nodes);
            run_in(locale, program, &["-tvzf", &archive]);
        }
    }
}

#[test]
fn gzip_finds_the_checksum_right() {
    let scratch = TempDir::new().unwrap();
    run("gzip", &["-t", &odd_archive(scratch.path()).0]);
}

const PYTHON: &str = r#"
import sys, tarfile, warnings
warnings.simplefilter("ignore")
archive, mode, folder = sys.argv[1:]
with tarfile.open(archive, mode) as tar:
    for member in tar:
        host = member.pax_headers["comment"].removeprefix("trainyard.host=")
        assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "root", "root")
        print(host, ascii(member.name))
        member.uid = member.gid = -1
        tar.extract(member, folder, set_attrs=not member.isdir())
with tarfile.open(archive, mode) as tar:
    for member in tar:
        if member.isdir():
            path = folder + "/" + member.name
            tar.chmod(member, path)
            tar.utime(member, path)
"#;

#[test]
fn python_reads_files_and_streams_and_sees_the_hosts() {
    let scratch = TempDir::new().unwrap();
    let (archive, nodes) = odd_archive(scratch.path());
    for mode in ["r:gz", "r|gz"] {
        let output = TempDir::new().unwrap();
        let Some(seen) = run("python3", &["-c", PYTHON, &archive, mode, output.path().to_str().unwrap()])
        else {
            return;
        };
        expect_extracted(output.path(), &nodes);
        assert!(seen.contains("algo-1 'block'\n") && seen.contains("algo-2 'sub/other'\n"), "{seen}");
        assert_eq!(seen.matches("'empty file'").count(), 2);
    }
}

#[test]
fn archives_of_gnu_tar_and_bsdtar_are_read() {
    let scratch = TempDir::new().unwrap();
    let (_, nodes) = odd_archive(scratch.path());
    let (ours, theirs) = (scratch.path().join("model.tar.gz"), scratch.path().join("theirs.tar.gz"));
    let (ours, theirs) = (ours.to_str().unwrap(), theirs.to_str().unwrap());
    let output = TempDir::new().unwrap();
    let folder = output.path().to_str().unwrap();
    if run("tar", &["-xpzf", ours, "-C", folder]).is_none() {
        return;
    }
    for arguments in [["tar", "--format=gnu"], ["tar", "--format=posix"], ["bsdtar", "--format=gnutar"]] {
        let [program, format] = arguments;
        if run(program, &["-czf", theirs, format, "-C", folder, "."]).is_some() {
            let found = contents(theirs);
            assert!(found == nodes.iter().map(|(path, node)| (path.clone(), node.content.clone())).collect());
        }
    }
}

/// What our reader finds, folders without content.
fn contents(archive: &str) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
    let mut reader = ArchiveReader::new(fs_err::File::open(archive).unwrap());
    let mut found = BTreeMap::new();
    while let Some(mut entry) = reader.next_entry().unwrap() {
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        found.insert(entry.path.clone(), (entry.kind == EntryKind::File).then_some(content));
    }
    found
}
