//! The same matrix in every format that is read, and what is said of files that can not be.

use crate::inputs::{channel, refusal};
use crate::support::{Pair, bits, run, run_host};
use arrow::array::{Array, ArrayRef, AsArray, Float64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn table(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tables").join(name)
}

fn bytes(name: &str) -> Vec<u8> {
    fs_err::read(table(name)).unwrap()
}

fn pairs_of(name: &str, hyperparameters: &[(&str, &str)]) -> Vec<Pair> {
    run(channel(&[(name, &bytes(name))]).path(), hyperparameters, 2, 1)
}

/// Row and column as they are written, for a file whose rows have ids.
fn labels_of(name: &str, hyperparameters: &[(&str, &str)]) -> Vec<(String, String)> {
    let output = tempfile::tempdir().unwrap();
    let folder = channel(&[(name, &bytes(name))]);
    run_host(folder.path(), hyperparameters, (0, 1), 1, output.path()).unwrap();
    read_labels(&output.path().join("part-algo-1.parquet"))
}

pub(crate) fn read_labels(path: &Path) -> Vec<(String, String)> {
    let file = fs_err::File::open(path).unwrap().into_parts().0;
    let mut labels = Vec::new();
    for batch in ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap() {
        let batch = batch.unwrap();
        let text = |column: usize, at: usize| {
            let column = batch.column(column);
            if column.data_type().is_integer() {
                column.as_primitive::<Int64Type>().value(at).to_string()
            } else {
                column.as_string::<i32>().value(at).to_owned()
            }
        };
        labels.extend((0..batch.num_rows()).map(|at| (text(0, at), text(1, at))));
    }
    labels
}

fn word(row: i64) -> String {
    format!("wort-{:02}", row * 7 % 40)
}

#[test]
fn a_matrix_gives_the_same_result_in_every_format() {
    let expected = pairs_of("dense.npy", &[]);
    for name in ["fortran.npy", "numpy.csv", "one.safetensors", "v.fvecs"] {
        assert_eq!(bits(&pairs_of(name, &[])), bits(&expected), "{name}");
    }
    assert_eq!(bits(&pairs_of("two.safetensors", &[("tensor", "b")])), bits(&expected));
}

#[test]
fn the_ids_of_a_table_take_the_place_of_row_numbers() {
    let expected = pairs_of("dense.npy", &[]);
    let words: Vec<_> = expected.iter().map(|pair| (word(pair.row), word(pair.col))).collect();
    for name in [
        "lz4.feather",
        "stream.arrows",
        "dictionary.arrow",
        "pandas-index.parquet",
        "pandas-index.csv",
        "glove.tsv",
    ] {
        assert_eq!(labels_of(name, &[]), words, "{name}");
    }
    // Its numbers were written with eight digits, so only the order of near ties may differ; there are none.
    assert_eq!(labels_of("crlf.csv", &[]), words);
    let numbers: Vec<_> = expected
        .iter()
        .map(|pair| ((pair.row * 3 + 1000).to_string(), (pair.col * 3 + 1000).to_string()))
        .collect();
    assert_eq!(labels_of("zstd.arrow", &[]), numbers);
}

#[test]
fn lists_of_indices_and_values_are_a_sparse_matrix() {
    let expected = bits(&pairs_of("sparse.npz", &[]));
    assert_eq!(bits(&pairs_of("sparse-lists.feather", &[])), expected);
    let labels = labels_of("sparse-lists.parquet", &[]);
    let rows: Vec<_> = expected.iter().map(|(row, col, _)| (format!("s{row}"), format!("s{col}"))).collect();
    assert_eq!(labels, rows);
    // The widest file decides how many columns there are; one without ids does not fit one with.
    let both = channel(&[("a.npz", &bytes("sparse.npz")), ("b.feather", &bytes("sparse-lists.feather"))]);
    assert_eq!(run(both.path(), &[("top_k", "1")], 1, 1).len(), 48);
    let mixed = channel(&[
        ("a.feather", &bytes("sparse-lists.feather")),
        ("b.parquet", &bytes("sparse-lists.parquet")),
    ]);
    assert_eq!(
        refusal(mixed.path()),
        "b.parquet has ids, unlike a.feather: either all files of a matrix have ids or none has"
    );
}

#[test]
fn any_column_can_be_the_ids_and_several_files_are_joined_with_theirs() {
    let csv = |rows: &str| ["x,name,y\n", rows].concat().into_bytes();
    let files = channel(&[("a.csv", &csv("1,7,0\n0,8,2\n")), ("b.csv", &csv("1,nine,1\n"))]);
    let output = tempfile::tempdir().unwrap();
    let given = [("id_column", "name"), ("top_k", "1")];
    run_host(files.path(), &given, (0, 1), 1, output.path()).unwrap();
    let pair = |row: &str, col: &str| (row.to_owned(), col.to_owned());
    let expected = [pair("7", "nine"), pair("8", "nine"), pair("nine", "7")];
    assert_eq!(read_labels(&output.path().join("part-algo-1.parquet")), expected);
    let error = run_host(files.path(), &[("id_column", "nam")], (0, 1), 1, output.path()).unwrap_err();
    let error = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(error, "has no column `nam` that `id_column` names; there are `x`, `name`, `y`");
}

fn assert_refused(rows: &[(&str, &[u8], &str)]) {
    for (name, bytes, message) in rows {
        let found = refusal(channel(&[(name, bytes)]).path());
        assert!(
            found == *message || (message.ends_with(": ") && found.starts_with(message)),
            "{found}\n{message}"
        );
    }
}

#[test]
fn text_that_is_no_matrix_is_named_with_line_and_column() {
    assert_refused(&[
        ("m.csv", b"", "m.csv: it has no column"),
        ("m.csv", b"id\n1\n", "m.csv: it has no column"),
        ("m.csv", b"x,y\n1,2\n3\n", "m.csv: line 3 has 1 fields, the lines before it have 2"),
        ("m.csv", b"1,2\n3,abc\n", "m.csv: line 2, column 1 is `abc`: a matrix has a number everywhere"),
        ("m.csv", b"x,y\n1,2\n3,\n", "m.csv: line 3, column `y` is ``: a matrix has a number everywhere"),
        (
            "m.csv",
            b"1,NA,3\n1,2,3\n",
            "m.csv: line 1 has numbers and other texts: say with `csv_header` (`true` or `false`) whether it is a header",
        ),
        ("m.csv", b"1,\xff\n", "m.csv: is not readable as CSV: "),
        (
            "m.tsv",
            b"1\t2\n3\tinf\n",
            "row 1 of the matrix, column 1 is infinite: all entries must be finite (row 1 of m.tsv)",
        ),
        ("m.csv", b"x,y\n", "FOLDER holds no row of a matrix"),
    ]);
}

#[test]
fn a_first_line_is_a_header_if_it_is_text_or_if_that_is_said() {
    let count = |text: &str, given: &[(&str, &str)]| {
        run(channel(&[("m.csv", text.as_bytes())]).path(), given, 1, 1).len()
    };
    assert_eq!(count("x,y\n1,2\n3,4\n", &[]), 2);
    assert_eq!(count("1,2\n3,4\n5,6\n", &[]), 6);
    assert_eq!(count("1,2\n3,4\n5,6\n", &[("csv_header", "true")]), 2);
    assert_eq!(count("\u{feff}1,2\n3,4\n5,6\n", &[]), 6);
    assert_eq!(count("\u{feff}\"x\",y\r\n1,2\r\n3,4\r\n\r\n", &[]), 2);
}

#[test]
fn files_of_vectors_and_tensors_that_do_not_fit_are_named_with_the_reason() {
    let fvecs = |rows: &[&[f32]]| -> Vec<u8> {
        let row = |row: &&[f32]| -> Vec<u8> {
            let numbers = row.iter().flat_map(|value| value.to_le_bytes());
            (row.len() as i32).to_le_bytes().into_iter().chain(numbers).collect()
        };
        rows.iter().flat_map(row).collect()
    };
    let uneven = fvecs(&[&[1.0, 2.0], &[1.0, 2.0, 3.0]]);
    let cut = [fvecs(&[&[1.0, 2.0]]), vec![2, 0, 0]].concat();
    let tensors = bytes("two.safetensors");
    assert_refused(&[
        (
            "m.fvecs",
            &uneven,
            "m.fvecs: row 1, 12 bytes into the file, claims 3 numbers; the rows before it have 2 numbers",
        ),
        ("m.fvecs", &cut, "m.fvecs: row 1, 12 bytes into the file, has only 3 bytes; the file is cut"),
        (
            "m.bvecs",
            &(-1i32).to_le_bytes(),
            "m.bvecs: row 0, 0 bytes into the file, claims -1 numbers; a length is at least 1",
        ),
        ("m.ivecs", b"", "m.ivecs: it has no column"),
        ("m.safetensors", &tensors, "m.safetensors: `tensor` must name one of its matrices: `a`, `b`"),
        ("m.safetensors", b"{}", "m.safetensors: is not a readable safetensors file: "),
        ("m.arrow", b"ARROW1\0\0", "m.arrow: is not a readable Arrow file: it ends before its footer"),
        ("m.arrow", b"", "m.arrow: is not a readable Arrow file: it has no schema"),
    ]);
    #[cfg(not(feature = "hdf5"))]
    assert_refused(&[(
        "m.h5",
        b"",
        "m.h5: HDF5 is not built in: build with `--features hdf5`, or save the matrix as .npy",
    )]);
}

#[cfg(feature = "hdf5")]
#[test]
fn a_dataset_of_hdf5_is_read_packed_or_plain() {
    let expected = bits(&pairs_of("dense.npy", &[]));
    for (name, given) in [("gzip.h5", &[][..]), ("gzip.h5", &[("tensor", "/group/emb")]), ("plain.h5", &[])] {
        assert_eq!(bits(&pairs_of(name, given)), expected, "{name}");
    }
    let folder = channel(&[("m.h5", &bytes("gzip.h5"))]);
    let output = tempfile::tempdir().unwrap();
    let error = run_host(folder.path(), &[("tensor", "label")], (0, 1), 1, output.path()).unwrap_err();
    let error = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(error, "`tensor` must name one of its matrices: `group/emb`");
    for name in ["gzip.h5", "plain.h5"] {
        let good = bytes(name);
        for at in (0..good.len()).step_by(61) {
            let mut bytes = good.clone();
            bytes[at] ^= 0xff;
            read_hostile(name, &bytes);
            read_hostile(name, &good[..at]);
        }
    }
}

/// Files that are read from hostile bytes: those of the fixtures, and small ones of other kinds.
const FILES: [&str; 12] = [
    "lz4.feather",
    "zstd.arrow",
    "stream.arrows",
    "dictionary.arrow",
    "pandas-index.parquet",
    "pandas-index.csv",
    "glove.tsv",
    "one.safetensors",
    "two.safetensors",
    "v.fvecs",
    "sparse-lists.parquet",
    "sparse-lists.feather",
];

fn read_hostile(name: &str, bytes: &[u8]) {
    let output = tempfile::tempdir().unwrap();
    // Either answer is right; a panic, or memory by a number that the file claims, is not.
    let _ = run_host(channel(&[(name, bytes)]).path(), &[("top_k", "1")], (0, 1), 1, output.path());
}

#[test]
fn a_changed_byte_is_read_or_refused_but_never_a_panic() {
    for name in FILES {
        let good = bytes(name);
        for at in (0..good.len()).step_by(good.len() / 30 + 1) {
            for change in [0x01, 0xff] {
                let mut bytes = good.clone();
                bytes[at] ^= change;
                read_hostile(name, &bytes);
            }
        }
    }
}

#[test]
fn a_file_cut_anywhere_is_read_or_refused_but_never_a_panic() {
    for name in FILES {
        let good = bytes(name);
        for end in (0..good.len()).step_by(good.len() / 30 + 1) {
            read_hostile(name, &good[..end]);
        }
    }
}

#[test]
fn a_packed_buffer_that_claims_to_be_huge_is_refused_before_room_is_made() {
    let ones: ArrayRef = Arc::new(Float64Array::from_iter_values((0..4096).map(|_| 1.0)));
    let batch = RecordBatch::try_from_iter([("x", ones)]).unwrap();
    let packed = IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME)).unwrap();
    let mut good = Vec::new();
    let mut writer = FileWriter::try_new_with_options(&mut good, &batch.schema(), packed).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    drop(writer);
    assert_eq!(run(channel(&[("m.feather", &good)]).path(), &[("top_k", "1")], 1, 1).len(), 4096);
    // Each packed buffer begins with its length unpacked.
    let claim = (4096 * 8i64).to_le_bytes();
    let places: Vec<usize> = (0..good.len() - 8).filter(|at| good[*at..*at + 8] == claim).collect();
    assert!(!places.is_empty(), "nothing was packed");
    let mut bytes = good;
    for at in places {
        bytes[at..at + 8].copy_from_slice(&(1i64 << 50).to_le_bytes());
    }
    assert_refused(&[(
        "m.feather",
        &bytes,
        "m.feather: is not a readable Arrow file: a packed buffer claims to be far larger than it can be",
    )]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn no_bytes_make_a_reader_panic(content in prop::collection::vec(any::<u8>(), 0..200), text in "[-0-9.,;\"\\tab\\n]{0,80}") {
        for ending in ["npy", "npz", "parquet", "arrow", "arrows", "csv", "tsv", "safetensors", "fvecs", "bvecs", "ivecs"] {
            read_hostile(&format!("m.{ending}"), &content);
        }
        read_hostile("m.csv", text.as_bytes());
        read_hostile("m.tsv", text.as_bytes());
        // Behind the marks that each format begins with.
        let marked = |mark: &[u8]| [mark, &content].concat();
        read_hostile("m.arrow", &[&marked(b"ARROW1\0\0"), &b"\x08\0\0\0ARROW1"[..]].concat());
        read_hostile("m.arrows", &marked(b"\xff\xff\xff\xff\x40\0\0\0"));
        read_hostile("m.safetensors", &marked(b"\x20\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"F32\",\"shape\":["));
    }
}
