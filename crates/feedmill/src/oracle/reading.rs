//! Reading a served process as its readers do.
//!
//! In:    the address of a Feedmill.
//! Out:   whole feeds, paged to their ends; the time of one record.
//! Never: a page that is longer than was asked for, or one that repeats its
//!        cursor: both are said as what is wrong.

use serde_json::Value;
use sim::feed::Entry;

/// Pages after which a small page size is given up for the largest.
const PAGES_MAX: usize = 40;

/// Which of the methods answers a feed, and how.
#[derive(Debug, Clone, Copy)]
struct Method {
    name: &'static str,
    list: &'static str,
    cursor: &'static str,
    limit_max: usize,
}

const FEED: Method = Method {
    name: "getFeed",
    list: "records",
    cursor: "cursor",
    limit_max: 200,
};

const MERGED: Method = Method {
    name: "getFollowingFeed",
    list: "activities",
    cursor: "nextCursor",
    limit_max: 100,
};

/// A feed as one reader asks for it.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    pub feed: &'a str,
    pub reader: &'a str,
    pub is_merged: bool,
    /// Further parameters, each with its `&`.
    pub query: &'a str,
    pub limit: usize,
}

/// What was served.
#[derive(Debug, Clone, Default)]
pub struct Served {
    pub entries: Vec<Entry>,
    pub pages: usize,
    /// A page that no list explains.
    pub wrong: Option<String>,
}

/// One who reads.
#[derive(Debug, Clone)]
pub struct Reading {
    pub address: String,
    pub client: reqwest::Client,
}

impl Reading {
    async fn get(&self, path: &str) -> Result<Value, reqwest::Error> {
        let request = self.client.get(format!("http://{}{path}", self.address));
        request.send().await?.error_for_status()?.json().await
    }

    /// A feed paged to its end.
    pub async fn whole(&self, asked: &Asked<'_>) -> Result<Served, reqwest::Error> {
        let method = if asked.is_merged { MERGED } else { FEED };
        let base = format!(
            "/xrpc/com.example.{}?feed={}&actor={}{}",
            method.name,
            asked.feed,
            asked.reader.replace('%', "%25"),
            asked.query
        );
        let (mut served, mut cursor) = (Served::default(), String::new());
        loop {
            let limit = match served.pages > PAGES_MAX {
                true => method.limit_max,
                false => asked.limit.min(method.limit_max),
            };
            let page = self.get(&format!("{base}&limit={limit}{cursor}")).await?;
            served.pages += 1;
            let list = page.get(method.list).and_then(Value::as_array);
            let list = list.map_or(&[][..], Vec::as_slice);
            if list.len() > limit {
                served.wrong = Some(format!(
                    "{} entries where {limit} were asked for",
                    list.len()
                ));
            }
            served
                .entries
                .extend(list.iter().map(match asked.is_merged {
                    true => of_activity,
                    false => of_record,
                }));
            let Some(next) = page.get(method.cursor).and_then(Value::as_str) else {
                return Ok(served);
            };
            let next = format!("&cursor={next}");
            if next == cursor {
                served.wrong = Some(format!("a page that leads to itself: {next}"));
                return Ok(served);
            }
            cursor = next;
        }
    }

    /// The time of one record, asked for by its URI; `None` if it is not here.
    pub async fn time_us(&self, short: &str, uri: &str) -> Result<Option<i64>, reqwest::Error> {
        let uri = uri.replace('%', "%25");
        let path = format!("/xrpc/com.example.{short}.getRecord?uri={uri}");
        let request = self.client.get(format!("http://{}{path}", self.address));
        let answer = request.send().await?;
        if answer.status() == reqwest::StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let record: Value = answer.error_for_status()?.json().await?;
        Ok(record.get("time_us").and_then(Value::as_i64))
    }
}

fn text(value: &Value, field: &str) -> String {
    let text = value.get(field).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

fn time_us(value: &Value) -> i64 {
    let time = value.get("time_us").and_then(Value::as_i64);
    time.unwrap_or_default()
}

fn of_record(record: &Value) -> Entry {
    Entry {
        time_us: time_us(record),
        members: vec![text(record, "uri")],
        union: Vec::new(),
    }
}

fn of_activity(activity: &Value) -> Entry {
    let all = |field: &str| {
        let list = activity.get(field).and_then(Value::as_array);
        list.map_or(&[][..], Vec::as_slice)
    };
    let uri = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Entry {
        time_us: time_us(activity),
        members: all("records").iter().map(uri).collect(),
        union: all("union")
            .iter()
            .map(|named| text(named, "uri"))
            .collect(),
    }
}
