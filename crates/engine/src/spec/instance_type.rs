//! What the types of instances have: processors, memory and accelerators.

/// The table, whose head says where its facts are from.
const TABLE: &str = include_str!("instance_types.tsv");

/// What an instance of one type has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstanceType {
    /// Processors, as the operating system counts them.
    pub cpus: u32,
    /// In bytes.
    pub memory: u64,
    /// Number and model, such as 8 and `A100`; absent where there are none.
    pub accelerators: Option<(u32, &'static str)>,
}

impl InstanceType {
    /// The type of this name, such as `ml.m5.large`; none for this machine itself (`local`, `local_gpu`)
    /// and for a name that is not in the table.
    pub fn named(name: &str) -> Option<Self> {
        TABLE.lines().find_map(|line| Self::parse(line.strip_prefix(name)?.strip_prefix('\t')?))
    }

    fn parse(columns: &'static str) -> Option<Self> {
        let mut columns = columns.split('\t');
        let mut next = || columns.next();
        let (cpus, mebibytes) = (next()?.parse().ok()?, next()?.parse::<u64>().ok()?);
        let (count, model) = (next()?.parse().ok()?, next()?);
        Some(Self { cpus, memory: mebibytes << 20, accelerators: (count > 0).then_some((count, model)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{LOCAL_INSTANCE_TYPES, TRAINING_INSTANCE_TYPES};

    #[test]
    fn every_type_that_the_api_knows_is_in_the_table_once() {
        let listed: Vec<_> = TABLE.lines().filter(|line| !line.starts_with('#')).collect();
        let names: Vec<_> = listed.iter().map(|line| line.split('\t').next().unwrap()).collect();
        let types = TRAINING_INSTANCE_TYPES.iter().copied();
        let amazons: Vec<_> = types.filter(|name| !LOCAL_INSTANCE_TYPES.contains(name)).collect();
        assert_eq!(names, amazons);
        for name in amazons {
            let found = InstanceType::named(name).unwrap_or_else(|| panic!("{name} can't be read"));
            assert!(found.cpus >= 2 && found.memory >= 4 << 30, "{name}: {found:?}");
        }
    }

    #[test]
    fn types_have_what_amazon_says() {
        let gib = |size: u64| size << 30;
        let table = [
            ("ml.m5.large", 2, gib(8), None),
            ("ml.t3.medium", 2, gib(4), None),
            ("ml.c4.xlarge", 4, 15 << 29, None),
            ("ml.c5n.18xlarge", 72, gib(192), None),
            ("ml.r7i.48xlarge", 192, gib(1536), None),
            ("ml.p3.2xlarge", 8, gib(61), Some((1, "V100"))),
            ("ml.p4d.24xlarge", 96, gib(1152), Some((8, "A100"))),
            ("ml.g5.12xlarge", 48, gib(192), Some((4, "A10G"))),
            ("ml.g5.16xlarge", 64, gib(256), Some((1, "A10G"))),
            ("ml.trn1.32xlarge", 128, gib(512), Some((16, "Trainium"))),
        ];
        for (name, cpus, memory, accelerators) in table {
            assert_eq!(
                InstanceType::named(name),
                Some(InstanceType { cpus, memory, accelerators }),
                "{name}"
            );
        }
    }

    #[test]
    fn names_that_only_begin_like_a_type_are_none() {
        for name in ["ml.m5", "ml.m5.larg", "local", "local_gpu", "", "#"] {
            assert_eq!(InstanceType::named(name), None, "{name}");
        }
    }
}
