//! Questions drawn at random, and a model that answers them by sorting everything anew.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use sim::rng::Rng;

pub(crate) const READER: &str = "did:web:reader.test";
pub(crate) const AUTHORS: usize = 4;
pub(crate) const WORDS: [&str; 4] = ["mill", "river", "stone", "grain"];
pub(crate) const LANGS: [&str; 3] = ["de", "en", "fr"];
pub(crate) const KINDS: [&str; 3] = ["thumb", "sad", "odd"];

pub(crate) fn did(author: usize) -> String {
    format!("did:web:a{author}.test")
}

#[derive(Debug, Clone)]
pub(crate) struct Post {
    pub(crate) author: usize,
    pub(crate) minute: i64,
    pub(crate) words: Vec<&'static str>,
    pub(crate) score: Option<i64>,
    pub(crate) lang: &'static str,
    pub(crate) pinned: bool,
}

impl Post {
    pub(crate) fn draw(rng: &mut Rng, author: usize) -> Self {
        Self {
            author,
            minute: rng.below(5) as i64,
            words: (0..rng.below(4))
                .filter_map(|_| rng.pick(&WORDS).copied())
                .collect(),
            score: rng.chance(0.8).then(|| rng.below(4) as i64),
            lang: LANGS[rng.below(3) as usize],
            pinned: rng.chance(0.3),
        }
    }

    pub(crate) fn time_us(&self) -> i64 {
        1_767_225_600_000_000 + self.minute * 60_000_000
    }

    pub(crate) fn body(&self) -> Value {
        let mut body = json!({"text": self.words.join(" "), "lang": self.lang, "pinned": self.pinned,
            "createdAt": format!("2026-01-01T00:{:02}:00Z", self.minute)});
        if let Some(score) = self.score {
            body["score"] = json!(score);
        }
        body
    }
}

/// A like: who, which post, of what kind.
pub(crate) type Like = (usize, String, &'static str);

/// Who names an author: who, whom, in what way.
pub(crate) type Fan = (usize, usize, &'static str);

/// What is true.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    pub(crate) posts: BTreeMap<String, Post>,
    pub(crate) likes: BTreeMap<String, Like>,
    pub(crate) fans: BTreeMap<String, Fan>,
    pub(crate) hidden: BTreeSet<usize>,
    pub(crate) followed: BTreeSet<usize>,
}

impl Truth {
    pub(crate) fn count(&self, uri: &str, kind: Option<&str>) -> i64 {
        let likes = self.likes.values();
        let counted = likes.filter(|(author, post, own)| {
            post == uri && !self.hidden.contains(author) && kind.is_none_or(|kind| kind == *own)
        });
        counted.count() as i64
    }

    /// Who name an author, each as often as he does.
    fn fans_of(&self, author: usize, kind: Option<&str>) -> Vec<usize> {
        let fans = self.fans.values().filter(|(fan, subject, own)| {
            *subject == author && !self.hidden.contains(fan) && kind.is_none_or(|kind| kind == *own)
        });
        fans.map(|(fan, _, _)| *fan).collect()
    }

    fn fans(&self, author: usize, kind: Option<&str>) -> i64 {
        self.fans_of(author, kind).len() as i64
    }

    fn voices(&self, author: usize) -> i64 {
        let voices: BTreeSet<usize> = self.fans_of(author, None).into_iter().collect();
        voices.len() as i64
    }
}

/// A value by which a page is sorted; the last for a record without one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Val {
    Number(i64),
    Text(String),
    Missing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Time,
    Score,
    CreatedAt,
    Lang,
    Likes,
    Ups,
    Fans,
    FanUps,
    Voices,
}

impl By {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Time => "",
            Self::Score => "score",
            Self::CreatedAt => "createdAt",
            Self::Lang => "lang",
            Self::Likes => "likeCount",
            Self::Ups => "likeUpCount",
            Self::Fans => "fanCount",
            Self::FanUps => "fanUpCount",
            Self::Voices => "voiceCount",
        }
    }

    pub(crate) fn of(self, truth: &Truth, uri: &str, post: &Post) -> Val {
        match self {
            Self::Time => Val::Missing,
            Self::Score => post.score.map_or(Val::Missing, Val::Number),
            Self::CreatedAt => Val::Number(post.time_us()),
            Self::Lang => Val::Text(post.lang.into()),
            Self::Likes => Val::Number(truth.count(uri, None)),
            Self::Ups => Val::Number(truth.count(uri, Some("thumb"))),
            Self::Fans => Val::Number(truth.fans(post.author, None)),
            Self::FanUps => Val::Number(truth.fans(post.author, Some("thumb"))),
            Self::Voices => Val::Number(truth.voices(post.author)),
        }
    }

    /// The same from what was served.
    pub(crate) fn served(self, record: &Value) -> Val {
        let count = |name: &str| Val::Number(record[name].as_i64().unwrap_or(0));
        match self {
            Self::Time => Val::Missing,
            Self::Score => record["value"]["score"]
                .as_i64()
                .map_or(Val::Missing, Val::Number),
            Self::CreatedAt => Val::Number(record["time_us"].as_i64().unwrap()),
            Self::Lang => Val::Text(record["value"]["lang"].as_str().unwrap().into()),
            Self::Likes | Self::Ups | Self::Fans | Self::FanUps | Self::Voices => {
                count(self.name())
            }
        }
    }
}

/// A record's place in the order of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) value: Val,
    pub(crate) time_us: i64,
    pub(crate) uri: String,
}

/// One question, as a query string and as the model understands it.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) feed: bool,
    pub(crate) only: Option<usize>,
    pub(crate) lang: Option<&'static str>,
    pub(crate) pinned: Option<bool>,
    pub(crate) score: (Option<i64>, Option<i64>),
    pub(crate) minute: Option<i64>,
    pub(crate) likes: Option<(Option<&'static str>, i64)>,
    pub(crate) fans: Option<i64>,
    pub(crate) search: Vec<Vec<&'static str>>,
    pub(crate) by: By,
    pub(crate) order: Option<bool>,
    pub(crate) limit: usize,
}

impl Ask {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let mut maybe = |rate: f64| rng.chance(rate);
        let (feed, actor, lang, pinned) = (maybe(0.5), maybe(0.2), maybe(0.2), maybe(0.2));
        let (min, max, minute, likes) = (maybe(0.2), maybe(0.2), maybe(0.15), maybe(0.2));
        let (search, sorted, ordered) = (maybe(0.4), maybe(0.7), maybe(0.5));
        let fans = maybe(0.1);
        let of_fields = [By::Score, By::CreatedAt, By::Lang, By::Likes, By::Ups];
        let of_authors = [By::Fans, By::FanUps, By::Voices];
        let by = [of_fields.as_slice(), of_authors.as_slice()].concat();
        Self {
            feed,
            only: (actor && !feed).then(|| rng.below(AUTHORS as u64) as usize),
            lang: lang.then(|| LANGS[rng.below(3) as usize]),
            pinned: pinned.then(|| rng.chance(0.5)),
            score: (
                min.then(|| rng.below(3) as i64),
                max.then(|| 1 + rng.below(3) as i64),
            ),
            minute: minute.then(|| rng.below(4) as i64),
            likes: likes.then(|| {
                let kind = rng.chance(0.5).then_some("thumb");
                (kind, rng.below(3) as i64)
            }),
            fans: fans.then(|| rng.below(3) as i64),
            search: match search {
                false => Vec::new(),
                true => (0..=rng.below(2))
                    .map(|_| {
                        let words = 0..=rng.below(2);
                        words.filter_map(|_| rng.pick(&WORDS).copied()).collect()
                    })
                    .collect(),
            },
            by: if sorted {
                by[rng.below(by.len() as u64) as usize]
            } else {
                By::Time
            },
            order: (sorted && ordered).then(|| rng.chance(0.5)),
            limit: [1, 2, 3, 7, 50][rng.below(5) as usize],
        }
    }

    pub(crate) fn query(&self) -> String {
        let mut query = match self.feed {
            true => format!("getFeed?feed=timeline&actor={READER}"),
            false => "post.listRecords?".to_owned(),
        };
        let mut add = |text: String| query.push_str(&format!("&{text}"));
        self.only
            .into_iter()
            .for_each(|author| add(format!("actor={}", did(author))));
        self.lang
            .into_iter()
            .for_each(|lang| add(format!("lang={lang}")));
        self.pinned
            .into_iter()
            .for_each(|pinned| add(format!("pinned={pinned}")));
        self.score
            .0
            .into_iter()
            .for_each(|min| add(format!("scoreMin={min}")));
        self.score
            .1
            .into_iter()
            .for_each(|max| add(format!("scoreMax={max}")));
        let minute = self.minute.into_iter();
        minute.for_each(|minute| add(format!("createdAtMin=2026-01-01T00:{minute:02}:00Z")));
        if let Some((kind, min)) = self.likes {
            add(format!(
                "like{}CountMin={min}",
                if kind.is_some() { "Up" } else { "" }
            ));
        }
        if let Some(min) = self.fans {
            add(format!("fanCountMin={min}"));
        }
        if !self.search.is_empty() {
            let phrases = self
                .search
                .iter()
                .map(|words| format!("%22{}%22", words.join("%20")));
            add(format!(
                "search={}",
                phrases.collect::<Vec<_>>().join("%20")
            ));
        }
        if self.by != By::Time {
            add(format!("sort={}", self.by.name()));
        }
        if let Some(descending) = self.order {
            add(format!("order={}", if descending { "desc" } else { "asc" }));
        }
        query
    }

    pub(crate) fn descending(&self) -> bool {
        self.order.unwrap_or(self.by != By::Lang)
    }

    pub(crate) fn passes(&self, truth: &Truth, uri: &str, post: &Post) -> bool {
        let holds = |phrase: &Vec<&str>| {
            post.words
                .windows(phrase.len())
                .any(|window| window == phrase)
        };
        let likes = |(kind, min): (Option<&str>, i64)| truth.count(uri, kind) >= min;
        !truth.hidden.contains(&post.author)
            && (!self.feed || truth.followed.contains(&post.author))
            && self.only.is_none_or(|author| author == post.author)
            && self.lang.is_none_or(|lang| lang == post.lang)
            && self.pinned.is_none_or(|pinned| pinned == post.pinned)
            && self
                .score
                .0
                .is_none_or(|min| post.score.is_some_and(|score| score >= min))
            && self
                .score
                .1
                .is_none_or(|max| post.score.is_some_and(|score| score <= max))
            && self.minute.is_none_or(|minute| post.minute >= minute)
            && self.likes.is_none_or(likes)
            && self
                .fans
                .is_none_or(|min| truth.fans(post.author, None) >= min)
            && self.search.iter().all(holds)
    }

    pub(crate) fn compare(&self, a: &Key, b: &Key) -> Ordering {
        let values = match (&a.value, &b.value) {
            (Val::Missing, _) | (_, Val::Missing) => a.value.cmp(&b.value),
            _ if self.descending() => b.value.cmp(&a.value),
            _ => a.value.cmp(&b.value),
        };
        values.then_with(|| (b.time_us, &b.uri).cmp(&(a.time_us, &a.uri)))
    }

    /// Everything, sorted anew.
    pub(crate) fn answer(&self, truth: &Truth) -> Vec<Key> {
        let all = truth.posts.iter();
        let mut keys: Vec<Key> = all
            .filter(|(uri, post)| self.passes(truth, uri, post))
            .map(|(uri, post)| Key {
                value: self.by.of(truth, uri, post),
                time_us: post.time_us(),
                uri: uri.clone(),
            })
            .collect();
        keys.sort_by(|a, b| self.compare(a, b));
        keys
    }
}
