//! Files that are written: the formats, looking one row up, and the report.

use crate::inputs::channel;
use crate::support::{Pair, bits, npy_f64, read_part, run_host};
use arrow::array::AsArray;
use arrow::datatypes::{Float32Type, Int64Type};
use arrow::ipc::reader::FileReader;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Encoding;
use std::io::Read;
use std::path::Path;
use trainyard_allpairs::{LookupError, TrainReport, neighbours_of};

fn rows(count: usize) -> Vec<Vec<f64>> {
    (0..count).map(|r| vec![(r as f64).sin(), (r as f64).cos(), f64::from(r as u32 % 3)]).collect()
}

fn part(folder: &Path, hyperparameters: &[(&str, &str)], name: &str) -> (tempfile::TempDir, TrainReport) {
    let output = tempfile::tempdir().unwrap();
    let report = run_host(folder, hyperparameters, (0, 1), 2, output.path()).unwrap();
    assert!(output.path().join(name).exists());
    (output, report)
}

#[test]
fn every_format_holds_the_same_pairs() {
    let folder = channel(&[("m.npy", &npy_f64(&rows(50)))]);
    let given = |format| [("top_k", "4"), ("format", format)];
    let (output, _) = part(folder.path(), &given("parquet"), "part-algo-1.parquet");
    let expected = read_part(&output.path().join("part-algo-1.parquet"));

    let (output, _) = part(folder.path(), &given("csv"), "part-algo-1.csv");
    let text = fs_err::read_to_string(output.path().join("part-algo-1.csv")).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("row,col,similarity"));
    let parse = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let (row, col) = (fields[0].parse().unwrap(), fields[1].parse().unwrap());
        Pair { row, col, similarity: fields[2].parse().unwrap() }
    };
    assert_eq!(bits(&lines.map(parse).collect::<Vec<_>>()), bits(&expected));

    let (output, _) = part(folder.path(), &given("arrow"), "part-algo-1.arrow");
    let file = fs_err::File::open(output.path().join("part-algo-1.arrow")).unwrap();
    let mut found = Vec::new();
    for batch in FileReader::try_new(file, None).unwrap() {
        let batch = batch.unwrap();
        let number = |column: usize, at: usize| batch.column(column).as_primitive::<Int64Type>().value(at);
        found.extend((0..batch.num_rows()).map(|at| Pair {
            row: number(0, at),
            col: number(1, at),
            similarity: batch.column(2).as_primitive::<Float32Type>().value(at),
        }));
    }
    assert_eq!(bits(&found), bits(&expected));
}

fn array(archive: &mut zip::ZipArchive<fs_err::File>, name: &str) -> (String, Vec<u8>) {
    let mut bytes = Vec::new();
    archive.by_name(&format!("{name}.npy")).unwrap().read_to_end(&mut bytes).unwrap();
    let end = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    (String::from_utf8(bytes[10..end].to_vec()).unwrap(), bytes[end..].to_vec())
}

#[test]
fn a_sparse_archive_has_a_row_for_each_row_and_ascending_columns() {
    let mut matrix = rows(20);
    matrix[7] = vec![0.0; 3];
    let folder = channel(&[("m.npy", &npy_f64(&matrix))]);
    let given = [("threshold", "0.5"), ("format", "npz")];
    let output = tempfile::tempdir().unwrap();
    run_host(folder.path(), &given, (1, 3), 1, output.path()).unwrap();
    let archive = fs_err::File::open(output.path().join("part-algo-2.npz")).unwrap();
    let mut archive = zip::ZipArchive::new(archive).unwrap();
    let integers = |(_, bytes): (String, Vec<u8>)| -> Vec<i64> {
        bytes.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect()
    };
    assert_eq!(integers(array(&mut archive, "shape")), [6, 20]);
    let offsets = integers(array(&mut archive, "indptr"));
    let columns = integers(array(&mut archive, "indices"));
    let (_, scores) = array(&mut archive, "data");
    let mut found = Vec::new();
    for (row, bounds) in offsets.windows(2).enumerate() {
        let of_row = bounds[0] as usize..bounds[1] as usize;
        assert!(columns[of_row.clone()].is_sorted());
        found.extend(of_row.map(|at| Pair {
            row: row as i64 + 7,
            col: columns[at],
            similarity: f32::from_le_bytes(*scores[4 * at..].first_chunk().unwrap()),
        }));
    }
    let (output, _) = part(folder.path(), &[("threshold", "0.5")], "part-algo-1.parquet");
    let mut expected = read_part(&output.path().join("part-algo-1.parquet"));
    expected.retain(|pair| (7..13).contains(&pair.row));
    expected.sort_by_key(|pair| (pair.row, pair.col));
    assert_eq!(bits(&found), bits(&expected));
}

#[test]
fn one_row_is_looked_up_by_its_number_in_a_file_of_several_row_groups() {
    // More pairs than a row group has.
    let folder = channel(&[("m.npy", &npy_f64(&rows(1500)))]);
    let (output, report) = part(folder.path(), &[("top_k", "900")], "part-algo-1.parquet");
    assert_eq!(report.pairs, 1500 * 900);
    let path = output.path().join("part-algo-1.parquet");
    let all = read_part(&path);
    for row in [0, 1164, 1165, 1166, 1499] {
        let found = neighbours_of(&path, &row.to_string()).unwrap();
        let of_row = all.iter().filter(|pair| pair.row == row);
        let expected: Vec<_> = of_row.map(|pair| (pair.col, pair.similarity)).collect();
        let found: Vec<_> = found.neighbours.iter().map(|n| (n.number.unwrap(), n.value)).collect();
        assert_eq!(found, expected, "row {row}");
    }
    assert_eq!(neighbours_of(&path, "1500").unwrap().neighbours, []);
    assert!(matches!(neighbours_of(&path, "x"), Err(LookupError::NotANumber { .. })));
}

#[test]
fn row_groups_and_columns_are_the_same_bytes_for_any_number_of_threads() {
    let folder = channel(&[("m.npy", &npy_f64(&rows(1100)))]);
    let of_threads = [1, 2, 5].map(|threads| {
        let output = tempfile::tempdir().unwrap();
        run_host(folder.path(), &[("top_k", "1000")], (0, 1), threads, output.path()).unwrap();
        fs_err::read(output.path().join("part-algo-1.parquet")).unwrap()
    });
    assert!(of_threads.iter().all(|bytes| *bytes == of_threads[0]));
    let [bytes, ..] = of_threads;
    let metadata = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes)).unwrap();
    let groups = metadata.metadata().row_groups();
    let pairs: Vec<_> = groups.iter().map(|group| group.num_rows()).collect();
    assert_eq!(pairs, [1 << 20, 1_100_000 - (1 << 20)]);
    // Differences of row numbers take a hundredth of the bytes that the numbers take.
    assert!(groups.iter().all(|group| group.column(0).compressed_size() < 8 * group.num_rows() / 100));
}

#[test]
fn columns_are_encoded_as_fits_what_they_hold() {
    use Encoding::{DELTA_BINARY_PACKED as DIFFERENCES, PLAIN, RLE_DICTIONARY as DICTIONARY};
    let table = [
        ("m.npy", npy_f64(&rows(5)), [DIFFERENCES, DIFFERENCES, PLAIN]),
        ("m.csv", b"id,x,y\n77,1,0\n5,2,0\n6,-1,1\n".to_vec(), [DIFFERENCES, DICTIONARY, PLAIN]),
        ("m.csv", b"id,x,y\na,1,0\nb,2,0\nc,-1,1\n".to_vec(), [DICTIONARY, DICTIONARY, PLAIN]),
    ];
    for (name, bytes, expected) in table {
        let folder = channel(&[(name, &bytes)]);
        for measure in ["similarity", "distance"] {
            let (output, _) = part(folder.path(), &[("output", measure)], "part-algo-1.parquet");
            let bytes = fs_err::read(output.path().join("part-algo-1.parquet")).unwrap();
            let file = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes)).unwrap();
            for (column, expected) in file.metadata().row_group(0).columns().iter().zip(expected) {
                let of_pages = column.page_encoding_stats_mask().unwrap();
                assert!(of_pages.is_only(expected), "{expected} instead of {of_pages:?} in {name}");
            }
        }
    }
}

#[test]
fn one_row_is_looked_up_by_its_id() {
    let folder = channel(&[("m.csv", b"id,x,y\nz,1,0\na,2,0\n\xc3\xa4,-1,0\n")]);
    let (output, _) = part(folder.path(), &[("top_k", "2")], "part-algo-1.parquet");
    let path = output.path().join("part-algo-1.parquet");
    let found = neighbours_of(&path, "ä").unwrap().neighbours;
    let found: Vec<_> =
        found.iter().map(|listed| (listed.col.as_str(), listed.number, listed.value)).collect();
    assert_eq!(found, [("z", None, -1.0), ("a", None, -1.0)]);
    assert_eq!(neighbours_of(&path, "b").unwrap().neighbours, []);
}

#[test]
fn a_file_that_has_no_pairs_is_refused_with_the_reason() {
    let folder = channel(&[("m.parquet", b"PAR1"), ("m.csv", b"id,x\na,1\n")]);
    let error = neighbours_of(&folder.path().join("m.parquet"), "0").unwrap_err();
    assert_eq!(error.to_string(), "is not a readable Parquet file");
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/pyarrow-lists.parquet");
    let error = neighbours_of(&table, "0").unwrap_err();
    assert_eq!(
        error.to_string(),
        "has no pairs: it must have the columns `row`, `col` and `similarity` or `distance`"
    );
}

#[test]
fn the_report_counts_copies_unit_rows_bytes_and_scores() {
    let rows = [
        vec![3.0, 4.0],
        vec![1.0, 0.0],
        vec![0.6, 0.8],
        vec![3.0, 4.0],
        vec![0.0, 0.0],
        vec![-0.0, 0.0],
        vec![3.0, 4.0],
    ];
    let file = npy_f64(&rows);
    let folder = channel(&[("m.npy", &file)]);
    let (output, report) = part(folder.path(), &[("top_k", "6")], "part-algo-1.parquet");
    assert_eq!((report.duplicate_rows, report.unit_rows, report.already_normalised), (3, 2, false));
    assert_eq!((report.bytes_read, report.compared_pairs, report.pairs), (file.len() as u64, 42, 42));
    assert_eq!(report.scores.counts.iter().sum::<u64>(), 42);
    // The four rows in one direction with each other.
    assert_eq!(report.scores.counts[39], 12);
    let svg = fs_err::read_to_string(output.path().join("report-algo-1.svg")).unwrap();
    assert!(svg.contains("42 pairs of 7 x 2"), "{svg}");
    let unit = channel(&[("m.npy", &npy_f64(&[vec![0.6, 0.8], vec![1.0, 0.0], vec![0.0, 0.0]]))]);
    assert!(part(unit.path(), &[], "part-algo-1.parquet").1.already_normalised);
}
