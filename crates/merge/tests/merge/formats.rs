//! Every format, joined by host, and from one to the other.

use std::sync::Arc;

use arrow::array::{Array, AsArray, Float32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema};
use fs_err as fs;
use parquet::file::reader::{FileReader, SerializedFileReader};
use trainyard_merge::{MergeOptions, Warning};

use crate::archives::*;

fn text(result: Vec<u8>) -> String {
    String::from_utf8(result).unwrap()
}

#[test]
fn parts_are_joined_in_number_order_of_their_hosts_and_both_of_one_path_are_kept() {
    let place = Place::gzipped(&[
        (Some("algo-10"), "part.csv", b"row,x\n10,j\n".to_vec()),
        (Some("algo-2"), "part.csv", b"row,x\n2,b\n".to_vec()),
        (None, "other.csv", b"row,x\n99,z\n".to_vec()),
        (None, "./part-algo-1.csv", b"row,x\n1,a\n".to_vec()),
        (Some("algo-2"), "b/part.csv", b"row,x\n3,c\n".to_vec()),
        (Some("algo-2"), "README.md", b"not a part".to_vec()),
    ]);
    let report = place.report("all.csv", &by_host()).unwrap();
    let all = text(fs::read(place.path().join("all.csv")).unwrap());
    assert_eq!(all, "row,x\n1,a\n3,c\n2,b\n10,j\n99,z\n");
    assert_eq!(report.parts, 5);
    assert_eq!((report.skipped.count, report.skipped.first), (1, vec!["README.md".to_owned()]));
    assert_eq!(report.warnings, [Warning::SamePath { path: "part.csv".to_owned(), parts: 2 }]);
}

#[test]
fn csv_headers_come_once_and_quoting_stays_right() {
    let place = parts(
        &[
            b"\xef\xbb\xbfname,\"a, b\"\r\n\"say \"\"hi\"\"\",1\r\n".to_vec(),
            b"".to_vec(),
            b"name,\"a, b\"\n".to_vec(),
            b"name,\"a, b\"\n\"two\nlines\",\xff\nlast,".to_vec(),
        ],
        "csv",
    );
    let expected = b"name,\"a, b\"\n\"say \"\"hi\"\"\",1\n\"two\nlines\",\xff\nlast,\n";
    assert_eq!(place.merge("all.csv", &by_host()).unwrap(), expected);
}

#[test]
fn empty_csv_parts_make_an_empty_file() {
    let place = parts(&[b"".to_vec(), b"".to_vec()], "csv");
    assert_eq!(place.merge("all.csv", &by("row")).unwrap(), b"");
    assert_eq!(read_parquet(place.merge("all.parquet", &by("row")).unwrap()).num_rows(), 0);
}

#[test]
fn json_lines_are_kept_as_they_are_with_one_newline_each() {
    let place =
        parts(&[b"\xef\xbb\xbf{\"a\": 1}\r\n\n  {\"a\":2 }".to_vec(), b"{\"b\":[1,{}]}\n".to_vec()], "jsonl");
    let expected = "{\"a\": 1}\n{\"a\":2 }\n{\"b\":[1,{}]}\n";
    assert_eq!(text(place.merge("all.jsonl", &by_host()).unwrap()), expected);
}

#[test]
fn npy_rows_are_put_one_behind_the_other() {
    let values: Vec<u8> = (0..40).collect();
    let whole = npy("<f4", "(5, 2)", &values);
    let mut version_3 = npy("<f4", "(2, 2)", &values[24..]);
    let header = version_3.split_off(10);
    version_3 =
        [b"\x93NUMPY\x03\x00", &(u32::try_from(header.len() - 16).unwrap()).to_le_bytes()[..], &header]
            .concat();
    let place = parts(&[npy("<f4", "(3, 2)", &values[..24]), npy("<f4", "(0, 2)", &[]), version_3], "npy");
    let merged = place.merge("all.npy", &by_host()).unwrap();
    assert_eq!(merged[merged.len() - 40..], whole[whole.len() - 40..]);
    let header = String::from_utf8_lossy(&merged[10..merged.len() - 40]).into_owned();
    assert!(header.starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': (5, 2), }"), "{header}");
    assert_eq!((merged.len() - 40) % 64, 0);
}

fn pairs(rows: &[i64], nullable: bool) -> RecordBatch {
    let schema = Schema::new(vec![
        Field::new("row", DataType::Int64, nullable),
        Field::new("similarity", DataType::Float32, false),
    ]);
    let similarity: Vec<f32> = rows.iter().map(|&row| row as f32 / 7.0).collect();
    RecordBatch::try_new(
        Arc::new(schema.with_metadata([("pandas".to_owned(), format!("{rows:?}"))])),
        vec![Arc::new(Int64Array::from(rows.to_vec())), Arc::new(Float32Array::from(similarity))],
    )
    .unwrap()
}

#[test]
fn parquet_parts_become_one_file_without_their_metadata() {
    let rows: Vec<i64> = (0..5000).collect();
    let place =
        parts(&[parquet(&pairs(&rows[..1], true), 10), parquet(&pairs(&rows[1..], false), 999)], "parquet");
    let merged = place.merge("all.parquet", &by_host()).unwrap();
    let table = read_parquet(merged);
    assert_eq!(table.column(0).as_primitive::<Int64Type>().values(), &rows[..]);
    assert_eq!(table.num_columns(), 2);
    assert!(table.schema().field(0).is_nullable() && !table.schema().field(1).is_nullable());
    assert!(table.schema().metadata().is_empty());
    let file = fs::File::open(place.path().join("all.parquet")).unwrap().into_parts().0;
    let reader = SerializedFileReader::new(file).unwrap();
    assert!(reader.metadata().file_metadata().created_by().unwrap().starts_with("trainyard-merge version "));
    assert_eq!(reader.num_row_groups(), 1);
}

#[test]
fn dictionaries_lists_and_structs_pass_through_parquet_in_any_order() {
    use arrow::array::{DictionaryArray, ListArray, StructArray};
    use arrow::datatypes::Int32Type;
    let words: DictionaryArray<Int32Type> = vec![Some("b"), None, Some("a")].into_iter().collect();
    let lists =
        ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1), None]), None, Some(vec![])]);
    let inner: Arc<dyn Array> = Arc::new(StringArray::from(vec![Some("x"), Some(""), None]));
    let structs = StructArray::from(vec![(Arc::new(Field::new("s", DataType::Utf8, true)), inner)]);
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("word", Arc::new(words) as Arc<dyn Array>, true),
        ("list", Arc::new(lists), true),
        ("struct", Arc::new(structs), true),
    ])
    .unwrap();
    let place = parts(&[parquet(&batch, 10)], "parquet");
    let by_host = read_parquet(place.merge("host.parquet", &by_host()).unwrap());
    assert_eq!(by_host.column(0).as_string::<i32>().iter().collect::<Vec<_>>(), [Some("b"), None, Some("a")]);
    let ordered = read_parquet(place.merge("order.parquet", &by("word")).unwrap());
    for (at, from) in [2, 0, 1].into_iter().enumerate() {
        assert_eq!(ordered.slice(at, 1), by_host.slice(from, 1));
    }
    let lines = text(place.merge("all.jsonl", &by("word")).unwrap());
    assert_eq!(
        lines,
        "{\"word\":\"a\",\"list\":[],\"struct\":{\"s\":null}}\n\
         {\"word\":\"b\",\"list\":[1,null],\"struct\":{\"s\":\"x\"}}\n\
         {\"word\":null,\"list\":null,\"struct\":{\"s\":\"\"}}\n"
    );
    assert!(place.error("all.csv", &by("word")).contains("column \"list\" of type"));
}

#[test]
fn csv_types_are_found_over_all_parts() {
    let place = parts(
        &[
            b"id,count,score,word,code,none\n1,1,1,x,007,\n".to_vec(),
            b"id,count,score,word,code,none\n2,,0.5,,8,\n".to_vec(),
        ],
        "csv",
    );
    let table = read_parquet(place.merge("all.parquet", &by_host()).unwrap());
    let types: Vec<String> =
        table.schema().fields().iter().map(|field| field.data_type().to_string()).collect();
    assert_eq!(types, ["Int64", "Int64", "Float64", "Utf8", "Utf8", "Utf8"]);
    assert_eq!(table.column(1).as_primitive::<Int64Type>().iter().collect::<Vec<_>>(), [Some(1), None]);
    assert_eq!(table.column(2).as_primitive::<Float64Type>().values(), &[1.0, 0.5]);
    assert_eq!(table.column(3).as_string::<i32>().iter().collect::<Vec<_>>(), [Some("x"), None]);
    assert_eq!(
        text(place.merge("all.jsonl", &by_host()).unwrap()),
        "{\"id\":1,\"count\":1,\"score\":1.0,\"word\":\"x\",\"code\":\"007\",\"none\":null}\n\
         {\"id\":2,\"count\":null,\"score\":0.5,\"word\":null,\"code\":\"8\",\"none\":null}\n"
    );
}

#[test]
fn json_types_are_found_over_all_parts() {
    let place = parts(
        &[
            b"{\"a\":1,\"b\":true,\"c\":[1],\"big\":18446744073709551615}\n".to_vec(),
            b"{\"a\":2.5,\"b\":null,\"c\":[2.5],\"d\":{\"e\":\"x\"},\"mixed\":1}\n{\"mixed\":\"y\"}\n"
                .to_vec(),
        ],
        "jsonl",
    );
    let table = read_parquet(place.merge("all.parquet", &by_host()).unwrap());
    let names: Vec<String> = table.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["a", "b", "c", "big", "d", "mixed"]);
    assert_eq!(
        table.column(0).as_primitive::<Float64Type>().iter().collect::<Vec<_>>(),
        [Some(1.0), Some(2.5), None]
    );
    assert_eq!(table.column(3).as_string::<i32>().value(0), "18446744073709551615");
    assert_eq!(table.column(5).as_string::<i32>().iter().collect::<Vec<_>>(), [None, Some("1"), Some("y")]);
    assert_eq!(table.column(4).as_struct().column(0).as_string::<i32>().value(1), "x");
}

#[test]
fn rows_survive_the_way_through_all_table_formats() {
    let csv = b"row,word,score\n1,a,0.5\n2,\"x, y\",1.5\n3,,\n";
    let mut bytes = csv.to_vec();
    let mut ending = "csv";
    for next in ["parquet", "jsonl", "parquet", "csv", "jsonl", "csv"] {
        bytes = parts(&[bytes], ending).merge(&format!("all.{next}"), &by_host()).unwrap();
        ending = next;
    }
    assert_eq!(text(bytes), String::from_utf8_lossy(csv));
}

#[test]
fn an_empty_table_keeps_its_header_on_the_way_to_csv() {
    let place = parts(&[parquet(&pairs(&[], true), 10)], "parquet");
    assert_eq!(text(place.merge("all.csv", &by_host()).unwrap()), "row,similarity\n");
    assert_eq!(text(place.merge("all.jsonl", &by_host()).unwrap()), "");
}

#[test]
fn a_plain_tar_and_a_folder_are_sources_too() {
    let entries =
        [(None, "part-algo-10.csv", b"x\n10\n".to_vec()), (None, "part-algo-9.csv", b"x\n9\n".to_vec())];
    let place = Place::with_archive(&tar(&entries));
    assert_eq!(text(place.merge("all.csv", &by_host()).unwrap()), "x\n9\n10\n");

    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("deep")).unwrap();
    for (_, path, contents) in &entries {
        fs::write(folder.path().join("deep").join(path), contents).unwrap();
    }
    std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link.csv")).unwrap();
    let output = folder.path().join("all.csv");
    // The second time the result itself lies in the folder.
    for _ in 0..2 {
        let report = trainyard_merge::merge(folder.path(), &output, &by_host(), &|_| {}).unwrap();
        assert_eq!(fs::read_to_string(&output).unwrap(), "x\n9\n10\n");
        assert_eq!(report.warnings, [Warning::Link { path: "link.csv".to_owned() }]);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn several_gzip_members_are_one_archive() {
    let tar = tar(&[(None, "a.csv", b"x\n1\n".to_vec()), (None, "b.csv", b"x\n2\n".to_vec())]);
    let archive = [gzip(&tar[..700]), gzip(&tar[700..])].concat();
    assert_eq!(Place::with_archive(&archive).merge("all.csv", &by_host()).unwrap(), b"x\n1\n2\n");
}

#[test]
fn a_pattern_chooses_the_parts() {
    let place = Place::gzipped(&[
        (Some("algo-1"), "part-1.csv", b"x\n1\n".to_vec()),
        (Some("algo-1"), "metrics.csv", b"epoch,loss\n1,2\n".to_vec()),
        (Some("algo-1"), "model.bin", vec![0; 100]),
    ]);
    let options = MergeOptions { glob: Some("part-*".to_owned()), ..by_host() };
    let report = place.report("all.csv", &options).unwrap();
    assert_eq!((report.parts, report.rows, report.skipped.count), (1, 1, 2));
}

#[test]
fn an_output_that_was_there_is_replaced() {
    let place = parts(&[b"x\n1\n".to_vec()], "csv");
    fs::write(place.path().join("all.csv"), "old").unwrap();
    assert_eq!(place.merge("all.csv", &by_host()).unwrap(), b"x\n1\n");
}

#[test]
fn rows_without_columns_are_not_lost_in_silence() {
    let place = parts(&[b"\n".to_vec(), b"{}\n{}".to_vec()], "jsonl");
    assert_eq!(place.report("all.jsonl", &by_host()).unwrap().rows, 2);
    assert!(place.error("all.jsonl", &by("v")).contains("no column \"v\""));
    for (output, options) in [("all.parquet", by_host()), ("all.csv", by("v"))] {
        let error = place.error(output, &options);
        assert!(error.contains("the rows of part-algo-2.jsonl have no columns"), "{error}");
    }
    let place = parts(&[b"\n".to_vec()], "jsonl");
    assert_eq!(place.report("all.parquet", &by("v")).unwrap().rows, 0);
}

#[test]
fn json_has_null_where_a_float_is_no_number() {
    let values: Arc<dyn Array> = Arc::new(Float32Array::from(vec![f32::NAN, f32::INFINITY, 0.1]));
    let place = parts(&[parquet(&RecordBatch::try_from_iter([("v", values)]).unwrap(), 10)], "parquet");
    assert_eq!(
        text(place.merge("all.jsonl", &by_host()).unwrap()),
        "{\"v\":null}\n{\"v\":null}\n{\"v\":0.1}\n"
    );
    assert_eq!(text(place.merge("all.csv", &by_host()).unwrap()), "v\nNaN\ninf\n0.1\n");
}

fn arrow(batch: &RecordBatch, rows: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = arrow::ipc::writer::FileWriter::try_new(&mut bytes, &batch.schema()).unwrap();
    for start in (0..batch.num_rows()).step_by(rows) {
        writer.write(&batch.slice(start, rows.min(batch.num_rows() - start))).unwrap();
    }
    writer.finish().unwrap();
    drop(writer);
    bytes
}

#[test]
fn arrow_parts_are_joined_and_arrow_is_made_from_other_tables() {
    let (one, two) = (pairs(&[1, 2, 3], true), pairs(&[4, 5], true));
    let rows = pairs(&[1, 2, 3, 4, 5], true);
    let of_arrow = parts(&[arrow(&one, 2), arrow(&two, 2)], "arrow");
    let of_parquet = parts(&[parquet(&one, 2), parquet(&two, 2)], "parquet");
    for options in [by_host(), by("row")] {
        let merged = of_arrow.merge("all.arrow", &options).unwrap();
        assert_eq!(merged, of_parquet.merge("all.arrow", &options).unwrap());
        let reader = arrow::ipc::reader::FileReader::try_new(std::io::Cursor::new(merged), None).unwrap();
        let batches: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
        assert_eq!(batches.len(), 1);
        assert_eq!(batches[0].columns(), rows.columns());
        assert_eq!(read_parquet(of_arrow.merge("all.parquet", &options).unwrap()).columns(), rows.columns());
    }
    let broken = parts(&[arrow(&one, 2)[..300].to_vec()], "arrow");
    assert!(broken.error("all.arrow", &by_host()).contains("part-algo-1.arrow"));
}

/// A sparse matrix: for each row its entries.
pub(crate) fn npz(columns: i64, rows: &[&[(i64, f32)]]) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let entries: Vec<(i64, f32)> = rows.iter().flat_map(|row| row.iter().copied()).collect();
    let mut ends = vec![0i64];
    rows.iter().for_each(|row| ends.push(ends[ends.len() - 1] + row.len() as i64));
    let integers = |numbers: &[i64]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
    let vector = |count: usize| format!("({count},)");
    let indices: Vec<i64> = entries.iter().map(|entry| entry.0).collect();
    let scores: Vec<u8> = entries.iter().flat_map(|entry| entry.1.to_le_bytes()).collect();
    for (name, bytes) in [
        ("indices", npy("<i8", &vector(indices.len()), &integers(&indices))),
        ("indptr", npy("<i8", &vector(ends.len()), &integers(&ends))),
        ("format", npy("|S3", "()", b"csr")),
        ("shape", npy("<i8", "(2,)", &integers(&[rows.len() as i64, columns]))),
        ("data", npy("<f4", &vector(entries.len()), &scores)),
    ] {
        let deflated = zip::write::SimpleFileOptions::default();
        archive.start_file(format!("{name}.npy"), deflated).unwrap();
        std::io::Write::write_all(&mut archive, &bytes).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

fn member(archive: &[u8], name: &str) -> Vec<u8> {
    let mut archive = zip::ZipArchive::new(std::io::Cursor::new(archive)).unwrap();
    let mut bytes = Vec::new();
    let mut file = archive.by_name(&format!("{name}.npy")).unwrap();
    std::io::Read::read_to_end(&mut file, &mut bytes).unwrap();
    let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    bytes[start..].to_vec()
}

#[test]
fn sparse_parts_are_put_below_each_other() {
    let (one, two): (&[&[_]], &[&[_]]) = (&[&[(1, 0.5), (6, -1.0)], &[]], &[&[(0, 0.25)]]);
    let place = parts(&[npz(7, one), npz(7, two), npz(7, &[])], "npz");
    let whole = place.merge("all.npz", &by_host()).unwrap();
    let expected = npz(7, &[one, two].concat());
    for name in ["indices", "indptr", "format", "shape", "data"] {
        assert_eq!(member(&whole, name), member(&expected, name), "{name}");
    }
    assert_eq!(whole, parts(&[expected], "npz").merge("all.npz", &by_host()).unwrap());
    assert!(place.error("all.npz", &by("row")).contains("row"));
    assert!(place.error("all.parquet", &by_host()).contains("parts of their own kind"));

    let wider = parts(&[npz(7, one), npz(8, two)], "npz").error("all.npz", &by_host());
    assert!(wider.contains("part-algo-2.npz") && wider.contains("8 columns"), "{wider}");
    let cut = parts(&[npz(7, one)[..200].to_vec()], "npz").error("all.npz", &by_host());
    assert!(cut.contains("is not a readable .npz archive"), "{cut}");
}
