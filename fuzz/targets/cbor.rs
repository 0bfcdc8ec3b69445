//! DAG-CBOR: there is one encoding of a value, so what is decoded encodes to
//! the very bytes it came from; and JSON tells the same value.

#![no_main]

use libfuzzer_sys::fuzz_target;
use record::{cbor, json};

fuzz_target!(|bytes: &[u8]| {
    let mut streamed = Vec::new();
    let streaming = cbor::to_json(bytes, &mut streamed);
    let value = match cbor::decode(bytes) {
        Ok(value) => value,
        Err(_) => {
            assert!(streaming.is_err(), "both ways to JSON refuse the same");
            return;
        }
    };
    assert_eq!(cbor::encode(&value), bytes);
    let mut text = Vec::new();
    json::to_json(&value, &mut text);
    streaming.expect("both ways to JSON accept the same");
    assert_eq!(
        String::from_utf8_lossy(&text),
        String::from_utf8_lossy(&streamed)
    );
    let text = std::str::from_utf8(&text).expect("JSON is text");
    // Some maps look like links or bytes in JSON without being so; those may be refused, never changed.
    if let Ok(again) = json::from_json(text)
        && json::check_map(&[("x".into(), value.clone())]).is_ok()
        && record::validate::check_model(&value).is_ok()
    {
        assert_eq!(again, value);
    }
});
