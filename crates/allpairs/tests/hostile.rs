//! Damaged files of every kind, in a process that may not have much memory: a reader that made room for what a file
//! claims would end it. By itself, since the limit holds for the whole process.

#[cfg(test)]
mod damaged {
    use proptest::prelude::*;
    use rustix::process::{Resource, Rlimit, setrlimit};
    use std::path::{Path, PathBuf};
    use std::sync::Once;
    use std::sync::atomic::AtomicBool;
    use trainyard_allpairs::{Reading, read_shape};

    /// Bytes of memory that may be asked for in all: four times the largest claim of a packed buffer that is believed.
    const MOST: u64 = 4 << 30;

    /// Endings of the fixtures that are damaged.
    const ENDINGS: [&str; 12] = [
        "npy",
        "npz",
        "parquet",
        "arrow",
        "arrows",
        "feather",
        "csv",
        "tsv",
        "safetensors",
        "fvecs",
        "h5",
        "hdf5",
    ];

    fn limit_memory() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            setrlimit(Resource::As, Rlimit { current: Some(MOST), maximum: Some(MOST) }).unwrap();
        });
    }

    fn fixtures() -> Vec<PathBuf> {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
        let mut found = Vec::new();
        for folder in [data.clone(), data.join("tables")] {
            let files = fs_err::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            found.extend(files.filter(|file| {
                file.extension()
                    .and_then(|ending| ending.to_str())
                    .is_some_and(|ending| ENDINGS.contains(&ending))
            }));
        }
        found.sort();
        found
    }

    /// One thing that happens to a file. Places are parts of its length.
    #[derive(Debug, Clone)]
    enum Damage {
        Byte(f64, u8),
        /// A length or a place in it becomes any number.
        Number(f64, u64, bool),
        Cut(f64),
        Doubled(f64, f64),
        Removed(f64, f64),
    }

    impl Damage {
        fn apply(&self, bytes: &mut Vec<u8>) {
            let at = |part: f64, bytes: &[u8]| (part * bytes.len() as f64) as usize;
            let between = |a: f64, b: f64, bytes: &[u8]| at(a.min(b), bytes)..at(a.max(b), bytes);
            match *self {
                Self::Byte(part, change) => {
                    let at = at(part, bytes);
                    bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= change);
                }
                Self::Number(part, number, long) => {
                    let (at, length) = (at(part, bytes), if long { 8 } else { 4 });
                    let number = number.to_le_bytes();
                    bytes.iter_mut().skip(at).take(length).zip(number).for_each(|(byte, new)| *byte = new);
                }
                Self::Cut(part) => bytes.truncate(at(part, bytes)),
                Self::Doubled(a, b) => {
                    let range = between(a, b, bytes);
                    let piece = bytes[range.clone()].to_vec();
                    bytes.splice(range.end..range.end, piece);
                }
                Self::Removed(a, b) => {
                    let range = between(a, b, bytes);
                    bytes.drain(range);
                }
            }
        }
    }

    fn damage() -> impl Strategy<Value = Damage> {
        let number = prop_oneof![
            any::<u64>(),
            (0u32..63).prop_map(|shift| 1 << shift),
            Just(u64::MAX),
            Just(i64::MAX as u64),
            Just(u64::from(u32::MAX)),
        ];
        let part = 0.0..1.0f64;
        prop_oneof![
            4 => (part.clone(), 1u8..=255).prop_map(|(part, change)| Damage::Byte(part, change)),
            4 => (part.clone(), number, any::<bool>())
                .prop_map(|(part, number, long)| Damage::Number(part, number, long)),
            1 => part.clone().prop_map(Damage::Cut),
            1 => (part.clone(), part.clone()).prop_map(|(a, b)| Damage::Doubled(a, b)),
            1 => (part.clone(), part).prop_map(|(a, b)| Damage::Removed(a, b)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn a_damaged_file_is_read_or_refused_without_the_memory_that_it_claims(
            damages in prop::collection::vec(prop::collection::vec(damage(), 1..4), 40),
        ) {
            limit_memory();
            let folder = tempfile::tempdir().unwrap();
            let fixtures = fixtures();
            prop_assert!(fixtures.len() > 20, "{fixtures:?}");
            for (file, damages) in fixtures.iter().zip(damages.iter().cycle()) {
                let mut bytes = fs_err::read(file).unwrap();
                damages.iter().for_each(|damage| damage.apply(&mut bytes));
                let damaged = folder.path().join(file.file_name().unwrap());
                fs_err::write(&damaged, &bytes).unwrap();
                // Either answer is right.
                let _ = read_shape(&damaged, &Reading::default(), &AtomicBool::new(false));
            }
        }
    }

    #[test]
    fn whole_fixtures_are_within_the_limit() {
        limit_memory();
        let read = |file: &PathBuf| read_shape(file, &Reading::default(), &AtomicBool::new(false)).is_ok();
        let fixtures = fixtures();
        assert!(fixtures.iter().filter(|file| read(file)).count() * 2 > fixtures.len());
    }
}
