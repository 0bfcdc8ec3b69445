//! References between records, both ways.

use serde_json::Value;

use super::desk::{ALICE, BOB, Desk, listen};

fn desk() -> Desk {
    Desk::new(
        "[collections.post]\ncollection = \"com.example.post\"\nvalidate = false\nlinks = [\"about\", \"parent\"]\n",
    )
}

/// Asks the desk's server; (status, body).
async fn ask(desk: &Desk, path: &str) -> (u16, Value) {
    let address = listen(desk.server(None)).await;
    let response = reqwest::get(format!("{address}/xrpc/com.example.{path}"))
        .await
        .unwrap();
    let status = response.status().as_u16();
    let body = response.json().await.unwrap();
    (status, body)
}

#[tokio::test]
async fn every_referrer_is_listed_once_page_by_page() {
    let desk = desk();
    let target = desk.uri(ALICE, "post", "t");
    for number in 0..7 {
        desk.put(
            BOB,
            "post",
            &number.to_string(),
            &format!("{{\"about\":\"{target}\",\"parent\":\"{target}\"}}"),
        );
    }
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let (status, page) = ask(
            &desk,
            &format!("listReferences?uri={target}&limit=3{cursor}"),
        )
        .await;
        assert_eq!(status, 200);
        for reference in page["references"].as_array().unwrap() {
            let rkey = reference["record"]["rkey"].as_str().unwrap();
            seen.push(format!("{rkey} {}", reference["path"].as_str().unwrap()));
        }
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let expected: Vec<String> = (0..7)
        .rev()
        .flat_map(|number| [format!("{number} about"), format!("{number} parent")])
        .collect();
    assert_eq!(seen, expected);
    let (_, page) = ask(&desk, &format!("listReferences?uri={target}&path=about")).await;
    assert_eq!(page["references"].as_array().unwrap().len(), 7);
    assert_eq!(ask(&desk, "listReferences").await.0, 400);
    assert_eq!(
        ask(&desk, &format!("listReferences?uri={target}&cursor=zz"))
            .await
            .0,
        400
    );
}

#[tokio::test]
async fn a_dangling_reference_is_kept_and_shown_as_null_with_a_flag() {
    let desk = desk();
    let target = desk.uri(ALICE, "post", "t");
    desk.put(ALICE, "post", "t", "{\"text\":\"here\"}");
    desk.put(BOB, "post", "1", &format!("{{\"about\":\"{target}\"}}"));
    let uri = desk.uri(BOB, "post", "1");
    let (_, body) = ask(&desk, &format!("getReferences?uri={uri}")).await;
    assert_eq!(body["references"][0]["exists"], true);
    assert_eq!(body["references"][0]["record"]["value"]["text"], "here");
    desk.delete(ALICE, "post", "t");
    let (_, body) = ask(&desk, &format!("getReferences?uri={uri}")).await;
    let reference = &body["references"][0];
    assert_eq!(
        (&reference["uri"], &reference["path"]),
        (&Value::from(target.clone()), &Value::from("about"))
    );
    assert_eq!(
        (&reference["exists"], &reference["record"]),
        (&Value::from(false), &Value::Null)
    );
    let (_, body) = ask(&desk, &format!("listReferences?uri={target}")).await;
    assert_eq!(body["references"].as_array().unwrap().len(), 1);
    assert_eq!(
        ask(&desk, &format!("getReferences?uri={target}")).await.0,
        404
    );
}

#[tokio::test]
async fn an_edit_replaces_its_references_and_a_delete_takes_them_along() {
    let desk = desk();
    let (old, new) = (
        desk.uri(ALICE, "post", "old"),
        desk.uri(ALICE, "post", "new"),
    );
    desk.put(BOB, "post", "1", &format!("{{\"about\":\"{old}\"}}"));
    desk.put(BOB, "post", "1", &format!("{{\"about\":\"{new}\"}}"));
    let count = async |uri: &str| {
        let (_, body) = ask(&desk, &format!("listReferences?uri={uri}")).await;
        body["references"].as_array().unwrap().len()
    };
    assert_eq!((count(&old).await, count(&new).await), (0, 1));
    desk.delete(BOB, "post", "1");
    assert_eq!(count(&new).await, 0);
}

#[tokio::test]
async fn what_a_record_refers_to_comes_page_by_page() {
    let desk = desk();
    let targets: Vec<String> = (0..5)
        .map(|n| format!("\"{}\"", desk.uri(ALICE, "post", &n.to_string())))
        .collect();
    desk.put(
        BOB,
        "post",
        "1",
        &format!("{{\"about\":[{}]}}", targets.join(",")),
    );
    let uri = desk.uri(BOB, "post", "1");
    let (mut seen, mut cursor) = (0, String::new());
    loop {
        let (_, page) = ask(&desk, &format!("getReferences?uri={uri}&limit=2{cursor}")).await;
        seen += page["references"].as_array().unwrap().len();
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, 5);
}

/// What a walk must find, by asking every record in turn.
fn reached(
    edges: &[(String, String)],
    from: &str,
    depth: usize,
    ways: (bool, bool),
) -> std::collections::BTreeSet<String> {
    let mut reached = std::collections::BTreeSet::from([from.to_owned()]);
    for _ in 0..depth {
        let before = reached.clone();
        for (source, target) in edges {
            if ways.0 && before.contains(source) {
                reached.insert(target.clone());
            }
            if ways.1 && before.contains(target) {
                reached.insert(source.clone());
            }
        }
    }
    reached
}

#[tokio::test]
async fn a_walk_reaches_what_a_search_by_hand_reaches_each_way_at_each_depth() {
    let desk = desk();
    let mut rng = sim::rng::Rng::new(41);
    let mut edges = Vec::new();
    for number in 0..30 {
        let (about, parent) = (rng.below(30), rng.below(30));
        let uris = [about, parent].map(|n| desk.uri(ALICE, "post", &n.to_string()));
        let body = format!("{{\"about\":\"{}\",\"parent\":\"{}\"}}", uris[0], uris[1]);
        desk.put(ALICE, "post", &number.to_string(), &body);
        let from = desk.uri(ALICE, "post", &number.to_string());
        edges.extend(uris.map(|to| (from.clone(), to)));
    }
    for start in ["3", "17"] {
        let uri = desk.uri(ALICE, "post", start);
        for depth in [1, 2, 4] {
            for (direction, ways) in [
                ("out", (true, false)),
                ("in", (false, true)),
                ("both", (true, true)),
            ] {
                let path =
                    format!("getGraph?uri={uri}&depth={depth}&direction={direction}&limit=1000");
                let (status, body) = ask(&desk, &path).await;
                assert_eq!(status, 200, "{body}");
                let nodes: std::collections::BTreeSet<String> = body["nodes"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|node| node["uri"].as_str().unwrap().to_owned())
                    .collect();
                assert_eq!(nodes, reached(&edges, &uri, depth, ways), "{path}");
                assert_eq!(body["truncated"], false);
            }
        }
    }
}

#[tokio::test]
async fn a_walk_is_bounded_says_so_and_follows_nothing_hidden() {
    let desk = desk();
    let hub = desk.uri(ALICE, "post", "hub");
    for number in 0..20 {
        let body = format!("{{\"about\":\"{hub}\"}}");
        desk.put(BOB, "post", &number.to_string(), &body);
    }
    let (_, body) = ask(&desk, &format!("getGraph?uri={hub}&limit=5")).await;
    assert_eq!(body["nodes"].as_array().unwrap().len(), 5);
    assert_eq!(
        (&body["truncated"], &body["nodes"][0]["exists"]),
        (&Value::from(true), &Value::from(false))
    );
    for bad in [
        "depth=0",
        "depth=9",
        "limit=1001",
        "direction=up",
        "limit=x",
    ] {
        let (status, body) = ask(&desk, &format!("getGraph?uri={hub}&{bad}")).await;
        assert_eq!(
            (status, &body["error"]),
            (400, &Value::from("InvalidRequest")),
            "{bad}"
        );
    }
    desk.apply(feedmill::store::batch::Item::Account {
        did: BOB.into(),
        status: feedmill::store::AccountStatus::Takendown,
        time_us: desk.now_us(),
    });
    let (_, body) = ask(&desk, &format!("getGraph?uri={hub}")).await;
    assert_eq!(body["nodes"].as_array().unwrap().len(), 1, "{body}");
}
