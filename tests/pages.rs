//! What people see in a browser: pages of a fleet that real runs made, looked at by real Chromium.
//!
//! The pictures that the tests take lie in `target/tmp/pages`, to be looked at by people.

#[path = "pages/browser.rs"]
mod browser;
#[path = "pages/hostile.rs"]
mod hostile;
#[path = "pages/markup.rs"]
mod markup;
#[path = "pages/reach.rs"]
mod reach;
#[path = "record/sample.rs"]
mod sample;
#[path = "pages/site.rs"]
mod site;
#[path = "pages/stick.rs"]
mod stick;
mod support;
#[path = "pages/world.rs"]
mod world;

use std::collections::HashMap;
use std::path::PathBuf;

use browser::Browser;
use nodegate::collector::model::FleetQuery;
use site::Site;
use world::World;

/// The pages that are worth a picture.
const PICTURED: [&str; 5] = ["fleet", "node-rejected", "record-rejected", "record-accepted", "diff"];

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
fn no_text_of_a_host_becomes_markup_on_any_page() {
    let run = world::ran("h100-gpu-not-in-driver");
    let hostile = hostile::details(&run);
    let world = World::new();
    for page in hostile_pages(&world, &run, &hostile) {
        let markup = markup::read(&page);
        assert!(!markup.elements.contains("img") && !markup.elements.contains("script"));
        assert!(!markup.text.contains(&"A".repeat(700)), "a text without a bound");
        assert!(page.len() < 4_000_000, "{} bytes", page.len());
        assert!(page.contains("&lt;script&gt;alert(1)"), "the hostile text is shown as what it is");
    }
}

/// Fleet, node, record, difference, failure and file of a host whose every text is hostile.
fn hostile_pages(
    world: &World,
    run: &nodegate::predicate::Details,
    details: &nodegate::predicate::Details,
) -> Vec<String> {
    use nodegate::collector::model::{Fleet, Kept, Problem, Refusal};
    use nodegate::collector::page::{self, Compared, NodeView, RecordView};
    use nodegate::report::html;

    let mut host =
        world.host("h", nodegate::record::standing::Tier::Tpm, nodegate::collector::model::KeyState::Approved);
    let payload = world.send(&mut host, run, |_| ());
    let long = hostile::long();
    let mut node = world.find("h");
    let text = || long.clone();
    node.record.hostname = text();
    node.record.class = text();
    node.record.run_id = text();
    node.record.keyid = text();
    node.record.policy = Some(text());
    node.gpus = text();
    let problem = &node.problems[0];
    let grade = problem.grade;
    node.problems = vec![Problem {
        grade,
        step: text(),
        code: text(),
        title: text(),
        subject: text(),
        slot: Some(text()),
        serial: Some(text()),
        action: text(),
        repeated: 3,
    }];
    let mut key = world.store.key(&host.keyid()).unwrap().unwrap();
    (key.hostname, key.decided_by, key.reason, key.serial) = (text(), Some(text()), Some(text()), Some(text()));
    let verified =
        nodegate::record::Verified { details: details.clone(), keyid: text(), ..world.verified(&payload).unwrap() };
    let kept = Kept { record: node.record.clone(), raw: Some(b"{".to_vec()), receipt: Some(Vec::new()) };
    let gone = Kept { raw: None, receipt: None, ..kept.clone() };
    let policy = world.store.policy();
    let record =
        |kept, verified| RecordView { kept, verified, key: Some(&key), policy, before: Some(&payload), now: world.now };
    let fleet = Fleet {
        nodes: vec![node.clone()],
        found: 1,
        page: 1,
        pages: 2,
        total: 1,
        findings: vec![(text(), 1)],
        classes: vec![(text(), 1)],
        ..Fleet::default()
    };
    let query = FleetQuery { text: text(), class: Some(text()), finding: Some(text()), ..FleetQuery::default() };
    let history = [(payload, details.clone()), (nodegate::ident::Digest::of(b"x"), details.clone())];
    let records = [node.record.clone()];
    let view = NodeView {
        node: &node,
        records: &records,
        history: &history,
        key: Some(&key),
        policy,
        older: Some(&long),
        now: world.now,
    };
    let other = Compared { record: &node.record, details };
    let plain = world.verified(&payload).unwrap().details;
    let signed = html::Signed {
        keyid: text(),
        p256: true,
        public_key: Some(text()),
        payload,
        host: payload,
        node: payload,
        bundle: true,
        files: vec![html::File { name: text(), what: "a file", place: html::Where::Link(text()) }],
    };
    vec![
        page::fleet(&fleet, &query, &world.store.offenders(world.now, 5).unwrap(), world.now),
        page::node(&view),
        page::record(&record(&kept, Some(&verified))),
        page::record(&record(&gone, None)),
        page::difference(other, Compared { record: &node.record, details: &plain }, policy, world.now),
        page::difference(Compared { record: &node.record, details: &plain }, other, policy, world.now),
        page::failure(404, &long),
        page::refusal(&Refusal::Malformed(text())),
        html::document(details, &signed),
    ]
}

#[test]
fn every_page_is_whole_and_leads_only_to_pages_of_ours() {
    let world = world::small();
    let (pages, names) = pages(&world);
    for (name, path) in names {
        let markup = markup::read(&pages[&path]);
        for href in &markup.hrefs {
            let ours = href.starts_with('/')
                || href.starts_with('#')
                || href.starts_with("data:application/octet-stream;base64,");
            assert!(ours, "{name}: {href}");
            if let Some(id) = href.strip_prefix('#') {
                assert!(markup.ids.iter().any(|known| known == id), "{name}: nothing is at #{id}");
            }
        }
    }
}

#[test]
fn an_empty_fleet_says_which_commands_bring_the_first_host() {
    let page = World::new().fleet(&FleetQuery::default());
    assert!(markup::read(&page).text.contains("No host has sent a record yet"));
    let commands: Vec<&str> = page.lines().filter_map(|line| line.split("nodegate ").nth(1)).collect();
    let commands: Vec<&str> = commands.into_iter().filter(|command| command.contains(" --")).collect();
    assert_eq!(commands.len(), 4, "{commands:?}");
    for command in commands {
        // What is wrong before it is refused before help is given.
        let words = command
            .trim_end_matches("</code></pre>")
            .replace("&quot;racked in r12&quot;", "racked")
            .replace("\"racked in r12\"", "racked");
        let output = support::nodegate().args(words.split_whitespace()).arg("--help").output().unwrap();
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn nothing_that_does_not_count_looks_accepted() {
    let mut world = world::small();
    let words = |page: &str| markup::read(page).text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (name, why) in [
        ("gpu-r12-u09", "pending-key"),
        ("gpu-r12-u11", "gap"),
        ("gpu-r12-u12", "revoked-key"),
        ("recorded-h100", "simulated"),
    ] {
        let node = world.find(name);
        let record = world.record(&node.record.payload);
        let query = FleetQuery { text: name.to_owned(), ..FleetQuery::default() };
        let difference = world.difference(&node.record.payload, &node.record.payload);
        let fleet = world.fleet(&query);
        let row = fleet.rsplit("<tbody").next().unwrap_or_default();
        assert!(!row.contains("> accepted</span>"), "{name}");
        for page in [&fleet, &world.node(name), &record, &difference] {
            assert!(words(page).contains("accepted, does not count"), "{name}");
            assert!(words(page).contains(why), "{name}: {why}");
            assert!(!page.contains("class=\"verdict good\"") && !page.contains("side good"), "{name}");
        }
    }
    world.later(8);
    let query = FleetQuery { text: "gpu-r12-u08".to_owned(), ..FleetQuery::default() };
    for page in [world.fleet(&query), world.node("gpu-r12-u08")] {
        assert!(words(&page).contains("accepted, expired") && words(&page).contains("8 days ago"));
        assert!(!page.contains("class=\"verdict good\""));
    }
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
            if PICTURED.contains(name) && (width, scheme) != (1280, "dark") {
                browser.picture(&album().join(format!("{name}-{width}-{scheme}.png")));
            }
        }
        if PICTURED.contains(name) {
            // Paper is white, whatever the screen is.
            browser.medium("print", "dark");
            browser.paper(&album().join(format!("{name}.pdf")));
        }
        assert_eq!(browser.complaints(), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn every_page_can_be_walked_by_keyboard_and_read_aloud() {
    let world = world::small();
    let (pages, names) = pages(&world);
    let site = Site::serve(pages);
    let browser = Browser::start();
    for (name, path) in &names {
        browser.width(360);
        browser.open(&site.url(path));
        reach::aloud(&browser, name);
        if PICTURED.contains(name) {
            browser.width(1280);
            browser.open(&site.url(path));
            reach::aloud(&browser, name);
            reach::walk(&browser, name);
        }
    }
    browser.open(&site.url("/"));
    reach::skip(&browser);
}

#[test]
fn a_search_survives_the_form_and_a_reload() {
    let world = world::small();
    let asked = FleetQuery {
        text: "u0".to_owned(),
        standing: Some(nodegate::collector::model::Standing::Rejected),
        ..FleetQuery::default()
    };
    let (mut pages, _) = pages(&world);
    let address = nodegate::collector::page::fleet_address(&asked);
    // What the form sends: everything, also what is not asked.
    let sent = "/?q=u0&standing=rejected&finding=&class=&tier=&sort=worst";
    pages.insert(sent.to_owned(), world.fleet(&asked));
    pages.insert(address.clone(), world.fleet(&asked));
    let site = Site::serve(pages);
    let browser = Browser::start();
    browser.open(&site.url("/"));
    browser.script(
        "document.querySelector('#q').value = 'u0'; document.querySelector('#standing').value = 'rejected';
         document.querySelector('form button').click()",
    );
    let state = "return [location.pathname + location.search, document.querySelector('#q').value,
        document.querySelector('#standing').value, document.querySelector('.result').textContent.trim().slice(0, 6)]";
    let after = browser.script(state);
    assert_eq!(after, serde_json::json!([sent, "u0", "rejected", "1 of 8"]));
    browser.script("location.reload()");
    assert_eq!(browser.script(state), after);
    browser.open(&site.url(&address));
    assert_eq!(
        browser.script("return document.querySelector('.tile[aria-current] span').textContent.trim()"),
        "rejected"
    );
}

#[test]
fn the_commands_on_the_page_verify_the_record_that_is_in_it() {
    use nodegate::record::Algorithm;
    for (algorithm, record, says) in [
        (Algorithm::Ed25519, "json", "Signature Verified Successfully"),
        (Algorithm::P256, "json", "Verified OK"),
        (Algorithm::Ed25519, "sigstore.json", "Signature Verified Successfully"),
    ] {
        let kept = stick::Kept::signed_by(algorithm);
        let page = kept.page(&format!("{}.{record}", kept.run_id));
        let folder = tempfile::tempdir().unwrap();
        let names = stick::save(&page, folder.path());
        assert_eq!(names.len(), 5, "{names:?}");
        let original = std::fs::read(kept.path(&format!("{}.{record}", kept.run_id))).unwrap();
        assert_eq!(std::fs::read(folder.path().join(&names[0])).unwrap(), original);
        if record == "sigstore.json" {
            std::fs::remove_file(folder.path().join(format!("{}.json", kept.run_id))).unwrap();
            assert!(stick::bash(&stick::commands(&page, "The envelope in it:"), folder.path()).0);
        }
        let (verified, said) = stick::bash(&stick::commands(&page, "With nodegate</h3>"), folder.path());
        assert!(verified && said.contains("VERIFIED  REJECTED"), "{said}");
        let openssl = stick::commands(&page, "With openssl</h3>");
        let (verified, said) = stick::bash(&openssl, folder.path());
        assert!(verified && said.contains(says) && page.contains(says), "{said}");
        let name = stick::commands(&page, "digest of what was signed:");
        let (sum, expected) = name.split_once('\n').unwrap();
        assert_eq!(stick::bash(sum, folder.path()).1.trim(), expected.trim());
        let cosign = stick::commands(&page, "With cosign</h3>");
        for name in cosign.split_whitespace().filter(|word| word.contains(&kept.run_id) || word.ends_with(".pub")) {
            assert!(names.iter().any(|known| known == name), "{name} is not to be had from the page");
        }
        // Another record's bytes do not verify: the commands can say no.
        let record = folder.path().join(format!("{}.json", kept.run_id));
        let other = stick::Kept::signed_by(algorithm);
        std::fs::copy(other.path(&format!("{}.json", other.run_id)), &record).unwrap();
        assert!(!stick::bash(&openssl, folder.path()).0);
    }
}

#[test]
fn the_file_of_a_record_is_one_page_that_loads_nothing() {
    let kept = stick::Kept::signed_by(nodegate::record::Algorithm::Ed25519);
    let page = kept.page(&format!("{}.json", kept.run_id));
    markup::read(&page);
    let browser = Browser::start();
    browser.open(&format!("file://{}", kept.path("report.html").display()));
    for width in [360, 1280] {
        browser.width(width);
        assert_eq!(browser.script("return document.scrollingElement.scrollWidth"), width);
        browser.picture(&album().join(format!("file-{width}.png")));
    }
    let loaded = browser.script("return performance.getEntriesByType('resource').map(it => it.name)");
    assert_eq!(loaded, serde_json::json!([]));
    assert_eq!(browser.complaints(), Vec::<String>::new());
    reach::aloud(&browser, "file");
    reach::walk(&browser, "file");
}

#[test]
fn a_page_that_cannot_be_written_leaves_what_was_there() {
    let kept = stick::Kept::signed_by(nodegate::record::Algorithm::Ed25519);
    let (record, key) = (kept.path(&format!("{}.json", kept.run_id)), kept.path("host.pub"));
    let show = |html: &std::path::Path, record: &std::path::Path| {
        let words = ["record", "show", record.to_str().unwrap(), "--key", key.to_str().unwrap(), "--html"];
        support::nodegate().args(words).arg(html).output().unwrap()
    };
    assert_eq!(show(&kept.path("no/such/report.html"), &record).status.code(), Some(70));
    std::fs::write(kept.path("report.html"), "the last one").unwrap();
    std::fs::write(kept.path("forged.json"), std::fs::read_to_string(&record).unwrap().replacen("ey", "eY", 1))
        .unwrap();
    assert_eq!(show(&kept.path("report.html"), &kept.path("forged.json")).status.code(), Some(64));
    assert_eq!(std::fs::read_to_string(kept.path("report.html")).unwrap(), "the last one");
    let printed = show(std::path::Path::new("-"), &record);
    assert!(printed.status.success() && String::from_utf8_lossy(&printed.stdout).starts_with("<!doctype html>"));
}

#[test]
fn two_records_of_a_host_are_compared_by_name_or_by_default() {
    let state = tempfile::tempdir().unwrap();
    let fixtures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/hosts");
    let nodegate = |words: &[&str]| {
        let mut command = support::nodegate();
        let output = command.args(words).args(["--state", state.path().to_str().unwrap()]).output().unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    assert_eq!(nodegate(&["record", "diff"]).0, Some(64));
    for (number, name) in ["hgx-h100-8", "h100-link-narrow", "h100-seven-of-eight"].into_iter().enumerate() {
        nodegate(&["run", "--fixture", fixtures.join(name).to_str().unwrap()]);
        if number == 0 {
            let (code, _, error) = nodegate(&["record", "diff"]);
            assert_eq!(code, Some(64));
            assert!(error.contains("only one record"), "{error}");
        }
    }
    let (code, text, _) = nodegate(&["record", "diff"]);
    assert_eq!(code, Some(0));
    assert!(text.contains("GPU gone") && text.contains("findings that are gone"), "{text}");
    let (_, text, _) = nodegate(&["record", "diff", "--last-accepted"]);
    assert!(text.contains("accepted") && text.contains("GPU missing"), "{text}");
    let (_, list, _) = nodegate(&["record", "list", "--simulated"]);
    let mut runs: Vec<&str> =
        list.lines().skip(1).filter_map(|line| line.split_whitespace().find(|word| word.len() == 13)).collect();
    runs.reverse();
    let (_, json, _) = nodegate(&["record", "diff", runs[0], runs[1], "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["format"], &json["newFindings"][0]["code"]),
        (&serde_json::json!(1), &serde_json::json!("link-narrow"))
    );
    assert_eq!(json["measurements"][0]["relative"], -0.5);
}

#[test]
fn a_large_fleet_has_pages_that_lead_to_each_other() {
    let world = world::large(120);
    let page = |number: u32| FleetQuery { page: number, ..FleetQuery::default() };
    let pages = [1, 2, 3].map(|number| {
        let address = nodegate::collector::page::fleet_address(&page(number));
        (address, world.fleet(&page(number)))
    });
    let site = Site::serve(HashMap::from(pages));
    let browser = Browser::start();
    browser.open(&site.url("/"));
    let mut hosts = std::collections::BTreeSet::new();
    for (width, number) in [(360, 1), (1280, 2), (360, 3)] {
        browser.width(width);
        assert_eq!(browser.script("return document.scrollingElement.scrollWidth"), width);
        if number < 3 {
            browser.picture(&album().join(format!("fleet-120-{width}.png")));
        }
        let shown =
            browser.script("return [...document.querySelectorAll('.fleet tbody th a')].map(it => it.textContent)");
        hosts.extend(shown.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()));
        let next = browser
            .script("const next = document.querySelector('a[rel=next]'); if (next) next.click(); return next !== null");
        assert_eq!(next, number < 3, "page {number}");
    }
    assert_eq!(hosts.len(), 120);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}
