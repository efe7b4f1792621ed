//! The bytes of a result depend on the rows and their sequence, not on how they were cut into parts.

use std::sync::Arc;

use arrow::array::{Array, Float32Array, Int64Array, RecordBatch, StringArray};
use proptest::prelude::*;
use trainyard_merge::MergeOptions;

use crate::archives::*;

/// Rows as a table; texts are long enough to fill several pages.
fn table(rows: usize, seed: u64) -> RecordBatch {
    let value = |row: usize| (row as u64).wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed) >> 40;
    let columns: [(&str, Arc<dyn Array>, bool); 4] = [
        ("row", Arc::new(Int64Array::from_iter_values(0..rows as i64)), false),
        (
            "key",
            Arc::new(
                (0..rows)
                    .map(|row| Some(value(row) as i64 % 100).filter(|key| *key > 5))
                    .collect::<Int64Array>(),
            ),
            true,
        ),
        (
            "similarity",
            Arc::new(Float32Array::from_iter_values((0..rows).map(|row| value(row) as f32 / 1e6))),
            false,
        ),
        (
            "word",
            Arc::new(StringArray::from_iter_values(
                (0..rows).map(|row| format!("word, {}", value(row)).repeat(20)),
            )),
            false,
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// The table as parts that end at the given rows, in a format.
fn cut(table: &RecordBatch, cuts: &[usize], group: usize, ending: &str) -> Place {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (table.num_rows() + 1)).collect();
    ends.push(table.num_rows());
    ends.sort_unstable();
    let mut start = 0;
    let contents: Vec<Vec<u8>> = ends
        .into_iter()
        .map(|end| {
            let part = parquet(&table.slice(start, end - start), group);
            start = end;
            match ending {
                "parquet" => part,
                _ => parts(&[part], "parquet").merge(&format!("x.{ending}"), &by_host()).unwrap(),
            }
        })
        .collect();
    parts(&contents, ending)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn any_cut_gives_the_same_bytes(
        rows in 0usize..9000,
        seed in any::<u64>(),
        cuts in prop::collection::vec(any::<usize>(), 0..13),
        group in 1usize..5000,
        from in prop::sample::select(vec!["parquet", "csv", "jsonl"]),
        to in prop::sample::select(vec!["parquet", "csv", "jsonl"]),
        column in prop::option::of(prop::sample::select(vec!["row", "key", "word"])),
        memory in prop::sample::select(vec![100_000usize, 1 << 28]),
    ) {
        prop_assume!(from != "jsonl" || rows > 0);
        let table = table(rows, seed);
        let options = column.map_or_else(by_host, by);
        let options = MergeOptions { memory, ..options };
        let output = format!("all.{to}");
        let whole = cut(&table, &[], 1 << 20, from).merge(&output, &options).unwrap();
        let joined = cut(&table, &cuts, group, from).merge(&output, &options).unwrap();
        prop_assert!(whole == joined, "{} and {} bytes", whole.len(), joined.len());
    }

    #[test]
    fn any_cut_of_an_array_gives_the_same_bytes(rows in 0usize..200, cuts in prop::collection::vec(0usize..200, 0..8)) {
        let values: Vec<u8> = (0..rows * 12).map(|i| i as u8).collect();
        let mut ends: Vec<usize> = cuts.into_iter().map(|cut| cut.min(rows)).collect();
        ends.push(rows);
        ends.sort_unstable();
        let mut start = 0;
        let contents: Vec<Vec<u8>> = ends.into_iter().map(|end| {
            let part = npy("<f4", &format!("({}, 3)", end - start), &values[start * 12..end * 12]);
            start = end;
            part
        }).collect();
        let whole = parts(&[npy("<f4", &format!("({rows}, 3)"), &values)], "npy").merge("all.npy", &by_host()).unwrap();
        prop_assert_eq!(parts(&contents, "npy").merge("all.npy", &by_host()).unwrap(), whole);
    }
}

#[test]
fn row_groups_end_at_the_same_rows_wherever_parts_end() {
    let rows = (1 << 20) + 5000;
    let table = RecordBatch::try_from_iter([(
        "row",
        Arc::new(Int64Array::from_iter_values((0..rows).map(|row| row * 7919 % 10_007))) as Arc<dyn Array>,
    )])
    .unwrap();
    let whole = cut(&table, &[], 1 << 19, "parquet").merge("all.parquet", &by_host()).unwrap();
    let joined =
        cut(&table, &[1, 77_777, 600_001], 99_999, "parquet").merge("all.parquet", &by_host()).unwrap();
    assert!(whole == joined);
    let place = Place::with_archive(b"");
    fs_err::write(place.path().join("x"), whole).unwrap();
    let file = std::fs::OpenOptions::new().read(true).open(place.path().join("x")).unwrap();
    let reader = parquet::file::reader::SerializedFileReader::new(file).unwrap();
    let groups = parquet::file::reader::FileReader::metadata(&reader).row_groups();
    assert_eq!(groups.iter().map(|group| group.num_rows()).collect::<Vec<_>>(), [1 << 20, 5000]);
}
