//! Changes of the model's world, made to the engine.

use timeline::{KeyId, NewRecord, RecordId, Timelines};

use crate::world::{Change, Post};

pub(crate) fn put(engine: &mut Timelines, post: &Post) {
    let keys: Vec<KeyId> = post.keys.iter().copied().map(KeyId).collect();
    engine.insert(
        post.feed,
        post.target,
        NewRecord {
            id: RecordId(post.id),
            time_us: post.time_us,
            uri: &post.uri,
            author: KeyId(post.author),
            keys: &keys,
        },
    );
}

/// Posts of one target, in one call.
pub(crate) fn put_all(engine: &mut Timelines, posts: &[Post]) {
    let keys: Vec<Vec<KeyId>> = posts
        .iter()
        .map(|post| post.keys.iter().copied().map(KeyId).collect())
        .collect();
    let records: Vec<NewRecord<'_>> = posts
        .iter()
        .zip(&keys)
        .map(|(post, keys)| NewRecord {
            id: RecordId(post.id),
            time_us: post.time_us,
            uri: &post.uri,
            author: KeyId(post.author),
            keys,
        })
        .collect();
    if let Some(first) = posts.first() {
        engine.insert_all(first.feed, first.target, &records);
    }
}

pub(crate) fn apply(engine: &mut Timelines, change: &Change) {
    match change {
        Change::Put(post) => put(engine, post),
        Change::Delete(id) => {
            engine.remove(RecordId(*id));
        }
        Change::Account(author, hidden) => engine.account(KeyId(*author), *hidden),
        Change::Follow(feed, reader, key) => engine.follow(*feed, KeyId(*reader), KeyId(*key)),
        Change::Unfollow(feed, reader, key) => engine.unfollow(*feed, KeyId(*reader), KeyId(*key)),
        Change::Hide(feed, reader, author) => engine.hide(*feed, KeyId(*reader), KeyId(*author)),
        Change::Unhide(feed, reader, author) => {
            engine.unhide(*feed, KeyId(*reader), KeyId(*author))
        }
    }
}
