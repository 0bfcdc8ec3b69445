//! Where in the file a key stands, so that an error can name its line.

use toml::de::{DeTable, DeValue};

/// The 1-based line of a dotted key such as `feeds.timeline.targets` or
/// `source.0.firehose`; the deepest part that exists, line 1 if none does.
pub(super) fn line_of(text: &str, key: &str) -> usize {
    let Ok(table) = DeTable::parse(text) else {
        return 1;
    };
    let mut start = 0;
    let mut here: Option<&DeValue<'_>> = None;
    for part in key.split('.') {
        let step = match here {
            None => table.get_ref().get_key_value(part),
            Some(DeValue::Table(table)) => table.get_key_value(part),
            Some(DeValue::Array(items)) => {
                let item = part.parse().ok().and_then(|index: usize| items.get(index));
                match item {
                    Some(item) => {
                        start = item.span().start;
                        here = Some(item.get_ref());
                        continue;
                    }
                    None => break,
                }
            }
            Some(_) => break,
        };
        let Some((name, value)) = step else { break };
        start = name.span().start;
        here = Some(value.get_ref());
    }
    line_at(text, start)
}

/// The 1-based line of a byte.
pub(super) fn line_at(text: &str, byte: usize) -> usize {
    let before = text.get(..byte).unwrap_or_default();
    before.matches('\n').count() + 1
}
