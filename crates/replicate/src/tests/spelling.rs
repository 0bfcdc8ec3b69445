//! Messages in CBOR over HTTP.

use super::*;

#[tokio::test]
async fn canonical_cbor_is_read_and_answered_and_nothing_else_is_read_as_such() {
    const CANONICAL: &str = "application/vnd.ipld.dag-cbor";
    let server = serve(LogSettings::open()).await;
    let append = json!({"requestId": 1, "blocks": [block("a", 1)]});
    let bytes = crate::cbor::from_json(&append);
    let (status, head, body) = server.send("/log/space/append", CANONICAL, &bytes).await;
    assert_eq!(status, 200, "{head}");
    assert!(
        head.contains(&format!("content-type: {CANONICAL}")),
        "{head}"
    );
    let answer = crate::cbor::canonical_to_json(&body).unwrap();
    assert_eq!(answer["positions"], json!([1]));
    // The same message with the keys the other way round: {"type": "list", "requestId": 1}.
    let mut unsorted = vec![0xA2, 0x69];
    unsorted.extend(b"requestId\x01\x64type\x64list");
    let (status, ..) = server.send("/log/space/list", CANONICAL, &unsorted).await;
    assert_eq!(status, 400);
    let (status, head, _) = server
        .send("/log/space/list", "application/cbor", &unsorted)
        .await;
    assert_eq!(status, 200, "ordinary CBOR may be so: {head}");
    // JSON is answered in CBOR where that is asked for.
    let accept = format!("application/json\r\naccept: {CANONICAL}");
    let query = json!({"requestId": 1}).to_string();
    let (_, head, body) = server
        .send("/log/space/query", &accept, query.as_bytes())
        .await;
    assert!(head.contains(CANONICAL), "{head}");
    let page = crate::cbor::canonical_to_json(&body).unwrap();
    assert_eq!(page["blocks"][0]["sequence"], 1);
}
