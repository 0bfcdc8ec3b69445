//! The tables of the store that decisions read and write.
//!
//! Names and their numbers, the outbox with its head, and leases are the
//! engine's own: no decision reads or writes them as rows.

use crate::ids::{
    CollectionId, DeadId, FollowId, IndexId, KeyId, Micros, ParkedId, PendingId, RecordId, Rev,
    SortId,
};
use crate::value::Value;

table! {
    /// What is known of an account.
    Account "account" key (key) {
        key: KeyId,
        /// [`Status`](crate::account::Status) as a number.
        status: i64,
        /// When the status was said.
        status_us: Micros,
        /// The newest commit that was applied, and the beginning of its tree's hash.
        rev: Rev,
        data: Option<Vec<u8>>,
        /// The revision of the last snapshot: events at or below it are superseded.
        snapshot: Rev,
        /// [`Repair`](crate::account::Repair) as a number; null where nothing is due.
        repair: Option<i64>,
        handle: Option<String>,
        handle_us: Micros,
        /// The layout of the plan under which its whole history came; 0 if it did not.
        covered: i64,
        /// A job walks its records: to purge them (1), or to count them again (2).
        job: Option<i64>,
        /// How far that job is, as JSON; null at its beginning.
        job_at: Option<String>,
        /// The status that it has when everything that was deleted with it is removed.
        returns: Option<i64>,
        /// The newest revision of anything of it that was held or fetched by itself.
        newest: Rev,
        /// The store's due epoch when its repository came: of an older one, it is due again.
        epoch: i64,
    }
    indexes [
        "account_by_repair" (repair, key),
        "account_by_handle" (handle, key),
        "account_by_job" (job, key),
        "account_by_epoch" (epoch, key),
    ]

    /// A record, live or gone. A deleted one keeps its place, for cursors.
    Record "record" key (author, collection, rkey) {
        author: KeyId,
        collection: CollectionId,
        rkey: String,
        id: RecordId,
        rev: Rev,
        /// [`State`](crate::version::State) as a number.
        state: i64,
        time_us: Micros,
        seen_us: Micros,
        cid: Option<Vec<u8>>,
        body: Option<String>,
        /// What it refers to, as JSON: `[[path, target], …]`.
        links: Option<String>,
        /// The rows that were derived from it, as JSON; see [`Placed`](crate::derived::Placed).
        placed: Option<String>,
        /// Whether the counters count it.
        counted: bool,
    }
    indexes [
        "record_by_id" (id),
    ]

    /// A record under one of its keys in a feed index.
    Entry "entry" key (index, key, time_us, tail) {
        index: IndexId,
        key: KeyId,
        time_us: Micros,
        /// `did/rkey`, or `did/collection/rkey` in a merged index: sorts as the URI does.
        tail: String,
        record: RecordId,
    }
    indexes []

    /// A record in a feed index as a whole, with all its keys.
    Recent "recent" key (index, time_us, tail) {
        index: IndexId,
        time_us: Micros,
        tail: String,
        record: RecordId,
        author: KeyId,
        /// Key numbers, eight bytes each.
        keys: Vec<u8>,
    }
    indexes []

    /// A follow record's row.
    Follow "follow" key (source, reader, key, record) {
        source: FollowId,
        reader: KeyId,
        key: KeyId,
        record: RecordId,
    }
    indexes []

    /// A reference, by what it names.
    Reference "reference" key (target, collection, path, record) {
        /// The hash of the text that is named.
        target: i64,
        collection: CollectionId,
        path: String,
        record: RecordId,
    }
    indexes [
        "reference_by_target" (target, record),
    ]

    /// A record in a sort index.
    Sorted "sorted" key (sort, value, time_us, tail) {
        sort: SortId,
        value: Value,
        time_us: Micros,
        tail: String,
        record: RecordId,
    }
    indexes []

    /// A member of a thing: the records of one author about one subject.
    Member "member" key (index, author, thing, time_us, tail) {
        index: IndexId,
        author: KeyId,
        thing: String,
        time_us: Micros,
        tail: String,
        record: RecordId,
        /// A group begins here.
        first: bool,
        keys: Vec<u8>,
        /// What it adds to its group, as a JSON list of texts.
        adds: String,
    }
    indexes []

    /// How often one author is counted under a key, where authors are counted and not records.
    Voice "voice" key (index, key, author) {
        index: IndexId,
        key: KeyId,
        author: KeyId,
        n: i64,
    }
    indexes []

    /// A record that waits for another one.
    Parked "parked" key (id) {
        id: ParkedId,
        author: KeyId,
        collection: CollectionId,
        rkey: String,
        rev: Rev,
        /// Its AT-URI.
        uri: String,
        /// The record, as JSON ([`Content`](crate::content::Content)).
        content: String,
        live: bool,
        source: String,
        cursor: i64,
        /// What it waits for ([`Need::key`](crate::batch::Need::key)), its hash, and the field that names it.
        need: String,
        need_hash: i64,
        need_path: String,
        attempts: i64,
        /// When its pause is over; null where only an arrival wakes it.
        due_us: Option<Micros>,
        /// Its dead letter, once it waited too long.
        dead: Option<DeadId>,
        /// The dead letter that was replayed and now waits; its number is given back if it is refused again.
        was: Option<DeadId>,
        /// How often something that it waits for arrived: a decision made before one of them is void.
        woken: i64,
        /// When that was, until it is tried; null where nothing arrived since.
        woken_us: Option<Micros>,
        /// How many bytes its texts have: what trying it again takes of a batch.
        bytes: i64,
    }
    indexes [
        "parked_by_path" (author, collection, rkey, id),
        "parked_by_need" (need_hash, id),
        "parked_by_due" (due_us, id, bytes),
        "parked_by_woken" (woken_us, id, bytes),
    ]

    /// An operation that waits in a queue.
    Pending "pending" key (queue, id) {
        /// The name of its queue.
        queue: String,
        id: PendingId,
        author: KeyId,
        collection: CollectionId,
        rkey: String,
        rev: Rev,
        /// Its AT-URI.
        uri: String,
        /// The operation, as JSON ([`Numbered`](crate::content::Numbered)).
        op: String,
        live: bool,
        source: String,
        cursor: i64,
        /// When it came.
        seen_us: Micros,
    }
    indexes []

    /// How many operations wait in a queue. Written by difference.
    Depth "depth" key (queue) {
        queue: String,
        n: i64,
    }
    indexes []

    /// A record or frame that was refused for good.
    Dead "dead" key (id) {
        id: DeadId,
        author: KeyId,
        collection: CollectionId,
        rkey: String,
        rev: Rev,
        /// Its AT-URI; empty where it is about no record.
        uri: String,
        /// The hash of (path, raw): the same bytes are kept once.
        fingerprint: i64,
        /// The [`Fault`](crate::batch::Fault), as JSON.
        fault: String,
        raw: String,
        source: String,
        cursor: i64,
        time_us: Micros,
        /// How often it arrived.
        arrivals: i64,
        /// When it was last tried again.
        replayed_us: Option<Micros>,
        /// The [`Stage`](crate::batch::Stage) of its fault, in a word.
        stage: String,
        /// How many bytes it takes.
        bytes: i64,
    }
    indexes [
        "dead_by_path" (author, collection, rkey, id),
        "dead_by_fingerprint" (fingerprint, id),
        "dead_by_time" (time_us, id),
    ]

    /// How many dead letters there are of a stage and collection. Written by difference.
    DeadKind "dead_kind" key (stage, collection) {
        stage: String,
        collection: CollectionId,
        n: i64,
    }
    indexes []

    /// How many records of a collection wait for others. Written by difference.
    Waiting "waiting" key (collection) {
        collection: CollectionId,
        n: i64,
    }
    indexes []

    /// A number of the store as a whole, by name. Written by difference.
    Total "total" key (name) {
        name: String,
        n: i64,
    }
    indexes []

    /// A reader whose repository was asked for when it first read.
    FirstRead "first_read" key (reader) {
        reader: KeyId,
        /// When it asked; null once its host did not answer.
        asked_us: Option<Micros>,
        /// When it was given up.
        failed_us: Option<Micros>,
    }
    indexes [
        "first_read_by_asked" (asked_us, reader),
        "first_read_by_failed" (failed_us, reader),
    ]

    /// An account that is being fetched; one that is there at a start was being fetched when the
    /// process died.
    Fetching "fetching" key (author) {
        author: KeyId,
        begun_us: Micros,
        attempts: i64,
    }
    indexes []

    /// What the ingesting process said of itself last; there is one row.
    Heartbeat "heartbeat" key (id) {
        id: i64,
        at_us: Micros,
        report: String,
    }
    indexes []

    /// A clock that was found wrong and whose records are not repaired; there is one row.
    WrongClock "wrong_clock" key (id) {
        id: i64,
        /// When that was found, by that clock.
        at_us: Micros,
        /// It minus the events' times.
        off_us: Micros,
    }
    indexes []

    /// A frame that waits for its account's resync.
    Held "held" key (author, rev) {
        author: KeyId,
        rev: Rev,
        source: String,
        units: i64,
        frame: Vec<u8>,
    }
    indexes []

    /// How many records, or authors, are counted under a key. Written by difference.
    Counter "counter" key (index, key) {
        index: IndexId,
        key: KeyId,
        n: i64,
    }
    indexes [
        "counter_by_n" (index, n, key),
    ]

    /// How many live records a collection has. Written by difference.
    Kept "kept" key (collection) {
        collection: CollectionId,
        n: i64,
    }
    indexes []

    /// How many units of a source had one outcome. Written by difference.
    Outcomes "outcomes" key (source, outcome) {
        source: String,
        outcome: String,
        n: i64,
    }
    indexes []

    /// How far a source was read.
    Cursor "cursor" key (source) {
        source: String,
        cursor: i64,
    }
    indexes []
}
