//! CBOR (RFC 8949) as the protocol `rpcv2Cbor` of Smithy uses it.

use std::convert::Infallible;

use minicbor::data::{Tag, Type};
use minicbor::decode::Error;
use minicbor::{Decoder, Encoder};
use serde_json::{Map, Number, Value};

/// Seconds since 1970.
const TIME: u64 = 1;
/// No request of any service is nearly as deep; each level takes room on the stack.
const DEEPEST: usize = 64;

/// Reads one value. Times become numbers of seconds; bytes are in no request of these services.
///
/// # Errors
/// It is not CBOR, or something of it that requests don't have.
pub(in crate::api) fn read(bytes: &[u8]) -> Result<Value, String> {
    let mut decoder = Decoder::new(bytes);
    let value = item(&mut decoder, 0).map_err(|error| error.to_string())?;
    if decoder.position() < bytes.len() {
        return Err("there is more after the value".to_owned());
    }
    Ok(value)
}

fn item(decoder: &mut Decoder<'_>, depth: usize) -> Result<Value, Error> {
    if depth > DEEPEST {
        return Err(Error::message("the value is too deep"));
    }
    Ok(match decoder.datatype()? {
        Type::Bool => decoder.bool()?.into(),
        Type::Null => {
            decoder.null()?;
            Value::Null
        }
        Type::Undefined => {
            decoder.undefined()?;
            Value::Null
        }
        Type::U8 | Type::U16 | Type::U32 | Type::U64 => decoder.u64()?.into(),
        Type::I8 | Type::I16 | Type::I32 | Type::I64 | Type::Int => decoder.i64()?.into(),
        Type::F16 => number(decoder.f16()?.into())?,
        Type::F32 => number(decoder.f32()?.into())?,
        Type::F64 => number(decoder.f64()?)?,
        Type::String => decoder.str()?.into(),
        Type::StringIndef => decoder.str_iter()?.collect::<Result<String, _>>()?.into(),
        Type::Array | Type::ArrayIndef => array(decoder, depth)?,
        Type::Map | Type::MapIndef => map(decoder, depth)?,
        Type::Tag => match decoder.tag()? {
            tag if tag == Tag::new(TIME) => item(decoder, depth + 1)?,
            tag => return Err(Error::message(format!("values with the tag {} are not known", tag.as_u64()))),
        },
        other => return Err(Error::message(format!("{other} is in no request"))),
    })
}

fn number(value: f64) -> Result<Value, Error> {
    let number = Number::from_f64(value).ok_or_else(|| Error::message("a number is not finite"))?;
    Ok(Value::Number(number))
}

fn array(decoder: &mut Decoder<'_>, depth: usize) -> Result<Value, Error> {
    let mut left = decoder.array()?;
    let mut items = Vec::new();
    while goes_on(decoder, &mut left)? {
        items.push(item(decoder, depth + 1)?);
    }
    Ok(Value::Array(items))
}

fn map(decoder: &mut Decoder<'_>, depth: usize) -> Result<Value, Error> {
    let mut left = decoder.map()?;
    let mut members = Map::new();
    while goes_on(decoder, &mut left)? {
        let Value::String(name) = item(decoder, depth + 1)? else {
            return Err(Error::message("the name of a member is no text"));
        };
        let value = item(decoder, depth + 1)?;
        // As in JSON a member without a value is not there.
        if !value.is_null() {
            members.insert(name, value);
        }
    }
    Ok(Value::Object(members))
}

/// Whether another item follows: by the number that was announced, or up to a mark.
fn goes_on(decoder: &mut Decoder<'_>, left: &mut Option<u64>) -> Result<bool, Error> {
    match left {
        Some(0) => Ok(false),
        Some(left) => {
            *left -= 1;
            Ok(true)
        }
        None if decoder.datatype()? == Type::Break => {
            decoder.skip()?;
            Ok(false)
        }
        None => Ok(true),
    }
}

/// Writes a value; numbers in members of these names are times.
pub(in crate::api) fn write(value: &Value, times: &[&str]) -> Vec<u8> {
    let mut encoder = Encoder::new(Vec::new());
    // A vector takes everything.
    let _ = put(&mut encoder, value, times, false);
    encoder.into_writer()
}

type Put = Result<(), minicbor::encode::Error<Infallible>>;

fn put(encoder: &mut Encoder<Vec<u8>>, value: &Value, times: &[&str], is_time: bool) -> Put {
    match value {
        Value::Null => encoder.null()?,
        Value::Bool(value) => encoder.bool(*value)?,
        Value::Number(number) => {
            if is_time {
                encoder.tag(Tag::new(TIME))?;
            }
            match (number.as_u64(), number.as_i64()) {
                (Some(whole), _) => encoder.u64(whole)?,
                (None, Some(whole)) => encoder.i64(whole)?,
                (None, None) => encoder.f64(number.as_f64().unwrap_or_default())?,
            }
        }
        Value::String(text) => encoder.str(text)?,
        Value::Array(items) => {
            encoder.array(items.len() as u64)?;
            return items.iter().try_for_each(|item| put(encoder, item, times, is_time));
        }
        Value::Object(members) => {
            encoder.map(members.len() as u64)?;
            return members.iter().try_for_each(|(name, value)| {
                encoder.str(name)?;
                put(encoder, value, times, times.contains(&name.as_str()))
            });
        }
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-1e300..1e300).prop_map(Value::from),
            ".{0,20}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("[A-Za-z]{0,8}", inner, 0..5)
                    .prop_map(|members| members.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(value in values(), time in any::<bool>()) {
            let times: &[&str] = if time { &["T"] } else { &[] };
            prop_assert_eq!(read(&write(&value, times)), Ok(value));
        }

        #[test]
        fn nothing_that_is_sent_ends_the_endpoint(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }
    }

    #[test]
    fn what_botocore_writes_is_read() {
        // {"Period": 60, "StartTime": 1(1700000000), "Stats": ["Average"]}, from botocore 1.44.
        let hex = "bf66506572696f64183c69537461727454696d65c11a6553f100655374617473816741766572616765ff";
        let bytes: Vec<u8> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        let expected = json!({"Period": 60, "StartTime": 1_700_000_000, "Stats": ["Average"]});
        assert_eq!(read(&bytes), Ok(expected));
    }

    #[test]
    fn times_have_their_tag_and_lists_of_them_too() {
        assert_eq!(write(&json!({"T": 5}), &["T"]), [0xa1, 0x61, b'T', 0xc1, 5]);
        assert_eq!(write(&json!({"T": [5]}), &["T"]), [0xa1, 0x61, b'T', 0x81, 0xc1, 5]);
        assert_eq!(write(&json!({"V": 1.0}), &["T"])[..4], [0xa1, 0x61, b'V', 0xfb]);
    }

    #[test]
    fn what_no_request_has_is_refused() {
        let deep = [vec![0x81; 1000], vec![0]].concat();
        for (bytes, word) in
            [(vec![0x41, 0], "bytes"), (vec![0, 0], "more"), (vec![0xa1, 0, 0], "name"), (deep, "deep")]
        {
            let error = read(&bytes).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
