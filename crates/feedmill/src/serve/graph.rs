//! `{ns}.getGraph`: a walk over references from one record.

use super::error::XrpcError;
use super::params::Params;
use super::{Answer, Server, body, references};
use crate::store::graph::{Direction, Walk};

/// Steps away from the start where the caller does not say.
pub(super) const DEPTH_DEFAULT: usize = 2;
/// Steps of the longest walk.
pub(super) const DEPTH_MAX: usize = 8;
/// Nodes where the caller does not say.
pub(super) const NODES_DEFAULT: usize = 100;
/// Nodes of the largest answer.
pub(super) const NODES_MAX: usize = 1000;
/// Edges for each node asked for.
const EDGES_PER_NODE_MAX: usize = 8;

pub(super) fn get(server: &Server, params: &Params) -> Result<Answer, XrpcError> {
    let nodes_max = params.number("limit", NODES_DEFAULT, NODES_MAX)?;
    let walk = Walk {
        from: references::resolved(server, params)?,
        direction: match params.get("direction") {
            None | Some("both") => Direction::Both,
            Some("out") => Direction::Out,
            Some("in") => Direction::In,
            Some(other) => {
                return Err(XrpcError::invalid(format!(
                    "direction must be out, in or both, not {other:?}"
                )));
            }
        },
        path: params.get("path").map(str::to_owned),
        depth: params.number("depth", DEPTH_DEFAULT, DEPTH_MAX)?,
        nodes_max,
        edges_max: nodes_max * EDGES_PER_NODE_MAX,
    };
    let found = server.store.walk(&walk)?;
    let mut out = String::from("{\"uri\":");
    body::push_string(&mut out, &walk.from);
    out.push_str(",\"nodes\":[");
    let shows = |uri: &str| server.shows(params, uri);
    let nodes = found.nodes.iter().filter(|node| shows(&node.uri));
    for (index, node) in nodes.enumerate() {
        out.push_str(if index == 0 { "" } else { "," });
        out.push_str("{\"uri\":");
        body::push_string(&mut out, &node.uri);
        out.push_str(&format!(
            ",\"depth\":{},\"exists\":{}}}",
            node.depth, node.exists
        ));
    }
    out.push_str("],\"edges\":[");
    let edges = found.edges.iter();
    let edges = edges.filter(|edge| shows(&edge.from) && shows(&edge.to));
    let mut truncated = found.truncated;
    for (index, edge) in edges.enumerate() {
        if server.is_large(&out) {
            truncated = true;
            break;
        }
        out.push_str(if index == 0 { "" } else { "," });
        out.push_str("{\"from\":");
        body::push_string(&mut out, &edge.from);
        out.push_str(",\"path\":");
        body::push_string(&mut out, &edge.path);
        out.push_str(",\"to\":");
        body::push_string(&mut out, &edge.to);
        out.push('}');
    }
    out.push_str(&format!("],\"truncated\":{truncated}}}"));
    Ok(Answer::json(out))
}
