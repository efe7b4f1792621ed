//! What goes wrong is told apart, named, and leaves nothing behind.

use std::sync::Arc;

use arrow::array::{Array, Float32Array, Int32Array, Int64Array, RecordBatch};
use fs_err as fs;
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use trainyard_merge::{MergeError, MergeOptions, merge};

use crate::archives::*;

#[test]
fn no_part_lists_what_the_archive_holds() {
    let names: Vec<String> = (0..30).map(|n| format!("file-{n:02}.bin")).collect();
    let entries: Vec<Entry<'_>> = names.iter().map(|name| (None, name.as_str(), vec![1])).collect();
    let place = Place::gzipped(&entries);
    let error = place.error("all.csv", &by_host());
    assert!(error.contains("no file ends in .parquet, .csv, .jsonl, .arrow, .npy or .npz"), "{error}");
    assert!(
        error.contains("file-00.bin, file-01.bin") && error.contains("file-19.bin and 10 more"),
        "{error}"
    );
    let options = MergeOptions { glob: Some("part-*.csv".to_owned()), ..by_host() };
    let error = place.error("all.csv", &options);
    assert!(error.contains("no file fits part-*.csv"), "{error}");
    let error = Place::gzipped(&[]).error("all.csv", &by_host());
    assert!(error.contains("it holds no files"), "{error}");
}

#[test]
fn outputs_and_patterns_that_can_not_be_are_refused_before_anything_is_read() {
    let place = Place::with_archive(b"never read");
    assert!(
        place
            .error("all.txt", &by_host())
            .contains("does not end in .parquet, .csv, .jsonl, .arrow, .npy or .npz")
    );
    let options = MergeOptions { glob: Some("x[".to_owned()), ..by_host() };
    assert!(place.error("all.csv", &options).contains("\"x[\" is not a pattern"));
}

#[test]
fn parts_of_several_formats_or_of_none_are_named() {
    let place = Place::gzipped(&[
        (None, "part-1.csv", b"x\n".to_vec()),
        (None, "notes.jsonl", b"".to_vec()),
        (None, "part-1.log", b"".to_vec()),
    ]);
    let error = place.error("all.csv", &by_host());
    assert!(error.contains("part-1.csv and notes.jsonl are of different formats"), "{error}");
    let error = place.error("all.csv", &MergeOptions { glob: Some("part-*".to_owned()), ..by_host() });
    assert!(error.contains("part-1.log does not end in"), "{error}");
}

#[test]
fn arrays_and_tables_do_not_become_each_other() {
    let place = parts(&[npy("<f4", "(1,)", &[0; 4])], "npy");
    assert!(place.error("all.csv", &by_host()).contains(".npy parts can not be merged into a .csv file"));
    assert!(place.error("all.npy", &by("row")).contains("no named columns"));
    let place = parts(&[b"x\n1\n".to_vec()], "csv");
    assert!(place.error("all.npy", &by_host()).contains(".csv parts can not be merged into a .npy file"));
}

#[test]
fn a_csv_part_that_does_not_fit_is_named() {
    let table: [(&[u8], &[&str]); 3] = [
        (b"row,sim\n", &["part-algo-2.csv", "header is \"row,sim\"", "part-algo-1.csv has \"row,col\""]),
        (b"row,col\n1,2\n3\n", &["part-algo-2.csv", "line: 3", "1 field"]),
        (b"row,col\n1,2,3\n", &["part-algo-2.csv", "line: 2", "3 fields"]),
    ];
    for (second, expected) in table {
        let place = parts(&[b"row,col\n1,2\n".to_vec(), second.to_vec()], "csv");
        for (output, options) in [("all.csv", by_host()), ("all.csv", by("row")), ("all.parquet", by_host())]
        {
            let error = place.error(output, &options);
            assert!(expected.iter().all(|text| error.contains(text)), "{error}");
        }
    }
}

#[test]
fn a_json_line_that_is_none_is_named_with_its_number() {
    let table: [(&[u8], &str); 7] = [
        (b"{\"a\":1}\n\n{\"a\":\n", "line 3 is not a JSON object"),
        (b"{\"a\":1}\n[1]\n", "line 2 is not a JSON object"),
        (b"{\"a\":1} {\"a\":2}\n", "line 1 is not a JSON object"),
        (b"7\n", "line 1 is not a JSON object"),
        (b"{\"a\":1e999}\n", "line 1 is not a JSON object"),
        (b"{\"a\":\"\xff\"}\n", "line 1 is not UTF-8"),
        (b"{\"a\":1}\n\xff\n", "line 2 is not UTF-8"),
    ];
    for (second, expected) in table {
        let place = parts(&[b"{\"a\":0}\n".to_vec(), second.to_vec()], "jsonl");
        for (output, options) in [("all.jsonl", by_host()), ("all.jsonl", by("a")), ("all.csv", by_host())] {
            // A number beyond f64 is an object all the same, as long as nobody needs its value.
            if expected.starts_with("line 1 is not a JSON") && second.contains(&b'e') && output == "all.jsonl"
            {
                continue;
            }
            let error = place.error(output, &options);
            assert!(error.contains("part-algo-2.jsonl") && error.contains(expected), "{output}: {error}");
        }
    }
    let place = parts(&[b"{\"a\":0}\n".to_vec(), b"{\"a\":1}\n{\"a\":[1]}\n".to_vec()], "jsonl");
    let error = place.error("all.parquet", &by_host());
    assert!(error.contains("line 2 has an array at \"a\", where a plain value stood before"), "{error}");
}

#[test]
fn a_parquet_part_that_does_not_fit_is_named_with_the_difference() {
    let wide: Arc<dyn Array> = Arc::new(Int64Array::from(vec![1]));
    let narrow: Arc<dyn Array> = Arc::new(Int32Array::from(vec![1]));
    let part = |columns: Vec<(&str, &Arc<dyn Array>)>| {
        let columns = columns.into_iter().map(|(name, column)| (name, Arc::clone(column)));
        parquet(&RecordBatch::try_from_iter(columns).unwrap(), 10)
    };
    let first = part(vec![("row", &wide), ("col", &wide)]);
    let table = [
        (part(vec![("row", &wide), ("col", &narrow)]), "column 2 is col (Int32) instead of col (Int64)"),
        (part(vec![("row", &wide)]), "column col (Int64) is missing"),
        (part(vec![("row", &wide), ("col", &wide), ("x", &narrow)]), "column x (Int32) is too many"),
        (b"PAR1 no".to_vec(), "not readable Parquet"),
        (Vec::new(), "not readable Parquet"),
    ];
    for (second, expected) in table {
        let place = parts(&[first.clone(), second], "parquet");
        let error = place.error("all.parquet", &by_host());
        assert!(error.contains("part-algo-2.parquet") && error.contains(expected), "{error}");
    }
    let twice = part(vec![("a", &wide), ("b", &wide)]);
    let mut csv = parts(&[twice], "parquet").merge("x.csv", &by_host()).unwrap();
    csv[2] = b'a';
    assert!(parts(&[csv], "csv").error("all.jsonl", &by_host()).contains("header has \"a\" twice"));
}

/// Lists of one row, for a merge of two instances.
fn lists(version: u32, host: usize) -> Vec<u8> {
    let row: Arc<dyn Array> = Arc::new(Int64Array::from(vec![0]));
    let columns =
        [("row", Arc::clone(&row)), ("col", row), ("score", Arc::new(Float32Array::from(vec![0.5])))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let text = format!(r#"{{"version":{version},"top_k":3,"once":false,"host":{host},"hosts":2}}"#);
    let of_lists = KeyValue::new("trainyard.partial".to_owned(), text);
    let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![of_lists])).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

/// Between versions pairs are dealt out to instances in another way, so that some would be there twice and others never.
#[test]
fn lists_of_two_versions_are_not_combined() {
    for (versions, expected) in [
        ([1, 1], None),
        ([2, 2], None),
        ([1, 2], Some("its lists are whole or were made with other settings or another version")),
        ([2, 1], Some("its lists are whole or were made with other settings or another version")),
        ([2, 3], Some("is not understood by this version")),
    ] {
        let place = parts(&[lists(versions[0], 0), lists(versions[1], 1)], "parquet");
        let error = place.merge("all.parquet", &by_host()).err().map(|error| chain(&error));
        let fits = match (&error, expected) {
            (Some(error), Some(expected)) => error.contains(expected),
            (error, expected) => error.is_none() && expected.is_none(),
        };
        assert!(fits, "{versions:?}: {error:?}");
    }
}

#[test]
fn an_array_that_does_not_fit_is_named() {
    let first = npy("<f4", "(1, 2)", &[0; 8]);
    let table = [
        (npy("<f8", "(1, 2)", &[0; 16]), "rows are <f8 × 2, but those of part-algo-1.npy are <f4 × 2"),
        (npy("<f4", "(1, 3)", &[0; 12]), "rows are <f4 × 3"),
        (npy("<f4", "(2,)", &[0; 8]), "rows are <f4,"),
        (npy("<f4", "(1, 2)", &[0; 7]), "promises 8 bytes of values, but 7 follow"),
        (npy("<f4", "(1, 2)", &[0; 9]), "promises 8 bytes of values, but 9 follow"),
        (npy("<f4", "(99999999999999, 99999999999999)", &[0; 8]), "bytes of values, but 8 follow"),
        (first[..40].to_vec(), "ends within its header"),
        (b"\x93NUMP".to_vec(), "ends within its header"),
        (b"not an array at all".to_vec(), "not a NumPy array"),
    ];
    for (second, expected) in table {
        let error = parts(&[first.clone(), second], "npy").error("all.npy", &by_host());
        assert!(error.contains("part-algo-2.npy") && error.contains(expected), "{error}");
    }
}

#[test]
fn a_broken_archive_names_the_entry_and_the_offset() {
    let entries = [
        (None, "a.csv", b"x\n1\n".to_vec()),
        (None, "b.csv", [b"x\n".to_vec(), b"2\n".repeat(4000)].concat()),
    ];
    let tar = tar(&entries);
    let cut_in_b = Place::with_archive(&tar[..3000]).error("all.csv", &by_host());
    assert!(cut_in_b.contains("is broken in b.csv, at byte 3000"), "{cut_in_b}");
    let cut_between = Place::with_archive(&tar[..1024]).error("all.csv", &by_host());
    assert!(cut_between.contains("is broken after a.csv, at byte 1024"), "{cut_between}");
    let mut damaged = tar.clone();
    damaged[1024] ^= 1;
    let damaged = Place::with_archive(&damaged).error("all.csv", &by_host());
    assert!(
        damaged.contains("is broken after a.csv, at byte 1536") && damaged.contains("checksum"),
        "{damaged}"
    );
    let none = Place::with_archive(b"hello").error("all.csv", &by_host());
    assert!(none.contains("is broken before its first entry"), "{none}");

    let gzipped = gzip(&tar);
    for cut in [3, gzipped.len() / 2, gzipped.len() - 1] {
        let error = Place::with_archive(&gzipped[..cut]).error("all.csv", &by_host());
        assert!(error.contains("is broken"), "{cut}: {error}");
    }
    let mut checksum = gzipped.clone();
    let at = checksum.len() - 8;
    checksum[at] ^= 1;
    let error = Place::with_archive(&checksum).error("all.csv", &by_host());
    assert!(error.contains("is broken after b.csv") && error.contains("checksum"), "{error}");
}

#[test]
fn an_archive_that_is_not_there_is_told_apart() {
    let place = Place::with_archive(b"");
    let error = merge(&place.path().join("none.tar.gz"), &place.path().join("all.csv"), &by_host(), &|_| {});
    assert!(matches!(error, Err(MergeError::Open { .. })), "{error:?}");
}

#[test]
fn an_output_that_can_not_be_written_is_told_apart() {
    let place = parts(&[b"x\n1\n".to_vec()], "csv");
    let folder = place.path().join("folder.csv");
    fs::create_dir(&folder).unwrap();
    for output in [place.path().join("none/all.csv"), folder, "/proc/all.csv".into()] {
        let error = merge(&place.archive(), &output, &by_host(), &|_| {}).unwrap_err();
        assert!(matches!(error, MergeError::Unwritable { .. }), "{error:?}");
        assert!(chain(&error).contains("can not be written"), "{error}");
    }
}

#[test]
fn a_failed_merge_leaves_the_earlier_output_as_it_was() {
    let place = parts(&[b"x\n1\n".to_vec(), b"y\n1\n".to_vec()], "csv");
    fs::write(place.path().join("all.csv"), "earlier").unwrap();
    place.error("all.csv", &by_host());
    assert_eq!(fs::read_to_string(place.path().join("all.csv")).unwrap(), "earlier");
}

#[test]
fn a_panic_in_the_callers_progress_leaves_nothing_behind() {
    let place = parts(&[b"x\n1\n".to_vec()], "csv");
    let output = place.path().join("all.csv");
    let merging =
        std::panic::AssertUnwindSafe(|| merge(&place.archive(), &output, &by_host(), &|_| panic!("stop")));
    assert!(std::panic::catch_unwind(merging).is_err());
    assert_eq!(place.names(), ["model.tar.gz"]);
}
