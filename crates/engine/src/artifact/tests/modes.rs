//! What keeps its owner out is packed and removed all the same.

use tempfile::TempDir;

use super::super::remove_tree;
use super::*;

fn shut_tree() -> TempDir {
    let folder = TempDir::new().unwrap();
    write(folder.path(), "shut/inner/file", "deep");
    write(folder.path(), "no-search/file", "f");
    write(folder.path(), "secret", "s");
    std::os::unix::fs::symlink("shut/inner/file", folder.path().join("a-link")).unwrap();
    for (name, mode) in
        [("shut/inner/file", 0), ("shut/inner", 0o111), ("shut", 0), ("no-search", 0o600), ("secret", 0o200)]
    {
        set_mode(folder.path().join(name), mode);
    }
    folder
}

#[test]
fn unreadable_files_and_folders_are_archived_with_their_own_modes() {
    let name = "artifact::tests::modes::unreadable_files_and_folders_are_archived_with_their_own_modes";
    as_ordinary_user(name, || {
        let folder = shut_tree();
        assert!(fs_err::read_dir(folder.path().join("shut")).is_err(), "the test needs an ordinary user");
        let (first, warnings) = archive_of(folder.path());
        assert_eq!(warnings, Vec::<String>::new());
        let modes: Vec<_> = nodes_in(&first)
            .into_iter()
            .map(|(path, node)| (String::from_utf8(path).unwrap(), node.mode, node.content))
            .collect();
        let file = |text: &str| Some(text.as_bytes().to_vec());
        let expected = [
            ("a-link", 0, file("deep")),
            ("no-search", 0o600, None),
            ("no-search/file", modes[2].1, file("f")),
            ("secret", 0o200, file("s")),
            ("shut", 0, None),
            ("shut/inner", 0o111, None),
            ("shut/inner/file", 0, file("deep")),
        ];
        assert_eq!(modes, expected.map(|(path, mode, content)| (path.to_owned(), mode, content)));
        // Packing leaves the tree as it was, so that a second time gives the same.
        assert!(archive_of(folder.path()).0 == first);
        let scratch = folder.keep();
        remove_tree(&scratch).unwrap();
        assert!(!scratch.exists());
    });
}
