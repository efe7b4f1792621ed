//! Images that are written are images that can be read.

use fs_err as fs;
use trainyard_engine::image::{ExportError, ProgramImage};

use crate::support::Place;

fn image(program: &std::path::Path) -> ProgramImage {
    ProgramImage {
        program: program.to_owned(),
        name: "program".to_owned(),
        alias: "train".to_owned(),
        tags: vec!["team/fit:1".to_owned()],
        labels: vec![("a".to_owned(), "b".to_owned())],
    }
}

#[tokio::test]
async fn a_written_image_is_read_as_an_archive_of_both_kinds() {
    let place = Place::new();
    let (program, archive) = (place.path("any"), place.path("image.tar"));
    fs::write(&program, "needs nothing").unwrap();
    image(&program).write(fs::File::create(&archive).unwrap()).unwrap();
    let mut digests = Vec::new();
    for form in ["docker-archive", "oci-archive"] {
        let got = place.obtain(&format!("{form}:{}", archive.display())).await.unwrap();
        for name in ["/usr/local/bin/program", "/usr/local/bin/train"] {
            let found = got.lowers.find(name.as_ref()).unwrap().unwrap();
            assert_eq!(fs::read_to_string(found).unwrap(), "needs nothing");
        }
        assert_eq!(got.config.cmd, ["train"]);
        assert_eq!(got.config.entrypoint, [""; 0]);
        assert_eq!(got.config.labels["a"], "b");
        digests.push(got.digest);
    }
    assert_eq!(digests[0], digests[1]);
    place.assert_tidy();
}

#[test]
fn the_same_program_is_the_same_image() {
    let place = Place::new();
    let written = |name: &str| {
        let program = place.path(name);
        fs::write(&program, "program").unwrap();
        let mut archive = Vec::new();
        image(&program).write(&mut archive).unwrap();
        archive
    };
    assert_eq!(written("one"), written("two"));
}

#[test]
fn a_program_that_needs_libraries_makes_no_image() {
    let own = std::env::current_exe().unwrap();
    let mut archive = Vec::new();
    let error = image(&own).write(&mut archive).unwrap_err();
    assert!(matches!(&error, ExportError::Dynamic { .. }));
    assert!(error.to_string().contains("linked dynamically"), "{error}");
    assert_eq!(archive, b"");
}
