//! `nodegate demo`: the first command that anybody runs.

mod support;

use support::nodegate;

fn demo(more: &[&str]) -> (i32, String) {
    let output = nodegate().arg("demo").args(more).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8(said).unwrap())
}

#[test]
fn the_demonstration_runs_sends_verifies_and_leaves_nothing_behind() {
    let (exit, said) = demo(&[]);
    assert_eq!(exit, 0, "{said}");
    for part in ["ACCEPTED for stage rack", "receipt 20", "verified with", "entry 1 of its ledger", "demo --serve"] {
        assert!(said.contains(part), "no `{part}` in {said}");
    }
    // A recorded host is accepted and never counts.
    assert!(said.contains("a recorded host"), "{said}");
    let folder = said.lines().find_map(|line| line.split_once("nodegate-demo-")).unwrap().1.split('/').next().unwrap();
    assert!(!std::env::temp_dir().join(format!("nodegate-demo-{folder}")).exists());
}

#[test]
fn a_fault_shows_a_host_that_is_rejected_and_one_that_nobody_knows_is_named() {
    let (exit, said) = demo(&["--fault", "gpu-absent"]);
    assert!(exit == 0 && said.contains("REJECTED for stage rack") && said.contains("GPU missing"), "{said}");
    let (exit, said) = demo(&["--fault", "gpu-absnt"]);
    assert!(exit == 64 && said.contains("`gpu-absent`"), "{said}");
    let (exit, said) = demo(&["--fault", "list"]);
    assert!(exit == 0 && said.lines().count() > 20 && said.contains("link-narrow"), "{said}");
}

#[test]
fn the_demonstration_listens_on_this_machine_alone() {
    let (exit, said) = demo(&["--listen", "0.0.0.0:0"]);
    assert!(exit == 64 && said.contains("127.0.0.1"), "{said}");
}

#[test]
fn served_it_shows_a_fleet_until_it_is_ended() {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    let mut child = nodegate().args(["demo", "--serve"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let fleet = lines.find_map(|line| line.unwrap().strip_prefix("fleet    http://").map(str::to_owned)).unwrap();
    lines.find(|line| line.as_ref().unwrap().starts_with("Ctrl-C")).unwrap().unwrap();
    let mut stream = std::net::TcpStream::connect(fleet.trim_end_matches('/')).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(
        page.starts_with("HTTP/1.1 200") && page.contains("PCIe link narrow") && page.contains("simulated"),
        "{page}"
    );
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
