//! How a shape of the API becomes a type: all members optional, absent stays absent, unknown ones refused.

use serde::de::Error;

/// Declares one shape of the API: its members with their names in Amazon's spelling.
///
/// It reads from an object only (a derived reader would take a list for one as well), and has its own
/// words for a member that does not exist or comes twice.
macro_rules! shape {
    ($(#[$about:meta])* $name:ident {
        $($(#[$member_about:meta])* $member:ident $sent:literal: $type:ty,)*
    }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
        pub struct $name {
            $(
                $(#[$member_about])*
                #[serde(rename = $sent, skip_serializing_if = "Option::is_none")]
                pub $member: Option<$type>,
            )*
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Members;

                impl<'de> serde::de::Visitor<'de> for Members {
                    type Value = $name;

                    fn expecting(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
                        formatter.write_str("an object")
                    }

                    fn visit_map<A>(self, mut access: A) -> Result<$name, A::Error>
                    where
                        A: serde::de::MapAccess<'de>,
                    {
                        let mut shape = $name::default();
                        while let Some(name) = access.next_key::<String>()? {
                            match name.as_str() {
                                $($sent if shape.$member.is_some() => {
                                    return Err(crate::wire::members::twice(&name));
                                }
                                $sent => shape.$member = access.next_value()?,)*
                                _ => return Err(crate::wire::members::unknown(&name, &[$($sent),*])),
                            }
                        }
                        Ok(shape)
                    }
                }

                deserializer.deserialize_map(Members)
            }
        }
    };
}

pub(super) use shape;

/// The error for a member that comes a second time; one of its values would be lost in silence.
pub(super) fn twice<E: Error>(name: &str) -> E {
    E::custom(format_args!("`{name}` is given twice"))
}

/// The error for a member that does not exist, with the one that was meant or all that there are.
pub(super) fn unknown<E: Error>(name: &str, known: &[&str]) -> E {
    match closest(name, known) {
        Some(meant) => E::custom(format_args!("there is no member `{name}`: did you mean `{meant}`?")),
        None => E::custom(format_args!("there is no member `{name}`, only {}", known.join(", "))),
    }
}

/// The known name that a wrong one was meant to be: the same but for its case, or two slips away.
fn closest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    // No name of the API is nearly as long, and the comparison takes time with the square.
    if name.len() > 80 {
        return None;
    }
    let lower = name.to_lowercase();
    let distance = |candidate: &&str| slips(&lower, &candidate.to_lowercase());
    let (distance, meant) = known.iter().map(|candidate| (distance(candidate), *candidate)).min()?;
    (distance <= 2).then_some(meant)
}

/// How many characters have to be put in, taken out or replaced to make one name of the other.
fn slips(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, from) in left.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, to) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}
