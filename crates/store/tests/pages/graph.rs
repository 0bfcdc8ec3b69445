//! Walks of the graph.

use std::collections::BTreeSet;

use proptest::prelude::*;
use store::page::graph::{Direction, Edge, Node, Walk, Walked, walk};

use crate::naive::All;
use crate::reference::links;
use crate::world::{Counting, did, engines, post, step};

/// Every reference of a visible record, those of records stored last first.
fn edges(all: &All) -> Vec<Edge> {
    let records = all.records.keys().rev().filter_map(|id| all.visible(*id));
    let of_one = |record| {
        let from = all.uri(record);
        links(record).into_iter().map(move |(path, to)| Edge {
            from: from.clone(),
            path,
            to,
        })
    };
    records.flat_map(of_one).collect()
}

/// The walk, one node after the other.
fn naive(all: &All, asked: &Walk<'_>) -> Walked {
    let edges = edges(all);
    let visible = all.records.keys().filter_map(|id| all.visible(*id));
    let visible: BTreeSet<String> = visible.map(|record| all.uri(record)).collect();
    let node = |uri: &str, depth| Node {
        uri: uri.to_owned(),
        depth,
        exists: visible.contains(uri),
    };
    let mut found = Walked {
        truncated: asked.nodes_max == 0,
        ..Walked::default()
    };
    if asked.nodes_max > 0 {
        found.nodes.push(node(asked.from, 0));
    }
    let mut taken = BTreeSet::new();
    let mut next = 0;
    while next < found.nodes.len() {
        let Node { uri, depth, .. } = found.nodes[next].clone();
        next += 1;
        if depth == asked.depth {
            continue;
        }
        let fits = |edge: &&Edge| asked.path.is_none_or(|path| path == edge.path);
        let out = edges
            .iter()
            .filter(|edge| edge.from == uri && asked.direction != Direction::In);
        let into = edges
            .iter()
            .filter(|edge| edge.to == uri && asked.direction != Direction::Out);
        let out = out.filter(fits).map(|edge| (edge, &edge.to));
        let into = into.filter(fits).map(|edge| (edge, &edge.from));
        for (edge, other) in out.chain(into) {
            if taken.len() >= asked.edges_max && !taken.contains(edge) {
                found.truncated = true;
                continue;
            }
            if found.nodes.iter().all(|node| node.uri != *other) {
                if found.nodes.len() >= asked.nodes_max {
                    found.truncated = true;
                    continue;
                }
                found.nodes.push(node(other, depth + 1));
            }
            taken.insert(edge.clone());
        }
    }
    found.edges = taken.into_iter().collect();
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_walk_is_what_all_rows_say(
        steps in prop::collection::vec(step(), 1..200),
        batch_max in 1..40usize,
        depth in 0..4usize,
        nodes_max in 0..15usize,
        edges_max in 0..15usize,
        wanted in prop::option::of(prop::sample::select(vec!["subject", "quote", "embed.uri"])),
        direction in prop::sample::select(vec![Direction::Out, Direction::In, Direction::Both]),
    ) {
        let (_folder, engines) = engines(&steps, batch_max);
        for store in &engines {
            let snapshot = store.snapshot().unwrap();
            let all = All::of(&*snapshot);
            let posts = (0..4).map(|author| post(author, 1));
            let links = (0..4).map(|author| format!("at://{}/x.link/1", did(author)));
            for from in posts.chain(links).chain([did(0), "nobody".into()]) {
                let asked = Walk { from: &from, direction, path: wanted, depth, nodes_max, edges_max };
                let counting = Counting::new(&*snapshot);
                prop_assert_eq!(walk(&counting, &asked).unwrap(), naive(&all, &asked));
                prop_assert!(counting.trips() <= 2 + 7 * depth);
            }
        }
    }
}
