//! How many posts are validated in one CPU-second.
//!
//! Arguments are folders of lexicons. A mix of posts as the network has them
//! (plain, with links and mentions, replies, images) is read once; then
//! validation and the search for links are timed on all of them, and as a
//! baseline reading the same records from JSON.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::hint::black_box;
use std::path::PathBuf;

use record::json::from_json;
use record::lexicon::Catalog;

const POST: &str = "app.bsky.feed.post";
const ROUNDS: usize = 300;
const RECORDS: usize = 2_000;

fn main() -> Result<(), Box<dyn Error>> {
    let catalog = load(std::env::args_os().skip(1).map(PathBuf::from).collect())?;
    let texts: Vec<String> = (0..RECORDS).map(post).collect();
    let records = texts
        .iter()
        .map(|text| from_json(text))
        .collect::<Result<Vec<_>, _>>()?;
    for (record, text) in records.iter().zip(&texts) {
        catalog
            .validate(POST, record)
            .map_err(|fault| format!("{fault} in {text}"))?;
    }
    let bytes: usize = texts.iter().map(String::len).sum();
    println!("{RECORDS} posts, {} bytes of JSON each", bytes / RECORDS);

    let seconds = cpu_seconds(|| {
        for record in &records {
            let _good = black_box(catalog.validate(POST, black_box(record)).is_ok());
        }
    })?;
    report("validate", seconds);
    let mut links = 0usize;
    let seconds = cpu_seconds(|| {
        for record in &records {
            catalog.links(POST, black_box(record), &mut |_, _| links += 1);
        }
    })?;
    report("links", seconds);
    let seconds = cpu_seconds(|| {
        for text in &texts {
            let _value = black_box(from_json(black_box(text)));
        }
    })?;
    report("baseline: from_json", seconds);
    let seconds = cpu_seconds(|| {
        for text in &texts {
            let _value = black_box(serde_json::from_str::<serde_json::Value>(black_box(text)));
        }
    })?;
    report("baseline: serde_json::Value", seconds);
    println!("links found: {}", links / ROUNDS);
    Ok(())
}

fn report(name: &str, seconds: f64) {
    let count = (ROUNDS * RECORDS) as f64;
    println!(
        "{name}: {:.0} per CPU-second, {:.0} ns each",
        count / seconds,
        seconds / count * 1e9
    );
}

/// CPU time of this process over all rounds, from the kernel's own count.
fn cpu_seconds(mut round: impl FnMut()) -> Result<f64, Box<dyn Error>> {
    let before = schedstat()?;
    for _ in 0..ROUNDS {
        round();
    }
    Ok((schedstat()? - before) as f64 / 1e9)
}

/// Nanoseconds this thread has been running.
fn schedstat() -> Result<u64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let field = text.split_whitespace().next().ok_or("empty schedstat")?;
    Ok(field.parse()?)
}

/// Of ten posts five are plain, three are replies, two have facets, one has
/// an image; one in four is not in ASCII.
fn post(number: usize) -> String {
    let text = match number % 4 {
        0 => "今日はとても良い天気ですね。散歩に行ってきました。写真も撮りました。",
        _ => "Just finished reading a wonderful book about the history of cartography, recommended",
    };
    let mut extra = String::new();
    if matches!(number % 10, 0..=2) {
        let reference = |name: &str| {
            format!(
                r#""{name}":{{"uri":"at://did:plc:7iza6de2dwap2sbkpav7c6c6/app.bsky.feed.post/3k{number:011}","cid":"bafyreiclp443lavogvhj3d2ob2cxbfuscni2k5jk7bebjzg7khl3esabwq"}}"#
            )
        };
        extra += &format!(
            r#","reply":{{{},{}}}"#,
            reference("root"),
            reference("parent")
        );
    }
    if matches!(number % 10, 3 | 4) {
        extra += r#","facets":[{"index":{"byteStart":0,"byteEnd":12},"features":[{"$type":"app.bsky.richtext.facet#link","uri":"https://example.com/some/article?id=12345"}]},{"index":{"byteStart":13,"byteEnd":20},"features":[{"$type":"app.bsky.richtext.facet#mention","did":"did:plc:7iza6de2dwap2sbkpav7c6c6"}]}]"#;
    }
    if number % 10 == 5 {
        extra += r#","embed":{"$type":"app.bsky.embed.images","images":[{"alt":"a map","image":{"$type":"blob","ref":{"$link":"bafkreiccldh766hwcnuxnf2wh6jgzepf2nlu2lvcllt63eww5p6chi4ity"},"mimeType":"image/jpeg","size":500000},"aspectRatio":{"width":1200,"height":900}}]}"#;
    }
    format!(
        r#"{{"$type":"app.bsky.feed.post","text":"{text}","createdAt":"2026-11-15T20:{:02}:56.789Z","langs":["en"]{extra}}}"#,
        number % 60
    )
}

/// All JSON files below the folders.
fn load(mut folders: Vec<PathBuf>) -> Result<Catalog, Box<dyn Error>> {
    let mut texts = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "json")
            {
                texts.push(std::fs::read_to_string(&path)?);
            }
        }
    }
    Ok(Catalog::parse(texts.iter().map(String::as_str))?)
}
