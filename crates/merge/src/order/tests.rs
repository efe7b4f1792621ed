use proptest::prelude::*;

use super::*;
use crate::options::Progress;
use crate::scratch::Scratch;

/// Orders rows given as (key, number) per part, and returns the numbers.
fn ordered(parts: &[Vec<(u8, u32)>], memory: usize) -> Vec<u32> {
    let folder = tempfile::tempdir().unwrap();
    let scratch = Scratch::beside(&folder.path().join("out.csv")).unwrap();
    let named: Vec<Part> =
        (0..parts.len()).map(|n| Part::new(n.to_string().into_bytes(), None, scratch.part(n))).collect();
    let joining = Joining { parts: &named, scratch: &scratch, memory, progress: &|_: Progress| {} };
    let open = |part: &Part, _: Want| -> Result<Rows<'_>, MergeError> {
        let mut rows = parts[part.name.path.parse::<usize>().unwrap()].clone().into_iter();
        Ok(Box::new(move |block| {
            for (key, number) in rows.by_ref().take(3) {
                block.push(&[key], &number.to_be_bytes());
            }
            Ok(())
        }))
    };
    let mut numbers = Vec::new();
    in_order(&joining, &open, &mut |body| {
        numbers.push(u32::from_be_bytes(body.try_into().unwrap()));
        Ok(())
    })
    .unwrap();
    numbers
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_parts_and_any_memory_give_the_stable_sort_of_all_rows(
        keys in prop::collection::vec(prop::collection::vec(0u8..5, 0..30), 0..12),
        sorted in any::<bool>(),
        memory in prop::sample::select(vec![0usize, 100, 1000, 64 << 20]),
    ) {
        let mut number = 0;
        let parts: Vec<Vec<(u8, u32)>> = keys.into_iter().map(|mut keys| {
            if sorted { keys.sort_unstable(); }
            keys.into_iter().map(|key| { number += 1; (key, number) }).collect()
        }).collect();
        let mut expected: Vec<(u8, u32)> = parts.concat();
        expected.sort_by_key(|(key, _)| *key);
        let expected: Vec<u32> = expected.into_iter().map(|(_, number)| number).collect();
        prop_assert_eq!(ordered(&parts, memory), expected);
    }
}

#[test]
fn a_run_with_a_row_of_any_size_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let mut writing = crate::scratch::Writing::create(path.clone()).unwrap();
    let big = vec![7; 200 << 10];
    for body in [&big[..], b"", b"x"] {
        run::put(&mut writing, b"k", body).unwrap();
    }
    writing.finish().unwrap();
    let mut rows = run::read(path).unwrap();
    let mut lengths = Vec::new();
    loop {
        let mut block = Block::default();
        rows(&mut block).unwrap();
        if block.is_empty() {
            break;
        }
        lengths.extend((0..block.len()).map(|i| block.body(i).len()));
    }
    assert_eq!(lengths, [big.len(), 0, 1]);
}
