//! The page about the checks is the one that the code makes.

use std::fs;
use std::path::Path;

#[test]
fn the_page_about_the_checks_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/checks.md");
    let page = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        page == nodegate::check::documentation(),
        "docs/checks.md is stale: cargo run -- checks document > docs/checks.md"
    );
}
