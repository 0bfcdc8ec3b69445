//! DAG-CBOR: there is one encoding of a value, so what is decoded encodes to
//! the very bytes it came from; and JSON tells the same value.

#![no_main]

use libfuzzer_sys::fuzz_target;
use record::{cbor, json};

fuzz_target!(|bytes: &[u8]| {
    let Ok(value) = cbor::decode(bytes) else {
        return;
    };
    assert_eq!(cbor::encode(&value), bytes);
    let mut text = String::new();
    json::to_json(&value, &mut text);
    // Some maps look like links or bytes in JSON without being so; those may be refused, never changed.
    if let Ok(again) = json::from_json(&text)
        && json::check_map(&[("x".into(), value.clone())]).is_ok()
        && record::validate::check_model(&value).is_ok()
    {
        assert_eq!(again, value);
    }
});
