//! The collector's store on SQLite: what it must do, and what must be found when it was tampered with.

#[path = "store/host.rs"]
mod host;
#[path = "record/sample.rs"]
mod sample;
#[path = "store/suite.rs"]
mod suite;

use suite::Fresh;

fn fresh() -> Fresh {
    let folder = tempfile::tempdir().unwrap();
    Fresh::new(format!("sqlite:{}", folder.path().join("store.db").display()), folder)
}

suite!(fresh);
