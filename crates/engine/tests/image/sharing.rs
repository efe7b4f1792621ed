//! One store, several processes.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use fs_err as fs;
use trainyard_engine::image::{ImageStore, Obtain, RemoveUnusedError, Step, Unused};

use crate::build::{Image, Layer, Packing};
use crate::support::{Place, again, assert_succeeded, how, obtain};

fn image(size: usize) -> Image {
    let content = |seed: u8| (0..size).map(|at| (at as u8).wrapping_mul(31) ^ seed).collect::<Vec<u8>>();
    let layers = (0..4).map(|seed| Layer::new().file_with(&format!("file-{seed}"), &content(seed), 0o644));
    Image::new(layers.collect()).packed(Packing::Zstd)
}

/// Later than anything that was done so far.
fn later() -> SystemTime {
    SystemTime::now() + Duration::from_secs(60)
}

/// Where the processes of [`processes_unpack_each_layer_once_between_them`] find the image.
const PLACE: &str = "IMAGE_TEST_PLACE";

#[tokio::test]
async fn one_of_several_processes() {
    let Some(folder) = std::env::var_os(PLACE).map(PathBuf::from) else { return };
    let store = ImageStore::open(folder.join("images")).unwrap();
    let unpacked = Arc::new(Mutex::new(std::collections::BTreeSet::new()));
    let seen = Arc::clone(&unpacked);
    let how = Obtain {
        progress: Arc::new(move |progress| {
            assert_eq!(progress.step, Step::Unpack);
            seen.lock().unwrap().insert(progress.layer.clone());
        }),
        ..how()
    };
    let layout = folder.join("layout");
    let got = obtain(&store, &format!("oci:{}", layout.display()), how).await.unwrap();
    for (number, lower) in got.lowers.folders().iter().rev().enumerate() {
        assert_eq!(fs::metadata(lower.join(format!("file-{number}"))).unwrap().len(), 3 << 20);
    }
    for layer in unpacked.lock().unwrap().iter() {
        println!("unpacked {layer}");
    }
}

#[test]
fn processes_unpack_each_layer_once_between_them() {
    let place = Place::new();
    image(3 << 20).write_oci(&place.path("layout"), "x");
    // What a process that was killed leaves.
    let first = trainyard_engine::image::Digest::of(&image(3 << 20).layers[0]).hex();
    let left = place.path("images/layers").join(format!("{first}.unpacking/tree/file-0"));
    fs::create_dir_all(left).unwrap();
    let children: Vec<_> = (0..5)
        .map(|_| {
            let mut command = again("sharing::one_of_several_processes", place.folder.path());
            command.env(PLACE, place.folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    let outputs: Vec<_> = children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    outputs.iter().for_each(assert_succeeded);
    let said = outputs.iter().map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let unpacked: usize = said.map(|out| out.matches("unpacked ").count()).sum();
    assert_eq!(unpacked, 4);
    place.assert_tidy();
}

#[tokio::test]
async fn an_image_in_use_is_not_removed_and_an_unused_one_is_with_its_layers() {
    let place = Place::new();
    let common = || Layer::new().file("common", "12345");
    let images = [
        Image::new(vec![common(), Layer::new().file("one", "123")]),
        Image::new(vec![common(), Layer::new().file("two", "1234567")]),
    ];
    let mut got = Vec::new();
    for (number, image) in images.iter().enumerate() {
        let folder = place.path(&number.to_string());
        image.write_oci(&folder, "x");
        got.push(place.obtain(&format!("oci:{}", folder.display())).await.unwrap());
    }
    let (one, two) = (got.remove(0), got.remove(0));
    assert!(place.store.remove_unused(later()).unwrap().iter().all(|one| matches!(one, Unused::File { .. })));

    let (digest, kept) = (one.digest, two.digest);
    drop(one);
    assert!(place.store.unused(SystemTime::UNIX_EPOCH).unwrap().is_empty());
    let expected = place.store.unused(later()).unwrap();
    assert_eq!(place.store.remove_unused(later()).unwrap(), expected);
    let layer = trainyard_engine::image::Digest::of(&images[0].layers[1]);
    assert_eq!(expected, [Unused::Image(digest), Unused::Layer { diff_id: layer, bytes: 3 }]);
    assert!(place.store.get(&digest).unwrap().is_none());
    let still = place.store.get(&kept).unwrap().unwrap();
    assert!(still.lowers.find("/common".as_ref()).unwrap().is_some());

    drop((two, still));
    place.store.remove_unused(later()).unwrap();
    for folder in ["images", "layers", "blobs", "incoming", "manifests"] {
        assert_eq!(place.names(folder), [""; 0], "{folder}");
    }
}

#[tokio::test]
async fn nothing_is_removed_while_an_image_is_being_obtained() {
    let place = Place::new();
    let folder = place.path("layout");
    image(1 << 20).write_oci(&folder, "x");
    let store = place.store.clone();
    let busy = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&busy);
    let how = Obtain {
        progress: Arc::new(move |_| seen.lock().unwrap().push(store.remove_unused(later()))),
        ..how()
    };
    obtain(&place.store, &format!("oci:{}", folder.display()), how).await.unwrap();
    let busy = busy.lock().unwrap();
    assert!(
        !busy.is_empty() && busy.iter().all(|one| matches!(one, Err(RemoveUnusedError::Busy))),
        "{busy:?}"
    );
}

#[tokio::test]
async fn others_can_not_enter_a_store() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let mode = fs::metadata(place.path("images")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}
