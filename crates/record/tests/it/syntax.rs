//! String formats: our own examples, and every line of the published files.

use record::ids::{AtUri, Did, Handle, Nsid, RecordKey, UriParts, is_at_identifier};
use record::lexicon::Format;
use record::tid::Tid;
use record::{datetime, language, uri};

use crate::examples::{self, Examples};
use crate::published;

/// Checks our examples, and the published files of the format called `name`.
#[track_caller]
fn check(name: &str, is_valid: impl Fn(&str) -> bool, examples: &Examples) {
    for text in examples.valid {
        assert!(is_valid(text), "{name}: {text:?} is refused");
    }
    for (rule, text) in examples.invalid {
        assert!(!is_valid(text), "{name}: {text:?} is accepted ({rule})");
    }
    for (kind, expected, required) in [
        ("syntax_valid", true, true),
        ("syntax_invalid", false, true),
        ("parse_invalid", false, false),
    ] {
        let file = format!("interop/syntax/{name}_{kind}.txt");
        for line in published::lines(&file, required).unwrap_or_default() {
            assert_eq!(is_valid(&line), expected, "{file}: {line:?}");
        }
    }
}

#[test]
fn dids_follow_the_vectors() {
    check("did", Did::is_valid, &examples::DID);
}

#[test]
fn handles_follow_the_vectors() {
    check("handle", Handle::is_valid, &examples::HANDLE);
}

#[test]
fn at_identifiers_follow_the_vectors() {
    check("atidentifier", is_at_identifier, &examples::AT_IDENTIFIER);
}

#[test]
fn nsids_follow_the_vectors() {
    check("nsid", Nsid::is_valid, &examples::NSID);
}

#[test]
fn record_keys_follow_the_vectors() {
    check("recordkey", RecordKey::is_valid, &examples::RECORD_KEY);
}

#[test]
fn at_uris_follow_the_vectors() {
    check("aturi", AtUri::is_valid, &examples::AT_URI);
}

#[test]
fn datetimes_follow_the_vectors() {
    check("datetime", datetime::is_valid, &examples::DATETIME);
}

#[test]
fn languages_follow_the_vectors() {
    check("language", language::is_valid, &examples::LANGUAGE);
}

#[test]
fn uris_follow_the_vectors() {
    check("uri", uri::is_valid, &examples::URI);
}

#[test]
fn tids_follow_the_vectors() {
    let accepts = |text: &str| Tid::parse(text).is_ok_and(|tid| tid.to_string() == text);
    check("tid", accepts, &examples::TID);
}

#[test]
fn cids_follow_the_vectors() {
    check("cid", |text| Format::Cid.accepts(text), &examples::CID);
}

/// Checks that a text of exactly `bytes_max` bytes is accepted and one of a
/// byte more is not; `text` makes one of any length.
#[track_caller]
fn check_length(format: Format, bytes_max: usize, text: impl Fn(usize) -> String) {
    for (length, expected) in [(bytes_max, true), (bytes_max + 1, false)] {
        let text = text(length);
        assert_eq!(text.len(), length);
        assert_eq!(
            format.accepts(&text),
            expected,
            "{} of {length} bytes",
            format.name()
        );
    }
}

#[test]
fn lengths_hold_exactly() {
    let labels = "a.".repeat(126);
    let name = "n".repeat(63);
    check_length(Format::Did, 2048, |n| format!("{:x<n$}", "did:plc:"));
    check_length(Format::RecordKey, 512, |n| "k".repeat(n));
    check_length(Format::Handle, 253, |n| format!("{:c<n$}", labels));
    check_length(Format::Handle, 4 + 63, |n| {
        format!("{:b<1$}.c", "a.", n - 2)
    });
    check_length(Format::Nsid, 317, |n| {
        format!("{labels:c<0$}.{name}", n - 64)
    });
    check_length(Format::Nsid, 6 + 63, |n| format!("{:b<n$}", "com.a."));
    check_length(Format::Cid, 256, |n| format!("{:A<n$}", "z"));
    check_length(Format::Uri, 8192, |n| format!("{:x<n$}", "https:"));
    check_length(Format::Uri, 80 + 2, |n| format!("{:a<1$}:b", "", n - 2));
    let private = format!("de-x{}-", "-a".repeat(61));
    check_length(Format::Language, 128, |n| format!("{private:a<n$}"));
}

#[test]
fn a_cid_in_base_32_keeps_to_its_letters_and_length() {
    let cid = "bafkreiccldh766hwcnuxnf2wh6jgzepf2nlu2lvcllt63eww5p6chi4ity";
    assert!(Format::Cid.accepts(cid));
    assert!(!Format::Cid.accepts(&cid.replace('7', "1")));
    assert!(!Format::Cid.accepts(&cid.replace("dh", "DH")));
    assert!(!Format::Cid.accepts(cid.strip_suffix('y').unwrap()));
}

#[test]
fn a_language_tag_obeys_the_grammar_between_its_parts() {
    for (tag, expected) in [
        ("en", true),
        ("en-us", true),
        ("zh-cmn-Hans-CN", true),
        ("zh-min-nan", true),
        ("de-1996", true),
        ("x-klingon", true),
        ("x", false),
        ("en-x", false),
        ("en-u", false),
        ("EN", false),
        ("en-US-Latn", false), // the script comes before the region
        ("de-419-DE", false),  // one region only
        ("en_US", false),
        ("", false),
        ("日本", false),
    ] {
        assert_eq!(language::is_valid(tag), expected, "{tag:?}");
    }
}

#[test]
fn a_uri_may_hold_letters_outside_ascii_but_no_gap() {
    assert!(uri::is_valid("https://ja.wikipedia.org/wiki/日本"));
    assert!(!uri::is_valid("https://ja.wikipedia.org/wiki/日\u{3000}本"));
    assert!(!uri::is_valid("https://example.com/\u{7f}"));
    assert!(uri::is_valid("h2+x:1"));
}

#[test]
fn an_at_uri_gives_its_parts() {
    let uri = AtUri::parse("at://did:plc:abc/app.bsky.feed.post/3k").unwrap();
    assert_eq!(uri.authority(), "did:plc:abc");
    assert_eq!(uri.collection(), Some("app.bsky.feed.post"));
    assert_eq!(uri.rkey(), Some("3k"));
    let same = AtUri::of_record(
        &Did::parse("did:plc:abc").unwrap(),
        &Nsid::parse("app.bsky.feed.post").unwrap(),
        &RecordKey::parse("3k").unwrap(),
    );
    assert_eq!(same, uri);
    assert_eq!(
        UriParts::parse("at://alice.test").unwrap(),
        UriParts {
            authority: "alice.test",
            collection: None,
            rkey: None,
        }
    );
}

#[test]
fn identifiers_are_their_text_in_json_and_in_maps() {
    let did: Did = serde_json::from_str("\"did:plc:abc\"").unwrap();
    assert_eq!(serde_json::to_string(&did).unwrap(), "\"did:plc:abc\"");
    assert!(serde_json::from_str::<Did>("\"did:plc:\"").is_err());
    let known = std::collections::HashSet::from([did.clone()]);
    assert!(known.contains("did:plc:abc"));
    assert_eq!("did:plc:abc".parse::<Did>().unwrap(), did);
    assert_eq!(
        Nsid::parse("no").unwrap_err().to_string(),
        "not a valid nsid"
    );
}

#[track_caller]
fn check_us(text: &str, us: Option<i64>) {
    assert_eq!(datetime::parse_us(text), us, "{text}");
}

#[test]
fn a_datetime_is_microseconds_since_the_epoch() {
    check_us("1970-01-01T00:00:00Z", Some(0));
    check_us("1970-01-01T00:00:00.000001Z", Some(1));
    check_us("1970-01-01T00:00:00.0000019Z", Some(1));
    check_us("1969-12-31T23:59:59.999999Z", Some(-1));
    check_us("1970-01-01T01:00:00+01:00", Some(0));
    check_us("1969-12-31T17:00:00-07:00", Some(0));
    check_us("2000-02-29T00:00:00Z", Some(951_782_400_000_000));
    check_us("2024-06-01T12:34:56.789Z", Some(1_717_245_296_789_000));
    check_us("0000-01-01T00:00:00Z", Some(-62_167_219_200_000_000));
    check_us("9999-12-31T23:59:59.999999Z", Some(253_402_300_799_999_999));
}

#[test]
fn a_datetime_that_does_not_exist_is_refused() {
    for text in [
        "1900-02-29T00:00:00Z",
        "2023-02-29T00:00:00Z",
        "2023-04-31T00:00:00Z",
        "2023-01-01T24:00:00Z",
        "2016-12-31T23:59:60Z",
        "2023-01-01T00:00:00+24:00",
        "2023-01-01T00:00:00+00:60",
        "2023-01-01T00:00:00-00:00",
        "9999-12-31T23:59:59-00:01",
        "2023-01-01T00:00:00.000000000000000000000Z",
        "",
    ] {
        check_us(text, None);
    }
}

#[test]
fn times_are_written_so_that_they_read_the_same() {
    assert_eq!(datetime::format_us(0), "1970-01-01T00:00:00.000Z");
    assert_eq!(datetime::format_us(-1), "1969-12-31T23:59:59.999999Z");
    assert_eq!(
        datetime::format_us(951_782_400_123_000),
        "2000-02-29T00:00:00.123Z"
    );
    assert_eq!(datetime::format_us(i64::MAX), "9999-12-31T23:59:59.999999Z");
    assert_eq!(datetime::format_us(i64::MIN), "0000-01-01T00:00:00.000Z");
    // Every day of four hundred years, and of the first and last year, at a
    // moving moment.
    let day_us = 86_400_000_000;
    for (start_us, days) in [
        (0, 146_097),
        (-62_167_219_200_000_000, 366),
        (253_402_300_799_999_999 - 366 * day_us, 366),
    ] {
        let mut us = start_us;
        for _ in 0..days {
            let text = datetime::format_us(us);
            assert_eq!(datetime::parse_us(&text), Some(us), "{text}");
            us += day_us + 1_234;
        }
    }
}
