//! Rules and conditions: the first line is an expression, the rest a record.
//! Whatever they are, an answer comes, and soon.

#![no_main]

use feedmill::expression::{Expression, Scope};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let (expression, record) = text.split_once('\n').unwrap_or((text, "{}"));
    let Ok(value) = record::json::from_json(record) else {
        return;
    };
    let mut scope = Scope::new("did:plc:abc", "3jzfcijpj2z2a", &value);
    scope.bind("other", Some(&value));
    for expression in [
        Expression::condition(expression),
        Expression::rule(expression, &["other"]),
    ]
    .into_iter()
    .flatten()
    {
        let once = expression.holds(&scope).is_ok_and(|holds| holds);
        let again = expression.holds(&scope).is_ok_and(|holds| holds);
        assert_eq!(once, again, "the same question has the same answer");
    }
});
