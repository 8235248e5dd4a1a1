//! What people see in a browser: pages of a fleet that real runs made, looked at by real Chromium.
//!
//! The pictures that the tests take lie in `target/tmp/pages`, to be looked at by people.

#[path = "pages/browser.rs"]
mod browser;
#[path = "record/sample.rs"]
mod sample;
#[path = "pages/site.rs"]
mod site;
mod support;
#[path = "pages/world.rs"]
mod world;

use std::collections::HashMap;
use std::path::PathBuf;

use browser::Browser;
use nodegate::collector::model::FleetQuery;
use site::Site;
use world::World;

/// Where pictures are kept.
fn album() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("pages");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The pages of the small fleet by their addresses, and which of them is which.
fn pages(world: &World) -> (HashMap<String, String>, Vec<(&'static str, String)>) {
    let node = world.find("gpu-r12-u07");
    let records = world.store.records_of(&node.record.host, None, 10).unwrap();
    let hidden = world.find("gpu-r12-u10");
    let simulated = world.find("recorded-h100");
    let rejected =
        FleetQuery { standing: Some(nodegate::collector::model::Standing::Rejected), ..FleetQuery::default() };
    let nothing = FleetQuery { text: "nobody".to_owned(), ..FleetQuery::default() };
    let list = vec![
        ("fleet", "/".to_owned(), world.fleet(&FleetQuery::default())),
        ("fleet-rejected", "/rejected".to_owned(), world.fleet(&rejected)),
        ("fleet-nothing", "/nothing".to_owned(), world.fleet(&nothing)),
        ("fleet-empty", "/empty".to_owned(), World::new().fleet(&FleetQuery::default())),
        ("node-rejected", "/nodes/rejected".to_owned(), world.node("gpu-r12-u07")),
        ("node-hidden", "/nodes/hidden".to_owned(), world.node(&hidden.record.hostname)),
        ("node-gap", "/nodes/gap".to_owned(), world.node("gpu-r12-u11")),
        ("record-rejected", "/records/rejected".to_owned(), world.record(&records[0].payload)),
        ("record-accepted", "/records/accepted".to_owned(), world.record(&records[1].payload)),
        ("record-simulated", "/records/simulated".to_owned(), world.record(&simulated.record.payload)),
        ("diff", "/diff".to_owned(), world.difference(&records[1].payload, &records[0].payload)),
        ("failure", "/failure".to_owned(), nodegate::collector::page::failure(404, "no node `x` here")),
    ];
    let names = list.iter().map(|(name, path, _)| (*name, path.clone())).collect();
    (list.into_iter().map(|(_, path, page)| (path, page)).collect(), names)
}

#[test]
fn every_page_obeys_the_policy_and_fits_a_phone() {
    let world = world::small();
    let (pages, names) = pages(&world);
    let site = Site::serve(pages);
    let browser = Browser::start();
    for (name, path) in &names {
        browser.open(&site.url(path));
        for (width, scheme) in [(360, "light"), (1280, "light"), (360, "dark"), (1280, "dark")] {
            browser.width(width);
            browser.medium("screen", scheme);
            let wide = browser.script("return document.scrollingElement.scrollWidth");
            assert_eq!(wide, width, "{name} at {width} px scrolls sideways");
            if (width, scheme) != (1280, "dark") {
                browser.picture(&album().join(format!("{name}-{width}-{scheme}.png")));
            }
        }
        // Paper is white, whatever the screen is.
        browser.medium("print", "dark");
        browser.paper(&album().join(format!("{name}.pdf")));
        assert_eq!(browser.complaints(), Vec::<String>::new(), "{name}");
    }
}

#[test]
#[ignore = "for looking at, not for judging"]
fn a_large_fleet() {
    let world = world::large(200);
    let site = Site::serve(HashMap::from([("/".to_owned(), world.fleet(&FleetQuery::default()))]));
    let browser = Browser::start();
    browser.open(&site.url("/"));
    for width in [360, 1280] {
        browser.width(width);
        browser.picture(&album().join(format!("fleet-200-{width}.png")));
    }
}
