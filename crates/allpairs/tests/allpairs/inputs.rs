//! Files: what can be read, and what is said of what can not.

use crate::exactness::write_npz_by;
use crate::support::{bits, npy, npy_f64, run, run_host};
use arrow::array::{
    ArrayRef, FixedSizeListArray, Float16Array, Float32Array, Float64Array, Int32Array, ListArray,
    RecordBatch, StringArray,
};
use arrow::datatypes::{Float32Type, Float64Type};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use zip::CompressionMethod;

fn fixture(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

pub(crate) fn channel(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        fs_err::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

fn parquet(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

/// The error of a run with all its causes, the folder's own path left out.
pub(crate) fn refusal(folder: &Path) -> String {
    let output = tempfile::tempdir().unwrap();
    let error = run_host(folder, &[], (0, 1), 1, output.path()).unwrap_err();
    assert_eq!(fs_err::read_dir(output.path()).unwrap().count(), 0, "something was left behind");
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text = format!("{text}: {source}");
        cause = source.source();
    }
    text.replace(&format!("{}/", folder.display()), "").replace(&folder.display().to_string(), "FOLDER")
}

fn integers() -> Vec<Vec<f64>> {
    (0..30).map(|r| (0..5).map(|c| f64::from((r * 7 + c * 3) % 11 + 1)).collect()).collect()
}

fn numbers<const N: usize>(rows: &[Vec<f64>], encode: impl Fn(f64) -> [u8; N]) -> Vec<u8> {
    rows.iter().flatten().flat_map(|v| encode(*v)).collect()
}

#[test]
fn every_number_type_order_and_layout_gives_the_same_result() {
    let rows = integers();
    let expected = bits(&run(channel(&[("m.npy", &npy_f64(&rows))]).path(), &[], 1, 1));
    let stored: Vec<(&str, Vec<u8>)> = vec![
        ("|i1", numbers(&rows, |v| (v as i8).to_le_bytes())),
        ("|u1", numbers(&rows, |v| (v as u8).to_le_bytes())),
        ("<i2", numbers(&rows, |v| (v as i16).to_le_bytes())),
        (">u2", numbers(&rows, |v| (v as u16).to_be_bytes())),
        ("<i4", numbers(&rows, |v| (v as i32).to_le_bytes())),
        (">u4", numbers(&rows, |v| (v as u32).to_be_bytes())),
        ("<i8", numbers(&rows, |v| (v as i64).to_le_bytes())),
        (">u8", numbers(&rows, |v| (v as u64).to_be_bytes())),
        ("<f2", numbers(&rows, |v| half::f16::from_f64(v).to_le_bytes())),
        (">f2", numbers(&rows, |v| half::f16::from_f64(v).to_be_bytes())),
        ("<V2", numbers(&rows, |v| half::bf16::from_f64(v).to_le_bytes())),
        (">f4", numbers(&rows, |v| (v as f32).to_be_bytes())),
        (">f8", numbers(&rows, f64::to_be_bytes)),
    ];
    for (descr, bytes) in stored {
        let channel = channel(&[("m.npy", &npy(descr, false, (30, 5), &bytes))]);
        assert_eq!(bits(&run(channel.path(), &[], 2, 1)), expected, "{descr}");
    }
    let by_columns: Vec<Vec<f64>> = (0..5).map(|c| rows.iter().map(|row| row[c]).collect()).collect();
    let bytes = npy("<f8", true, (30, 5), &numbers(&by_columns, f64::to_le_bytes));
    assert_eq!(bits(&run(channel(&[("m.npy", &bytes)]).path(), &[], 2, 1)), expected, "by columns");
}

#[test]
fn parquet_of_columns_and_of_lists_gives_the_same_result() {
    let rows = integers();
    let expected = bits(&run(channel(&[("m.npy", &npy_f64(&rows))]).path(), &[], 1, 1));
    let column = |c: usize| rows.iter().map(move |row| row[c]);
    let columns = parquet(vec![
        ("a", Arc::new(Float64Array::from_iter_values(column(0)))),
        ("b", Arc::new(Float32Array::from_iter_values(column(1).map(|v| v as f32)))),
        ("c", Arc::new(Int32Array::from_iter_values(column(2).map(|v| v as i32)))),
        ("d", Arc::new(Float16Array::from_iter_values(column(3).map(half::f16::from_f64)))),
        ("e", Arc::new(Float64Array::from_iter_values(column(4)))),
    ]);
    let item = |row: &Vec<f64>| Some(row.iter().map(|v| Some(*v)).collect::<Vec<_>>());
    let lists = ListArray::from_iter_primitive::<Float64Type, _, _>(rows.iter().map(item));
    let item = |row: &Vec<f64>| Some(row.iter().map(|v| Some(*v as f32)).collect::<Vec<_>>());
    let fixed = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(rows.iter().map(item), 5);
    for bytes in [columns, parquet(vec![("v", Arc::new(lists))]), parquet(vec![("v", Arc::new(fixed))])] {
        assert_eq!(bits(&run(channel(&[("m.parquet", &bytes)]).path(), &[], 3, 2)), expected);
    }
}

/// A file of many columns in small row groups, ids among them; perhaps with a gap.
fn many_columns(rows: &[Vec<f64>], gap: Option<(usize, usize)>) -> Vec<u8> {
    let mut columns: Vec<(String, ArrayRef)> = (0..rows[0].len())
        .map(|c| {
            let value = |(r, row): (usize, &Vec<f64>)| (gap != Some((r, c))).then_some(row[c]);
            let column: Float64Array = rows.iter().enumerate().map(value).collect();
            (format!("c{c}"), Arc::new(column) as ArrayRef)
        })
        .collect();
    let ids: Int32Array = (0..rows.len() as i32).collect();
    columns.insert(5, ("id".to_owned(), Arc::new(ids)));
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let groups = WriterProperties::builder().set_max_row_group_row_count(Some(7)).build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(groups)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

#[test]
fn parquet_of_many_columns_is_the_matrix_that_it_was_made_of_row_group_by_row_group() {
    let rows: Vec<Vec<f64>> =
        (0..40).map(|r| (0..37).map(|c| f64::from((r * 7 + c * 3) % 23) - 9.0).collect()).collect();
    let expected = bits(&run(channel(&[("m.npy", &npy_f64(&rows))]).path(), &[], 1, 1));
    let whole = many_columns(&rows, None);
    // Ids equal the numbers of their rows.
    assert_eq!(bits(&run(channel(&[("m.parquet", &whole)]).path(), &[], 1, 1)), expected);
    let gap = many_columns(&rows, Some((24, 30)));
    assert_refused(&[(
        "m.parquet",
        gap,
        "m.parquet: row 24, column `c30` is null: a matrix has a number everywhere",
    )]);
}

#[test]
fn several_files_are_one_matrix_in_the_order_of_their_names() {
    let rows = integers();
    let expected = bits(&run(channel(&[("m.npy", &npy_f64(&rows))]).path(), &[], 1, 1));
    let middle = numbers(&rows[7..9], |v| (v as i8).to_le_bytes());
    let column = |c: usize| -> ArrayRef {
        Arc::new(Float32Array::from_iter_values(rows[9..20].iter().map(|row| row[c] as f32)))
    };
    let split = channel(&[
        ("0.npy", &npy_f64(&rows[..7])),
        ("1.npy", &npy("|i1", false, (2, 5), &middle)),
        (
            "10.parquet",
            &parquet(vec![
                ("a", column(0)),
                ("b", column(1)),
                ("c", column(2)),
                ("d", column(3)),
                ("e", column(4)),
            ]),
        ),
        ("2.npy", &npy_f64(&rows[20..])),
        ("3.npy", &npy("<f8", false, (0, 5), &[])),
    ]);
    assert_eq!(bits(&run(split.path(), &[], 4, 2)), expected);
}

#[test]
fn archives_of_scipy_are_read_as_scipy_reads_them() {
    let table = ["csr-i4", "csr-i8-stored", "csr-unsorted-duplicates", "csr-int-data"];
    for name in table {
        let sparse = channel(&[("m.npz", &fs_err::read(fixture(&format!("{name}.npz"))).unwrap())]);
        let dense = channel(&[("m.npy", &fs_err::read(fixture(&format!("{name}.npy"))).unwrap())]);
        for hyperparameters in
            [&[("top_k", "40")][..], &[("threshold", "0")], &[("threshold", "0.2"), ("top_k", "3")]]
        {
            let found = bits(&run(sparse.path(), hyperparameters, 3, 1));
            assert_eq!(found, bits(&run(dense.path(), hyperparameters, 1, 2)), "{name} {hyperparameters:?}");
        }
    }
}

/// Rows of which the entries take several of the pieces that are read at a time.
fn many_entries() -> Vec<Vec<f64>> {
    (0..300).map(|row| (0..200).map(|column| f64::from((row * 37 + column * 11) % 101)).collect()).collect()
}

#[test]
fn a_large_archive_is_read_piece_by_piece_whether_it_is_compressed_or_not() {
    let dense = channel(&[("m.npy", &npy_f64(&many_entries()))]);
    let expected = bits(&run(dense.path(), &[], 1, 1));
    for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
        let sparse = channel(&[]);
        write_npz_by(method, &sparse.path().join("m.npz"), &many_entries());
        for threads in [1, 2] {
            assert_eq!(bits(&run(sparse.path(), &[], 1, threads)), expected, "{method} {threads}");
        }
    }
}

#[test]
fn an_archive_that_was_changed_is_refused_by_its_checksum() {
    let folder = channel(&[]);
    let path = folder.path().join("m.npz");
    write_npz_by(CompressionMethod::Stored, &path, &many_entries());
    let whole = fs_err::read(&path).unwrap();
    // The lowest bit of a value in the middle, and in the last piece.
    for part in [2, 10] {
        let mut bytes = whole.clone();
        let at = whole.len() - whole.len() / part;
        bytes[at] ^= 1;
        fs_err::write(&path, bytes).unwrap();
        assert_eq!(refusal(folder.path()), "m.npz: can not be read: Invalid checksum");
    }
}

#[test]
fn a_file_of_pyarrow_is_read() {
    let lists = channel(&[("m.parquet", &fs_err::read(fixture("pyarrow-lists.parquet")).unwrap())]);
    let dense = channel(&[("m.npy", &fs_err::read(fixture("pyarrow-lists.npy")).unwrap())]);
    assert_eq!(bits(&run(lists.path(), &[], 1, 1)), bits(&run(dense.path(), &[], 1, 1)));
}

#[test]
fn what_is_no_number_is_refused_with_its_place() {
    let mut rows = integers();
    rows[17][3] = f64::NAN;
    let files = channel(&[("a.npy", &npy_f64(&rows[..10])), ("b.npy", &npy_f64(&rows[10..]))]);
    assert_eq!(
        refusal(files.path()),
        "row 17 of the matrix, column 3 is NaN: all entries must be finite (row 7 of b.npy)"
    );
    rows[2][0] = f64::NEG_INFINITY;
    let files = channel(&[("a.npy", &npy_f64(&rows))]);
    assert_eq!(
        refusal(files.path()),
        "row 2 of the matrix, column 0 is infinite: all entries must be finite (row 2 of a.npy)"
    );
    let sparse = channel(&[("m.npz", &fs_err::read(fixture("csr-nan.npz")).unwrap())]);
    assert_eq!(
        refusal(sparse.path()),
        "row 4 of the matrix, column 6 is NaN: all entries must be finite (row 4 of m.npz)"
    );
}

fn assert_refused(table: &[(&str, Vec<u8>, &str)]) {
    for (name, bytes, message) in table {
        let found = refusal(channel(&[(name, bytes)]).path());
        // What follows a colon at the end are the words of a library.
        assert!(
            found == *message || (message.ends_with(": ") && found.starts_with(message)),
            "{found}\n{message}"
        );
    }
}

#[test]
fn an_array_that_can_not_be_a_matrix_is_named_with_the_reason() {
    let good = npy_f64(&integers());
    let huge = usize::MAX;
    assert_refused(&[
        ("m.npy", b"hello".to_vec(), "m.npy: is not a .npy file: its first bytes are not those of one"),
        ("m.npy", Vec::new(), "m.npy: is not a .npy file: its first bytes are not those of one"),
        (
            "m.npy",
            good[..good.len() - 8].to_vec(),
            "m.npy: shape (30, 5) needs 1200 bytes behind the header, the file has 1192",
        ),
        (
            "m.npy",
            [good, vec![0]].concat(),
            "m.npy: shape (30, 5) needs 1200 bytes behind the header, the file has 1201",
        ),
        (
            "m.npy",
            npy("<f8", false, (huge, huge), &[]),
            "m.npy: shape (18446744073709551615, 18446744073709551615) needs \
             340282366920938463463374607431768211455 bytes behind the header, the file has 0",
        ),
        (
            "m.npy",
            npy("<c8", false, (1, 1), &[0; 8]),
            "m.npy: its numbers are of type <c8; floats of 16 to 64 bits and integers are read",
        ),
        ("m.npy", npy("<f4", false, (7, 0), &[]), "m.npy: it has no column"),
        ("m.npy", npy("<f4", false, (0, 7), &[]), "FOLDER holds no row of a matrix"),
        (
            "m.xls",
            b"1,2".to_vec(),
            "m.xls: the ending is not known; a matrix is made of .npy, .npz, .parquet, .arrow, .feather, .arrows, .csv, \
             .tsv, .safetensors, .fvecs, .bvecs, .ivecs or .h5 files",
        ),
    ]);
    assert_eq!(refusal(channel(&[]).path()), "FOLDER holds no file of a matrix");
}

#[test]
fn an_archive_that_is_no_csr_matrix_is_named_with_the_reason() {
    let npz = |name: &str| fs_err::read(fixture(name)).unwrap();
    assert_refused(&[
        ("m.npz", b"PK".to_vec(), "m.npz: is not a readable .npz archive: "),
        (
            "m.npz",
            npz("csc.npz"),
            "m.npz: is a sparse matrix in `csc` form; convert it with .tocsr() before it is saved",
        ),
        (
            "m.npz",
            npz("savez.npz"),
            "m.npz: has no array `format`: a sparse matrix is one in CSR form as scipy.sparse.save_npz writes it",
        ),
    ]);
}

#[test]
fn a_table_that_is_no_matrix_is_named_with_the_reason() {
    let text: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let gap: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.0), None]));
    let lists = |rows: Vec<Vec<Option<f64>>>| -> ArrayRef {
        Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>(rows.into_iter().map(Some)))
    };
    assert_refused(&[
        ("m.parquet", b"PAR1".to_vec(), "m.parquet: is not a readable Parquet file: "),
        (
            "m.parquet",
            parquet(vec![("x", Arc::clone(&gap)), ("word", text)]),
            "m.parquet: column `word` is of type Utf8: either all columns are numbers, or one is a list of numbers, or \
             there are lists `indices` and `values`; `id_column` names a column of ids",
        ),
        (
            "m.parquet",
            parquet(vec![("x", gap)]),
            "m.parquet: row 1, column `x` is null: a matrix has a number everywhere",
        ),
        (
            "m.parquet",
            parquet(vec![("v", lists(vec![vec![Some(1.0); 2], vec![Some(1.0)]]))]),
            "m.parquet: row 1 has 1 numbers, the rows before it have 2",
        ),
        (
            "m.parquet",
            parquet(vec![("v", lists(vec![vec![Some(1.0), None]]))]),
            "m.parquet: row 0, column `v` is null: a matrix has a number everywhere",
        ),
    ]);
}

#[test]
fn files_that_do_not_fit_each_other_are_both_named() {
    let narrow: Vec<Vec<f64>> = integers().iter().map(|row| row[..4].to_vec()).collect();
    let files = channel(&[("a.npy", &npy_f64(&integers())), ("b.npy", &npy_f64(&narrow[..6]))]);
    assert_eq!(
        refusal(files.path()),
        "b.npy: shape (6, 4) does not fit a.npy, whose shape is (30, 5): all files need the same number of columns"
    );
    let sparse = fs_err::read(fixture("csr-i4.npz")).unwrap();
    let files = channel(&[("a.npy", &npy_f64(&integers())), ("b.npz", &sparse)]);
    assert_eq!(
        refusal(files.path()),
        "b.npz and a.npy can not be one matrix: one is sparse, the other dense"
    );
}

#[test]
fn a_file_with_any_byte_changed_is_read_or_refused_but_never_a_panic() {
    for name in ["csr-i4.npz", "csr-i8-stored.npz", "pyarrow-lists.parquet", "csr-i4.npy"] {
        let good = fs_err::read(fixture(name)).unwrap();
        for at in (0..good.len()).step_by(good.len() / 100 + 1) {
            for change in [0x01, 0x80, 0xff] {
                let mut bytes = good.clone();
                bytes[at] ^= change;
                let output = tempfile::tempdir().unwrap();
                let _ = run_host(channel(&[(name, &bytes)]).path(), &[], (0, 1), 1, output.path());
            }
        }
    }
}
