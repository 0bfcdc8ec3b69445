//! `bench validate`: posts held against their lexicon.

use std::hint::black_box;

use record::json;
use record::lexicon::Catalog;
use sim::compose::{Composer, POST, Reference, Times};
use sim::rng::Rng;

use super::meter::best_of;
use super::{Ending, Report};

const RECORDS: usize = 2_000;
const REPEATS: usize = 50;

pub(super) fn run() -> Result<Report, Ending> {
    let (catalog, lexicon) = catalog()?;
    let mut rng = Rng::new(5);
    let mut composer = Composer::new(rng.split("composer"), Times::default());
    let parent = Reference {
        uri: "at://did:plc:ewvi7nxzyoun6zhxrhs64oiz/app.bsky.feed.post/3k2yihcrp6f2c".into(),
        cid: record::cid::Cid::of_cbor(b"x").to_string(),
    };
    let texts: Vec<String> = (0..RECORDS)
        .map(|_| {
            let post = composer.post(1_790_000_000_000_000, rng.chance(0.4).then_some(&parent));
            let mut out = String::new();
            json::to_json(&post.value, &mut out);
            out
        })
        .collect();
    let records = texts
        .iter()
        .map(|text| json::from_json(text))
        .collect::<Result<Vec<_>, _>>()?;
    let mut faults = 0;
    let validated = best_of(5, || {
        for record in records.iter().cycle().take(RECORDS * REPEATS) {
            faults += usize::from(catalog.validate(POST, black_box(record)).is_err());
        }
    });
    let parsed = best_of(5, || {
        for text in texts.iter().cycle().take(RECORDS * REPEATS) {
            faults += usize::from(black_box(json::from_json(black_box(text))).is_err());
        }
    });
    if faults > 0 {
        return Err("a good post was refused".into());
    }
    let per = |seconds: f64| (RECORDS * REPEATS) as f64 / seconds;
    let bytes: usize = texts.iter().map(String::len).sum();
    let mut report = Report {
        workload: format!(
            "{RECORDS} posts, mean {} bytes of JSON, {lexicon}",
            bytes / RECORDS
        ),
        ..Report::default()
    };
    report.figure("records_per_cpu_s", per(validated));
    report.figure("json_parse_per_cpu_s", per(parsed));
    report.ratio("vs_json_parse", parsed / validated);
    report.at_least("posts per CPU-second", per(validated), 1_000_000.0);
    Ok(report)
}

/// The network's own lexicon where `FEEDMILL_LEXICONS` names its folder, else the simulator's.
fn catalog() -> Result<(Catalog, String), Ending> {
    let Ok(folder) = std::env::var("FEEDMILL_LEXICONS") else {
        let catalog = Catalog::parse(sim::lexicons::ALL.iter().copied())?;
        return Ok((
            catalog,
            "the simulator's lexicon (set FEEDMILL_LEXICONS to a folder for the network's)".into(),
        ));
    };
    let mut texts = Vec::new();
    collect(std::path::Path::new(&folder), &mut texts)?;
    Ok((
        Catalog::parse(texts.iter().map(String::as_str))?,
        "the network's lexicon".into(),
    ))
}

fn collect(folder: &std::path::Path, texts: &mut Vec<String>) -> Result<(), Ending> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, texts)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            texts.push(std::fs::read_to_string(path)?);
        }
    }
    Ok(())
}
