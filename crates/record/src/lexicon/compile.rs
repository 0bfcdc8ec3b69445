//! Linking documents into one [`Catalog`].
//!
//! In:    documents in any order.
//! Out:   nodes in which every reference is an index.
//! Never: unbounded recursion. Every definition first gets an index and then its
//!        content, so cycles are harmless.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::ids::Nsid;
use crate::value::key_order;

use super::LexiconError;
use super::catalog::{Catalog, Collection, Field, Method, Node, NodeId, Union};
use super::document::{Def, Document, Property, Reference, Schema};
use super::format::Format;

/// The first node of every catalog is the type of all values not described.
const ANY: NodeId = NodeId(0);

/// Builds the catalog of `documents`.
pub(super) fn catalog(
    documents: impl IntoIterator<Item = Document>,
) -> Result<Catalog, LexiconError> {
    let documents = unique(documents)?;
    let mut linker = Linker {
        nodes: vec![Node::Any],
        defs: HashMap::new(),
        collections: HashMap::new(),
        methods: HashMap::new(),
        missing: Vec::new(),
    };
    for document in &documents {
        linker.reserve(document);
    }
    for document in documents {
        linker.fill(document)?;
    }
    Ok(linker.finish())
}

fn unique(documents: impl IntoIterator<Item = Document>) -> Result<Vec<Document>, LexiconError> {
    let mut by_id: HashMap<Nsid, Document> = HashMap::new();
    for document in documents {
        match by_id.entry(document.id.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(document);
            }
            Entry::Occupied(entry) if *entry.get() == document => {}
            Entry::Occupied(entry) => {
                return Err(LexiconError::Conflict(entry.key().to_string()));
            }
        }
    }
    let mut documents: Vec<Document> = by_id.into_values().collect();
    documents.sort_unstable_by(|a, b| a.id.cmp(&b.id));
    Ok(documents)
}

struct Linker {
    nodes: Vec<Node>,
    /// `None`: defined, but not as a type of field.
    defs: HashMap<Reference, Option<NodeId>>,
    collections: HashMap<Box<str>, Collection>,
    methods: HashMap<Box<str>, Method>,
    missing: Vec<String>,
}

impl Linker {
    /// Gives every definition an index, so that references to it can be resolved.
    fn reserve(&mut self, document: &Document) {
        for (name, def) in &document.defs {
            let id = match def {
                Def::Record { .. } | Def::Field(_) => Some(self.add(Node::Any)),
                Def::Method { .. } | Def::Subscription { .. } | Def::PermissionSet => None,
            };
            self.defs.insert(Reference::new(&document.id, name), id);
        }
    }

    /// Gives every definition its content.
    fn fill(&mut self, document: Document) -> Result<(), LexiconError> {
        let home = document.id;
        for (name, def) in document.defs {
            let reference = Reference::new(&home, &name);
            match def {
                Def::Record { key, schema } => {
                    let node = self.fill_def(&reference, schema, &home)?;
                    self.collections
                        .insert(home.as_str().into(), Collection { node, key });
                }
                Def::Field(schema) => {
                    self.fill_def(&reference, schema, &home)?;
                }
                Def::Method { input, output } => {
                    let method = Method {
                        input: self.body(input, &reference, &home)?,
                        output: self.body(output, &reference, &home)?,
                    };
                    self.methods.insert(home.as_str().into(), method);
                }
                Def::Subscription { message } => {
                    self.body(message, &reference, &home)?;
                }
                Def::PermissionSet => {}
            }
        }
        Ok(())
    }

    fn fill_def(
        &mut self,
        reference: &Reference,
        schema: Schema,
        home: &Nsid,
    ) -> Result<NodeId, LexiconError> {
        let node = self.node(schema, reference, home)?;
        let id = self.defs.get(reference).copied().flatten().unwrap_or(ANY);
        if let Some(reserved) = self.nodes.get_mut(id.0 as usize) {
            *reserved = node;
        }
        Ok(id)
    }

    fn body(
        &mut self,
        schema: Option<Schema>,
        owner: &Reference,
        home: &Nsid,
    ) -> Result<Option<NodeId>, LexiconError> {
        schema
            .map(|schema| self.node_id(schema, owner, home))
            .transpose()
    }

    /// The index of a schema within a definition: for a reference the index of
    /// its target, for any other type a new one.
    fn node_id(
        &mut self,
        schema: Schema,
        owner: &Reference,
        home: &Nsid,
    ) -> Result<NodeId, LexiconError> {
        match schema {
            Schema::Ref(target) => self.resolve(&target, home),
            schema => {
                let node = self.node(schema, owner, home)?;
                Ok(self.add(node))
            }
        }
    }

    fn node(
        &mut self,
        schema: Schema,
        owner: &Reference,
        home: &Nsid,
    ) -> Result<Node, LexiconError> {
        Ok(match schema {
            Schema::Null => Node::Null,
            Schema::Boolean(rule) => Node::Boolean(rule),
            Schema::Integer(rule) => Node::Integer(rule),
            Schema::Text(rule) => Node::Text(rule),
            Schema::Bytes(length) => Node::Bytes(length),
            Schema::Link => Node::Link,
            Schema::Blob(rule) => Node::Blob(rule),
            Schema::Array { items, length } => Node::Array {
                items: self.node_id(*items, owner, home)?,
                length,
            },
            Schema::Object(properties) => self.object(properties, owner, home)?,
            Schema::Union { refs, closed } => self.union(&refs, closed, home)?,
            Schema::Token => Node::Token(owner.as_str().into()),
            Schema::Unknown => Node::Unknown,
            // The parser refuses a reference as a definition; a document that
            // was not parsed may still have one.
            Schema::Ref(target) => {
                return Err(LexiconError::NotAField {
                    home: home.to_string(),
                    target: target.as_str().to_owned(),
                });
            }
        })
    }

    fn object(
        &mut self,
        properties: Vec<Property>,
        owner: &Reference,
        home: &Nsid,
    ) -> Result<Node, LexiconError> {
        let mut fields = Vec::with_capacity(properties.len());
        for property in properties {
            let node = match property.schema {
                Some(schema) => self.node_id(schema, owner, home)?,
                None => ANY,
            };
            fields.push(Field {
                name: property.name.into(),
                node,
                required: property.required,
                nullable: property.nullable,
            });
        }
        fields.sort_unstable_by(|a, b| key_order(&a.name, &b.name));
        Ok(Node::Object(fields.into()))
    }

    fn union(
        &mut self,
        refs: &[Reference],
        closed: bool,
        home: &Nsid,
    ) -> Result<Node, LexiconError> {
        let mut members = Vec::with_capacity(refs.len());
        for target in refs {
            members.push((target.as_str().into(), self.resolve(target, home)?));
        }
        members.sort_unstable_by(|(a, _): &(Box<str>, NodeId), (b, _)| key_order(a, b));
        members.dedup_by(|(a, _), (b, _)| a == b);
        Ok(Node::Union(Union {
            members: members.into(),
            closed,
        }))
    }

    fn resolve(&mut self, target: &Reference, home: &Nsid) -> Result<NodeId, LexiconError> {
        match self.defs.get(target) {
            Some(Some(id)) => Ok(*id),
            Some(None) => Err(LexiconError::NotAField {
                home: home.to_string(),
                target: target.as_str().to_owned(),
            }),
            None => {
                self.missing.push(target.as_str().to_owned());
                Ok(ANY)
            }
        }
    }

    fn add(&mut self, node: Node) -> NodeId {
        let id = u32::try_from(self.nodes.len()).expect("lexicons have fewer than 2^32 fields");
        self.nodes.push(node);
        NodeId(id)
    }

    fn finish(mut self) -> Catalog {
        self.missing.sort_unstable();
        self.missing.dedup();
        Catalog {
            linked: linked(&self.nodes),
            nodes: self.nodes,
            collections: self.collections,
            methods: self.methods,
            defs: self
                .defs
                .into_iter()
                .filter_map(|(reference, id)| Some((reference.as_str().into(), id?)))
                .collect(),
            missing: self.missing,
        }
    }
}

/// Which nodes can have a link at or below them. Propagates from the links
/// upwards until nothing changes; every round marks at least one more node, and
/// cycles without a link stay unmarked.
fn linked(nodes: &[Node]) -> Vec<bool> {
    let mut linked = vec![false; nodes.len()];
    loop {
        let is = |linked: &[bool], id: &NodeId| linked.get(id.0 as usize) == Some(&true);
        let next: Vec<bool> = nodes
            .iter()
            .map(|node| match node {
                Node::Text(rule) => matches!(rule.format, Some(Format::AtUri | Format::Did)),
                Node::Array { items, .. } => is(&linked, items),
                Node::Object(fields) => fields.iter().any(|field| is(&linked, &field.node)),
                Node::Union(union) => union.nodes().any(|node| is(&linked, &node)),
                _ => false,
            })
            .collect();
        if next == linked {
            return linked;
        }
        linked = next;
    }
}
