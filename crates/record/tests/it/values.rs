//! Random values of the data model.

use std::borrow::Cow;

use proptest::prelude::*;
use record::cid::Cid;
use record::value::{Value, key_order};

/// Any CID.
pub(crate) fn cid() -> impl Strategy<Value = Cid> {
    (any::<bool>(), any::<u64>()).prop_map(|(raw, seed)| match raw {
        true => Cid::of_raw(&seed.to_be_bytes()),
        false => Cid::of_cbor(&seed.to_be_bytes()),
    })
}

fn leaf() -> impl Strategy<Value = Value<'static>> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        (-300i64..300).prop_map(Value::Int),
        any::<String>().prop_map(|text| Value::Text(Cow::Owned(text))),
        (20usize..300).prop_map(|length| Value::Text("é".repeat(length).into())),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(|bytes| Value::Bytes(bytes.into())),
        cid().prop_map(Value::Link),
    ]
}

/// Any value, a few levels deep, maps in canonical order.
pub(crate) fn value() -> impl Strategy<Value = Value<'static>> {
    leaf().prop_recursive(4, 24, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::List),
            prop::collection::btree_map(any::<String>(), inner, 0..8).prop_map(|map| {
                let mut fields: Vec<_> = map
                    .into_iter()
                    .map(|(key, value)| (Cow::Owned(key), value))
                    .collect();
                fields.sort_by(|(a, _), (b, _)| key_order(a, b));
                Value::Map(fields)
            }),
        ]
    })
}
