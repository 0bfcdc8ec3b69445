//! What the engine of timelines promises in writing: the table of what a page depends on, and 64 bits.

use crate::tidy::read;

/// The first cells of the table that begins with this header.
fn rows(document: &str, header: &str) -> Vec<String> {
    let (_, rest) = document.split_once(header).expect("the table's header");
    let lines = rest
        .lines()
        .skip(1)
        .map(|line| line.trim_start_matches("//! "));
    let rows = lines.skip(1).map_while(|line| line.strip_prefix("| "));
    rows.map(|row| row.split(" |").next().unwrap().to_owned())
        .collect()
}

#[test]
fn what_a_page_depends_on_is_listed_alike_in_the_code_and_in_the_architecture() {
    let header = "| a page reads | what tells that it changed |";
    let code = rows(&read("crates/timeline/src/witness.rs"), header);
    let explained = rows(&read("ARCHITECTURE.md"), header);
    assert_eq!(code, explained, "witness.rs (left) and ARCHITECTURE.md");
    assert!(code.len() > 10, "{code:?}");
}

#[test]
fn a_build_for_32_bits_is_refused() {
    let engine = read("crates/timeline/src/lib.rs");
    let refusal = "#[cfg(not(target_pointer_width = \"64\"))]\ncompile_error!(";
    assert!(engine.contains(refusal), "crates/timeline/src/lib.rs");
}
