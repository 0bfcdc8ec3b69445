//! The model's rules on cases small enough to check by eye.

use sim::model::{Fact, Listed, Model, Question, Standing};

fn fact(did: &str, collection: &str, rkey: &str, created_us: impl Into<Option<i64>>) -> Fact {
    Fact {
        did: did.to_owned(),
        collection: collection.to_owned(),
        rkey: rkey.to_owned(),
        cid: String::new(),
        created_us: created_us.into(),
        sound: true,
        fields: Some([("text", vec!["one two".to_owned()])].into()),
    }
}

fn model(facts: impl IntoIterator<Item = Fact>) -> Model {
    let mut model = Model::default();
    for fact in facts {
        model.put(fact);
    }
    model
}

fn uris(list: Vec<Listed>) -> Vec<String> {
    list.into_iter().map(|entry| entry.uri).collect()
}

#[test]
fn list_shows_a_collection_of_one_account_or_of_all() {
    let model = model([
        fact("ann", "post", "1", 10),
        fact("bob", "post", "1", 20),
        fact("ann", "note", "1", 0),
    ]);
    let of = |did| uris(model.list("post", did, true, &|_| 1000));
    assert_eq!(of(None), ["at://bob/post/1", "at://ann/post/1"]);
    assert_eq!(of(Some("ann")), ["at://ann/post/1"]);
}

#[test]
fn missing_and_future_times_are_replaced_by_first_sight() {
    for (created_us, time_us) in [
        (Some(5000), 1000),
        (None, 1000),
        (Some(1000), 1000),
        (Some(999), 999),
    ] {
        assert_eq!(fact("ann", "post", "1", created_us).time(1000), time_us);
    }
}

#[test]
fn lists_leave_out_the_hidden_and_the_unsound() {
    let mut model = model([
        fact("ann", "post", "1", 10),
        fact("bob", "post", "1", 20),
        Fact {
            sound: false,
            ..fact("cem", "post", "1", 30)
        },
    ]);
    model.stand("ann", Standing::Suspended);
    let shown = |lexicons| uris(model.list("post", None, lexicons, &|_| 1000));
    assert_eq!(shown(true), ["at://bob/post/1"]);
    assert_eq!(shown(false), ["at://cem/post/1", "at://bob/post/1"]);
}

#[test]
fn a_record_whose_writer_did_not_tell_what_it_says_answers_no_question() {
    let silent = Fact {
        fields: None,
        ..fact("ann", "post", "2", 20)
    };
    let model = model([fact("ann", "post", "1", 10), silent]);
    let all = model.list("post", None, true, &|_| 1000);
    let question = Question {
        words: vec!["two"],
        ..Question::default()
    };
    assert_eq!(uris(model.ask(&all, &question)), ["at://ann/post/1"]);
}
