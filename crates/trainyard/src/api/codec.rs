//! The forms in which clients write requests and read answers. Services know values only.

pub(super) mod cbor;
pub(super) mod query;
