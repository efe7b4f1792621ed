//! How a shape of the API becomes a type: all members optional, absent stays absent, unknown ones refused.

/// Declares one shape of the API.
///
/// The attributes are the same for each of the fifty shapes, so they are written once, here.
macro_rules! shape {
    ($(#[$about:meta])* $name:ident { $($(#[$member_about:meta])* $member:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "PascalCase", deny_unknown_fields, expecting = "an object")]
        pub struct $name {
            $(
                $(#[$member_about])*
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $member: Option<$type>,
            )*
        }
    };
}

pub(super) use shape;
