//! Rows in the order of a column.

use std::sync::Arc;

use arrow::array::{Array, AsArray, Float32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{Float32Type, Int64Type};
use proptest::prelude::*;
use trainyard_merge::MergeOptions;

use crate::archives::*;

#[test]
fn csv_numbers_are_ordered_by_value_and_empty_fields_come_last() {
    let place =
        parts(&[b"v,from\n10,a\n,b\n9,c\n".to_vec(), b"v,from\n9.5,d\n9,e\n,f\n-1e3,g\n".to_vec()], "csv");
    let expected = "v,from\n-1e3,g\n9,c\n9,e\n9.5,d\n10,a\n,b\n,f\n";
    assert_eq!(String::from_utf8(place.merge("all.csv", &by("v")).unwrap()).unwrap(), expected);
}

#[test]
fn csv_text_is_ordered_by_bytes() {
    let place = parts(&[b"v\n10\nb\n".to_vec(), b"v\n9\nB\n\xc3\xa4\n".to_vec()], "csv");
    assert_eq!(place.merge("all.csv", &by("v")).unwrap(), b"v\n10\n9\nB\nb\n\xc3\xa4\n");
}

#[test]
fn json_values_are_ordered_by_kind_then_value() {
    let place = parts(
        &[
            b"{\"v\":\"b\"}\n{\"v\":null}\n{\"v\":2}\n".to_vec(),
            b"{\"v\":1.5}\n{}\n{\"v\":true}\n{\"v\":\"a\"}\n{\"v\":9007199254740993}\n{\"v\":9007199254740992}\n".to_vec(),
        ],
        "jsonl",
    );
    let expected = "{\"v\":true}\n{\"v\":1.5}\n{\"v\":2}\n{\"v\":9007199254740992}\n{\"v\":9007199254740993}\n\
                    {\"v\":\"a\"}\n{\"v\":\"b\"}\n{\"v\":null}\n{}\n";
    assert_eq!(String::from_utf8(place.merge("all.jsonl", &by("v")).unwrap()).unwrap(), expected);
}

#[test]
fn parquet_floats_have_one_zero_and_nan_stands_before_null() {
    let part = |values: Vec<Option<f32>>, first: i64| {
        let places = Int64Array::from_iter_values((first..).take(values.len()));
        let columns: [(&str, Arc<dyn Array>, bool); 2] =
            [("v", Arc::new(Float32Array::from(values)), true), ("n", Arc::new(places), false)];
        parquet(&RecordBatch::try_from_iter_with_nullable(columns).unwrap(), 2)
    };
    let place = parts(
        &[
            part(vec![Some(0.0), Some(f32::NAN), None, Some(-0.0)], 0),
            part(vec![Some(-0.0), Some(-f32::NAN), Some(f32::INFINITY), Some(-1.0)], 4),
        ],
        "parquet",
    );
    let table = read_parquet(place.merge("all.parquet", &by("v")).unwrap());
    assert_eq!(table.column(1).as_primitive::<Int64Type>().values(), &[7, 0, 3, 4, 6, 1, 5, 2]);
    // The values themselves are kept: only their order ignores the sign of a zero.
    assert!(table.column(0).as_primitive::<Float32Type>().value(2).is_sign_negative());
}

#[test]
fn parquet_text_is_ordered_by_bytes_and_becomes_csv_on_the_way() {
    let part = |values: Vec<Option<&str>>| {
        let column: Arc<dyn Array> = Arc::new(StringArray::from(values));
        parquet(&RecordBatch::try_from_iter_with_nullable([("v", column, true)]).unwrap(), 2)
    };
    let place = parts(
        &[part(vec![Some("b"), None, Some("")]), part(vec![Some("ab"), Some("a"), Some("ä")])],
        "parquet",
    );
    assert_eq!(place.merge("all.csv", &by("v")).unwrap(), "v\n\"\"\na\nab\nb\nä\n\"\"\n".as_bytes());
}

#[test]
fn a_column_that_is_not_there_is_named_with_those_that_are() {
    let contents: [(&[u8], &str); 2] = [(b"row,col\n1,2\n", "csv"), (b"{\"row\":1,\"col\":2}\n", "jsonl")];
    for (contents, ending) in contents {
        let place = parts(&[contents.to_vec()], ending);
        for output in ["all.csv", "all.jsonl", "all.parquet"] {
            let error = place.error(output, &by("similarity"));
            assert!(error.contains("no column \"similarity\"") && error.contains("row, col"), "{error}");
        }
    }
}

#[test]
fn values_without_an_order_are_refused() {
    let place = parts(&[b"{\"v\":[1]}\n".to_vec()], "jsonl");
    assert!(place.error("all.jsonl", &by("v")).contains("column \"v\" of type array"));
    assert!(place.error("all.parquet", &by("v")).contains("can not be ordered by column \"v\" of type List"));
}

/// The merged CSV of rows that are a key and their number.
fn merged(keys: &[Vec<Option<i8>>], ending: &str, memory: usize) -> Vec<u8> {
    let mut number = 0;
    let contents: Vec<Vec<u8>> = keys
        .iter()
        .map(|keys| {
            let numbers = Int64Array::from_iter_values((number..).take(keys.len()));
            number += keys.len() as i64;
            let values: Int64Array = keys.iter().map(|key| key.map(i64::from)).collect();
            let columns: [(&str, Arc<dyn Array>, bool); 2] =
                [("v", Arc::new(values), true), ("n", Arc::new(numbers), true)];
            let part = parquet(&RecordBatch::try_from_iter_with_nullable(columns).unwrap(), 100);
            parts(&[part], "parquet").merge(&format!("x.{ending}"), &by_host()).unwrap()
        })
        .collect();
    parts(&contents, ending).merge("all.csv", &MergeOptions { memory, ..by("v") }).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn every_format_and_every_budget_give_the_stable_sort(
        keys in prop::collection::vec(prop::collection::vec(prop::option::weighted(0.9, -3i8..12), 0..40), 1..6),
        ending in prop::sample::select(vec!["csv", "jsonl", "parquet"]),
        memory in prop::sample::select(vec![0usize, 500, 1 << 28]),
    ) {
        let mut rows: Vec<(Option<i8>, usize)> = keys.concat().into_iter().zip(0..).collect();
        rows.sort_by_key(|(key, _)| (key.is_none(), *key));
        let expected: Vec<Vec<String>> = rows
            .iter()
            .map(|(key, n)| vec![key.map_or_else(String::new, |key| key.to_string()), n.to_string()])
            .collect();
        // JSON lines without any row have no columns; there is nothing to order then.
        prop_assume!(ending != "jsonl" || !rows.is_empty());
        let merged = merged(&keys, ending, memory);
        let found: Vec<Vec<String>> = csv::Reader::from_reader(&merged[..])
            .records()
            .map(|record| record.unwrap().iter().map(str::to_owned).collect())
            .collect();
        prop_assert_eq!(found, expected);
    }
}
