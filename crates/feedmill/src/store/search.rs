//! Search: which records hold the words that somebody typed.
//!
//! In:    words and "phrases in quotes", and the fields to look in.
//! Out:   whether a record holds all of them, each in one of the fields.
//! Never: a guess at what an unfinished phrase means: it is refused.
//!
//! Words are runs of letters and digits, and their case does not matter.

use record::value::Value;

/// Bytes of a search.
pub const SEARCH_BYTES_MAX: usize = 500;
/// Words and phrases of a search.
const PHRASES_MAX: usize = 20;
/// Levels of lists and maps looked into below a field.
const DEPTH_MAX: usize = 8;

/// Why a search is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SearchError {
    #[error("a search is at most {SEARCH_BYTES_MAX} bytes and {PHRASES_MAX} words or phrases")]
    Long,
    #[error("a quotation mark is not closed")]
    Open,
    #[error("a search needs at least one letter or digit")]
    Empty,
}

/// What is looked for, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Search {
    phrases: Vec<Vec<String>>,
    fields: Vec<String>,
}

impl Search {
    /// Reads what was typed.
    pub fn parse(text: &str, fields: &[String]) -> Result<Self, SearchError> {
        if text.len() > SEARCH_BYTES_MAX {
            return Err(SearchError::Long);
        }
        let parts: Vec<&str> = text.split('"').collect();
        if parts.len().is_multiple_of(2) {
            return Err(SearchError::Open);
        }
        let mut phrases: Vec<Vec<String>> = Vec::new();
        for (index, part) in parts.into_iter().enumerate() {
            let words = words(part);
            if index % 2 == 1 {
                phrases.push(words);
            } else {
                phrases.extend(words.into_iter().map(|word| vec![word]));
            }
        }
        phrases.retain(|phrase| !phrase.is_empty());
        match phrases.len() {
            0 => Err(SearchError::Empty),
            1..=PHRASES_MAX => Ok(Self {
                phrases,
                fields: fields.to_vec(),
            }),
            _ => Err(SearchError::Long),
        }
    }

    /// What is looked for, as an index of words is asked: each phrase in quotes, all of them.
    pub fn expression(&self) -> String {
        let phrases = self.phrases.iter();
        let quoted: Vec<String> = phrases
            .map(|phrase| format!("\"{}\"", phrase.join(" ")))
            .collect();
        quoted.join(" AND ")
    }

    /// Whether a single word is looked for.
    pub fn is_one_word(&self) -> bool {
        matches!(self.phrases.as_slice(), [phrase] if phrase.len() == 1)
    }

    /// Whether a record holds everything looked for.
    pub fn admits(&self, record: &Value<'_>) -> bool {
        let mut texts = Vec::new();
        for field in &self.fields {
            gather(record.at(field), DEPTH_MAX, &mut texts);
        }
        let holds = |phrase: &Vec<String>| {
            texts
                .iter()
                .any(|text| text.windows(phrase.len()).any(|window| window == phrase))
        };
        self.phrases.iter().all(holds)
    }
}

/// The words of a stored body's searchable fields, apart by spaces: what an index of words is given.
pub fn words_of(body: &str, fields: &[String]) -> String {
    let Ok(record) = record::json::from_json(body) else {
        return String::new(); // nothing is found in what cannot be read
    };
    let mut texts = Vec::new();
    for field in fields {
        gather(record.at(field), DEPTH_MAX, &mut texts);
    }
    texts.concat().join(" ")
}

/// The words of every text below a value, each text on its own.
fn gather(value: Option<&Value<'_>>, room: usize, texts: &mut Vec<Vec<String>>) {
    match value {
        Some(Value::Text(text)) => texts.push(words(text)),
        Some(Value::List(items)) if room > 0 => {
            for item in items {
                gather(Some(item), room - 1, texts);
            }
        }
        Some(Value::Map(fields)) if room > 0 => {
            for (_, value) in fields {
                gather(Some(value), room - 1, texts);
            }
        }
        _ => {}
    }
}

fn words(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<bool, SearchError>) {
        let body = r#"{"text": "The quick, brown Fox jumps", "tags": ["Über", "lazy dog"], "other": "hidden"}"#;
        let record = record::json::from_json(body).unwrap();
        let fields = ["text".to_owned(), "tags".to_owned()];
        let found = Search::parse(text, &fields).map(|search| search.admits(&record));
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn all_words_must_be_there_in_any_case_and_order() {
        check("fox", Ok(true));
        check("JUMPS quick", Ok(true));
        check("über fox", Ok(true));
        check("fox cat", Ok(false));
        check("fo", Ok(false));
        check("hidden", Ok(false));
    }

    #[test]
    fn a_phrase_must_stand_together_within_one_text() {
        check("\"quick brown\"", Ok(true));
        check("\"brown quick\"", Ok(false));
        check("\"über lazy\"", Ok(false));
        check("fox \"lazy dog\"", Ok(true));
    }

    #[test]
    fn what_cannot_be_searched_for_is_refused() {
        check("\"unbalanced", Err(SearchError::Open));
        check("", Err(SearchError::Empty));
        check("\"\" ?!", Err(SearchError::Empty));
        check(&"a ".repeat(21), Err(SearchError::Long));
        check(&"a".repeat(501), Err(SearchError::Long));
    }
}
