//! Archives and folders: every form gives the same image.

use fs_err as fs;
use serde_json::json;
use trainyard_engine::image::{Digest, LayoutError, ObtainError, Platform};

use crate::build::{Image, Layer, Packing, archive, write_oci};
use crate::support::{Place, chain};

fn image() -> Image {
    let base = Layer::new().folder("etc", 0o755).file("etc/motd", "hello").file("etc/gone", "x");
    let same = || Layer::new().file("opt/program/train", "#!/bin/sh\n");
    Image::new(vec![base, same(), same(), Layer::new().delete("etc/gone")])
}

fn packings() -> [Packing; 3] {
    [Packing::Plain, Packing::Gzip, Packing::Zstd]
}

/// Obtains an image and looks at what came of it.
async fn assert_same(place: &Place, reference: &str, image: &Image) {
    let got = place.obtain(reference).await.unwrap_or_else(|error| panic!("{reference}: {}", chain(&error)));
    assert_eq!(got.digest, Digest::of(&image.config()), "{reference}");
    assert_eq!(got.config.entrypoint, ["/bin/run"]);
    assert_eq!(got.config.environment()["A"], "b");
    assert_eq!(got.lowers.folders().len(), image.layers.len());
    let read = |path: &str| {
        let found = got.lowers.find(path.as_ref()).unwrap();
        found.map(|file| fs::read_to_string(file).unwrap())
    };
    assert_eq!(read("/etc/motd").as_deref(), Some("hello"), "{reference}");
    assert_eq!(read("/opt/program/train").as_deref(), Some("#!/bin/sh\n"), "{reference}");
    assert_eq!(read("/etc/gone"), None, "{reference}");
    place.assert_tidy();
}

#[tokio::test]
async fn an_archive_of_docker_save_is_an_image_in_both_layouts() {
    let image = image();
    for old in [true, false] {
        let place = Place::new();
        let file = place.path("image.tar");
        if old {
            image.write_old_docker(&file, "fit:1")
        } else {
            image.write_docker(&file, "fit:1")
        }
        assert_same(&place, &format!("docker-archive:{}", file.display()), &image).await;
        assert_same(&place, &format!("docker-archive:{}:fit:1", file.display()), &image).await;
    }
}

#[tokio::test]
async fn an_oci_layout_is_an_image_as_a_folder_and_as_an_archive() {
    for packing in packings() {
        let image = image().packed(packing);
        let place = Place::new();
        let (folder, file) = (place.path("layout"), place.path("layout.tar"));
        image.write_oci(&folder, "fit:1");
        archive(&folder, &file);
        assert_same(&place, &format!("oci:{}", folder.display()), &image).await;
        let other = Place::new();
        assert_same(&other, &format!("oci-archive:{}:fit:1", file.display()), &image).await;
    }
}

#[tokio::test]
async fn an_archive_may_itself_be_compressed() {
    let image = image();
    for packing in [Packing::Gzip, Packing::Zstd] {
        let place = Place::new();
        let file = place.path("image.tar");
        image.write_docker(&file, "fit:1");
        let packed = packing.pack(&fs::read(&file).unwrap());
        fs::write(&file, packed).unwrap();
        assert_same(&place, &format!("docker-archive:{}", file.display()), &image).await;
    }
}

#[tokio::test]
async fn a_layer_is_unpacked_once_for_all_images() {
    let place = Place::new();
    let common = || Layer::new().file("a", "a");
    let images = [
        Image::new(vec![common(), Layer::new().file("b", "b")]),
        Image::new(vec![common(), Layer::new().file("c", "c")]).packed(Packing::Zstd),
    ];
    let mut lowers = Vec::new();
    for (number, image) in images.iter().enumerate() {
        let folder = place.path(&number.to_string());
        image.write_oci(&folder, "x");
        let got = place.obtain(&format!("oci:{}", folder.display())).await.unwrap();
        lowers.push(got.lowers.folders().last().unwrap().clone());
    }
    assert_eq!(lowers[0], lowers[1]);
    let layers = place.names("layers");
    assert_eq!(layers.iter().filter(|name| !name.ends_with(".lock")).count(), 3, "{layers:?}");
}

#[tokio::test]
async fn several_images_are_told_apart_by_their_tags() {
    let place = Place::new();
    let folder = place.path("layout");
    let (one, two) =
        (Image::new(vec![Layer::new().file("1", "")]), Image::new(vec![Layer::new().file("2", "")]));
    write_oci(&folder, &[("fit:1", &one), ("fit:2", &two)]);
    let reference = format!("oci:{}", folder.display());
    let got = place.obtain(&format!("{reference}:2")).await.unwrap();
    assert_eq!(got.digest, Digest::of(&two.config()));
    let error = place.obtain(&reference).await.unwrap_err();
    assert!(matches!(&error, ObtainError::Layout(LayoutError::Ambiguous { .. })), "{error:?}");
    assert!(error.to_string().contains("fit:1, fit:2"), "{error}");
    let error = place.obtain(&format!("{reference}:3")).await.unwrap_err();
    assert!(matches!(&error, ObtainError::Layout(LayoutError::Tag { .. })), "{error:?}");
}

#[tokio::test]
async fn an_image_for_other_machines_is_refused_with_what_there_is() {
    let place = Place::new();
    let mut image = image();
    image.platform = Platform { os: "linux".into(), architecture: "mips".into(), variant: None };
    let (folder, file) = (place.path("layout"), place.path("image.tar"));
    image.write_oci(&folder, "x");
    image.write_docker(&file, "x");
    for reference in [format!("oci:{}", folder.display()), format!("docker-archive:{}", file.display())] {
        let error = place.obtain(&reference).await.unwrap_err();
        assert!(matches!(&error, ObtainError::Platform { .. }), "{error:?}");
        let expected = format!("is for linux/mips, this machine is {}", Platform::of_this_machine());
        assert!(error.to_string().contains(&expected), "{error}");
    }
    place.assert_tidy();
}

#[tokio::test]
async fn what_is_no_image_is_told_as_such() {
    let place = Place::new();
    let write = |name: &str, bytes: &[u8]| {
        let path = place.path(name);
        fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let docker = place.path("docker.tar");
    image().write_docker(&docker, "x");
    let layout = place.path("layout");
    image().write_oci(&layout, "x");
    archive(&layout, &place.path("oci.tar"));
    let cut = fs::read(&docker).unwrap();
    let table = [
        ("docker-archive:/nowhere.tar".to_owned(), "can't read /nowhere.tar"),
        (format!("docker-archive:{}", write("text", b"hello")), "is no archive of an image"),
        (format!("docker-archive:{}", write("random", &[7; 4096])), "checksum is wrong"),
        (
            format!("docker-archive:{}", write("cut.tar", &cut[..cut.len() / 2])),
            "docker save writes archives",
        ),
        (format!("docker-archive:{}", write("x.xz", b"\xfd7zXZ\0 ")), "compressed with xz"),
        (format!("docker-archive:{}/oci.tar", place.folder.path().display()), "write oci-archive:"),
        (format!("oci-archive:{}", docker.display()), "write docker-archive:"),
        ("oci:/nowhere".to_owned(), "has no index.json"),
    ];
    for (reference, expected) in table {
        let text = chain(&place.obtain(&reference).await.unwrap_err());
        assert!(text.contains(expected), "{reference}: {text}");
    }
    place.assert_tidy();
}

#[tokio::test]
async fn a_missing_layer_and_a_wrong_number_of_layers_are_told() {
    let place = Place::new();
    let folder = place.path("layout");
    let image = image();
    image.write_oci(&folder, "x");
    let layer = Digest::of(&image.packing.pack(&image.layers[0])).hex();
    fs::remove_file(folder.join("blobs/sha256").join(&layer)).unwrap();
    let error = place.obtain(&format!("oci:{}", folder.display())).await.unwrap_err();
    assert!(
        matches!(&error, ObtainError::Layout(LayoutError::Missing { member, .. }) if member.contains(&layer))
    );

    let file = place.path("image.tar");
    let mut archive = tar::Builder::new(fs::File::create(&file).unwrap());
    let mut add = |name: &str, bytes: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        archive.append_data(&mut header, name, bytes).unwrap();
    };
    add("c.json", &image.config());
    add("manifest.json", json!([{"Config": "c.json", "Layers": []}]).to_string().as_bytes());
    archive.finish().unwrap();
    let error = place.obtain(&format!("docker-archive:{}", file.display())).await.unwrap_err();
    assert!(matches!(error, ObtainError::Layers { config: 4, manifest: 0, .. }), "{error:?}");
}

#[tokio::test]
async fn a_damaged_part_is_found_by_its_digest_and_leaves_nothing() {
    for packing in packings() {
        let image = image().packed(packing);
        let blobs = image.blobs().blobs;
        for (digest, blob) in &blobs {
            let place = Place::new();
            let folder = place.path("layout");
            image.write_oci(&folder, "x");
            let mut damaged = blob.clone();
            let middle = damaged.len() / 2;
            damaged[middle] ^= 1;
            fs::write(folder.join("blobs/sha256").join(digest.hex()), damaged).unwrap();
            let error = place.obtain(&format!("oci:{}", folder.display())).await.unwrap_err();
            let by_digest = match &error {
                ObtainError::Digest { expected, .. } => expected == digest,
                ObtainError::Layout(LayoutError::Digest { member, .. }) => member.contains(&digest.hex()),
                _ => false,
            };
            assert!(by_digest, "{packing:?}: {}", chain(&error));
            place.assert_tidy();
            assert_eq!(place.names("images"), [""; 0]);
        }
    }
}

#[tokio::test]
async fn a_layer_whose_content_is_not_what_the_config_says_is_refused() {
    let place = Place::new();
    let image = image();
    let other = Image::new(vec![Layer::new().file("etc/motd", "evil")]);
    let file = place.path("image.tar");
    let mut archive = tar::Builder::new(fs::File::create(&file).unwrap());
    let mut add = |name: &str, bytes: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        archive.append_data(&mut header, name, bytes).unwrap();
    };
    let layers: Vec<String> = (0..4).map(|number| format!("{number}/layer.tar")).collect();
    for (name, layer) in layers.iter().zip(&image.layers) {
        add(name, if name == "0/layer.tar" { &other.layers[0] } else { layer });
    }
    add("c.json", &image.config());
    add("manifest.json", json!([{"Config": "c.json", "Layers": layers}]).to_string().as_bytes());
    archive.finish().unwrap();
    let error = place.obtain(&format!("docker-archive:{}", file.display())).await.unwrap_err();
    assert!(
        matches!(&error, ObtainError::Digest { expected, .. } if *expected == Digest::of(&image.layers[0]))
    );
    assert!(!place.names("layers").contains(&Digest::of(&image.layers[0]).hex()));
    place.assert_tidy();
}
