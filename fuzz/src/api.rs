//! The forms in which clients write requests.

#[path = "../../crates/trainyard/src/api/codec/cbor.rs"]
mod cbor;

/// A request as CBOR: what was read is the same when it is written and read again.
pub fn envelope(bytes: &[u8]) {
    if let Ok(value) = cbor::read(bytes) {
        assert_eq!(cbor::read(&cbor::write(&value, &["Timestamp"])), Ok(value));
    }
}
