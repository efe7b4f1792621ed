//! Layers that want out: each is refused by name, and nothing of the machine is touched.

use std::path::Path;

use fs_err as fs;
use tar::EntryType;
use trainyard_engine::image::{LayerError, ObtainError, TarError};

use crate::build::{Image, Layer, Packing, Raw};
use crate::support::{Place, also_as_ordinary_user, chain};

/// Refuses the layer, and looks whether it did anything but that.
async fn refuse(layer: Layer) -> LayerError {
    let place = Place::new();
    let bait = place.path("bait");
    fs::create_dir(&bait).unwrap();
    fs::write(bait.join("file"), "as it was").unwrap();
    let folder = place.path("layout");
    Image::new(vec![Layer::new().file("good", "good"), layer]).write_oci(&folder, "x");
    let error = place.obtain(&format!("oci:{}", folder.display())).await.unwrap_err();
    place.assert_tidy();
    assert_eq!(place.names("images"), [""; 0]);
    assert_eq!(fs::read_to_string(bait.join("file")).unwrap(), "as it was");
    assert_eq!(fs::read_dir(&bait).unwrap().count(), 1);
    match error {
        ObtainError::Layer { source, .. } => source,
        other => panic!("{}", chain(&other)),
    }
}

fn entry(path: &str) -> Layer {
    Layer::new().raw(&Raw { path, ..Raw::default() })
}

fn linked(kind: EntryType, path: &str, link: &str) -> Layer {
    Layer::new().raw(&Raw { path, kind, link, ..Raw::default() })
}

#[tokio::test]
async fn paths_that_lead_out_are_refused_by_name() {
    also_as_ordinary_user("hostile::paths_that_lead_out_are_refused_by_name");
    for path in ["../x", "a/../../x", "..", "/etc/x", "//x", "a/..", "./../x"] {
        let error = refuse(entry(path)).await;
        assert!(matches!(&error, LayerError::Outside { path: told } if told == path), "{path}: {error}");
    }
    assert!(matches!(refuse(entry("")).await, LayerError::Outside { .. }));
    let pax = Layer::new().pax(&[("path", b"../x")]).file("innocent", "");
    assert!(matches!(refuse(pax).await, LayerError::Outside { .. }));
}

#[tokio::test]
async fn a_whiteout_of_what_is_no_name_is_refused() {
    for path in [".wh...", ".wh..", ".wh.", "a/.wh...", ".wh.a/b"] {
        let error = refuse(entry(path)).await;
        assert!(matches!(&error, LayerError::Whiteout { path: told } if told == path), "{path}: {error}");
    }
}

#[tokio::test]
async fn hard_links_to_outside_or_to_nothing_are_refused_by_name() {
    for target in ["../../bait/file", "/etc/passwd", "a/../../x", ""] {
        let error = refuse(linked(EntryType::Link, "hard", target)).await;
        assert!(
            matches!(&error, LayerError::LinkOutside { path, target: told } if path == "hard" && told == target),
            "{target}: {error}"
        );
    }
    for target in ["nothing", "nothing/at/all", "hard"] {
        let error = refuse(linked(EntryType::Link, "hard", target)).await;
        assert!(matches!(&error, LayerError::LinkMissing { .. }), "{target}: {error}");
    }
}

#[tokio::test]
async fn a_hard_link_through_a_link_finds_nothing_outside() {
    let layer = Layer::new().link(EntryType::Symlink, "out", "/etc").raw(&Raw {
        path: "hard",
        kind: EntryType::Link,
        link: "out/passwd",
        ..Raw::default()
    });
    assert!(matches!(refuse(layer).await, LayerError::LinkMissing { .. }));
}

#[tokio::test]
async fn devices_are_refused_by_name() {
    also_as_ordinary_user("hostile::devices_are_refused_by_name");
    for (kind, device) in [
        (EntryType::Char, (1, 3)),
        (EntryType::Block, (8, 0)),
        (EntryType::Block, (0, 0)),
        (EntryType::Char, (0, 1)),
    ] {
        let error = refuse(Layer::new().raw(&Raw { path: "dev/x", kind, device, ..Raw::default() })).await;
        assert!(
            matches!(&error, LayerError::Device { path, major, minor } if path == "dev/x" && (*major, *minor) == device),
            "{error}"
        );
    }
}

#[tokio::test]
async fn writing_through_a_link_stays_in_the_layer() {
    also_as_ordinary_user("hostile::writing_through_a_link_stays_in_the_layer");
    let place = Place::new();
    let bait = place.path("bait");
    fs::create_dir(&bait).unwrap();
    let absolute = bait.to_str().unwrap();
    // Each link leads outside, were it followed on the machine; inside it leads to a folder of the image.
    let inside = absolute.trim_start_matches('/');
    let layer = Layer::new()
        .folder(inside, 0o755)
        .link(EntryType::Symlink, "absolute", absolute)
        .file("absolute/one", "1")
        .link(EntryType::Symlink, "relative", &format!("../../../../../../../../../..{absolute}"))
        .file("relative/two", "2")
        .link(EntryType::Symlink, "file", &format!("{absolute}/one"))
        .file("file", "3");
    let folder = place.path("layout");
    Image::new(vec![layer]).write_oci(&folder, "x");
    let got = place.obtain(&format!("oci:{}", folder.display())).await.unwrap();
    assert_eq!(fs::read_dir(&bait).unwrap().count(), 0);
    let tree = &got.lowers.folders()[0];
    let read = |path: &Path| fs::read_to_string(path).unwrap();
    assert_eq!(read(&tree.join(inside).join("one")), "1");
    assert_eq!(read(&tree.join(inside).join("two")), "2");
    // The link itself is replaced, not what it leads to.
    assert_eq!(read(&tree.join("file")), "3");
}

#[tokio::test]
async fn a_path_below_what_is_no_folder_is_refused_by_name() {
    for link in ["/nowhere", "nowhere", "../../../../nowhere", "link", "/proc/self/root"] {
        let layer = Layer::new().link(EntryType::Symlink, "link", link).file("link/x", "");
        let error = refuse(layer).await;
        assert!(matches!(&error, LayerError::NoFolder { path } if path == "link/x"), "{link}: {error}");
    }
    let error = refuse(Layer::new().file("file", "").file("file/x", "")).await;
    assert!(matches!(error, LayerError::NoFolder { .. }), "{error}");
}

#[tokio::test]
async fn a_claimed_size_takes_neither_memory_nor_disk() {
    for size in [1_000_000_000, (1 << 33) - 1] {
        let layer = Layer::new().raw(&Raw { path: "huge", size, ..Raw::default() });
        assert!(matches!(refuse(layer).await, LayerError::Tar(TarError::Truncated { .. })));
    }
    let name =
        Layer::new().raw(&Raw { path: "x", kind: EntryType::GNULongName, size: 1 << 32, ..Raw::default() });
    assert!(matches!(refuse(name).await, LayerError::Tar(TarError::Extension { .. })));
    let records =
        Layer::new().raw(&Raw { path: "x", kind: EntryType::XHeader, size: 5 << 20, ..Raw::default() });
    assert!(matches!(refuse(records).await, LayerError::Tar(TarError::Extension { .. })));
    let size = Layer::new().pax(&[("size", b"18446744073709551615")]).file("x", "");
    assert!(matches!(refuse(size).await, LayerError::Tar(_)));
}

#[tokio::test]
async fn damaged_headers_are_told_with_their_place() {
    let wrong = |field| move |error: &LayerError| matches!(error, LayerError::Tar(TarError::Header { field: told, .. }) if *told == field);
    let mut checksum = entry("x").finish();
    checksum[0] ^= 1;
    assert!(wrong("the checksum")(&refuse(Layer::new().bytes(&checksum)).await));
    assert!(wrong("a PAX record")(&refuse(Layer::new().pax_bytes(b"99 path=x\n").file("x", "")).await));
    assert!(wrong("the PAX record size")(&refuse(Layer::new().pax(&[("size", b"-1")]).file("x", "")).await));
    let name = refuse(Layer::new().pax(&[("path", b"a\0b")]).file("x", "")).await;
    assert!(wrong("the PAX record of a name")(&name), "{name}");
    let kind = Layer::new().raw(&Raw { path: "x", kind: EntryType::new(b'M'), ..Raw::default() });
    assert!(matches!(refuse(kind).await, LayerError::Tar(TarError::Kind { flag: 'M', .. })));
    let segments: &[(&str, &[u8])] =
        &[("GNU.sparse.map", b"0,9,5,9"), ("GNU.sparse.size", b"99"), ("GNU.sparse.name", b"x")];
    let sparse = refuse(Layer::new().pax(segments).file("x", "123456789012345678")).await;
    assert!(wrong("the list of a sparse file's segments")(&sparse), "{sparse}");
}

#[tokio::test]
async fn names_that_no_system_call_takes_are_refused() {
    let long = "n".repeat(256);
    assert!(matches!(refuse(Layer::new().file(&long, "")).await, LayerError::TooLong { length: 256, .. }));
    let deep = "d/".repeat(3000) + "x";
    assert!(matches!(refuse(Layer::new().file(&deep, "")).await, LayerError::TooLong { .. }));
}

#[tokio::test]
async fn a_layer_that_grows_out_of_bounds_while_it_is_decompressed_is_stopped_by_its_digest() {
    // What comes after the end of the archive is no part of it, but of its digest.
    let place = Place::new();
    let mut image = Image::new(vec![Layer::new().file("a", "a")]).packed(Packing::Gzip);
    image.layers[0].extend_from_slice(&[0; 1 << 20]);
    let folder = place.path("layout");
    image.write_oci(&folder, "x");
    place.obtain(&format!("oci:{}", folder.display())).await.unwrap();
}
