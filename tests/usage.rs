//! Bad input: a message that names the thing and what to do, the right exit status, nothing half-written.

mod support;

use std::fs;
use std::path::Path;

use support::{host, nodegate};

struct Refused {
    status: Option<i32>,
    message: String,
    left: usize,
}

/// Runs with a fresh state folder and says what was left in it.
fn refused(arguments: &[&str]) -> Refused {
    let state = tempfile::tempdir().unwrap();
    let output = nodegate().args(arguments).arg("--state").arg(state.path()).output().unwrap();
    let records = state.path().join("simulated/records");
    let left = fs::read_dir(records).map_or(0, Iterator::count);
    Refused { status: output.status.code(), message: String::from_utf8_lossy(&output.stderr).into_owned(), left }
}

fn run_with(arguments: &[&str]) -> Refused {
    let fixture = host("hgx-h100-8");
    let mut all = vec!["run", "--fixture", fixture.to_str().unwrap()];
    all.extend(arguments);
    refused(&all)
}

fn assert_misused(refused: &Refused, names: &[&str]) {
    assert_eq!(refused.status, Some(64), "{}", refused.message);
    for name in names {
        assert!(refused.message.contains(name), "`{name}` is not named: {}", refused.message);
    }
    assert_eq!(refused.left, 0, "a record was left behind");
}

fn file(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn clap_errors_end_with_64_and_not_with_2() {
    for arguments in [&["run", "--levle", "quick"][..], &["run", "--level", "deep"], &["walk"], &[]] {
        let output = nodegate().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(64), "{arguments:?}");
    }
    let help = nodegate().args(["run", "--help"]).output().unwrap();
    assert_eq!(help.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&help.stdout).contains("Examples:"));
}

#[test]
fn every_subcommand_shows_how_it_is_used() {
    let text = |words: &[&str]| {
        let output = nodegate().args(words).arg("--help").output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let commands = |help: &str| -> Vec<String> {
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        listed
            .filter_map(|line| line.split_whitespace().next())
            .filter(|name| *name != "help")
            .map(str::to_owned)
            .collect()
    };
    let top = commands(&text(&[]));
    assert!(top.len() > 10, "{top:?}");
    for command in &top {
        let help = text(&[command]);
        assert!(help.contains("Example"), "nodegate {command} --help has no example");
        for sub in commands(&help) {
            assert!(text(&[command, &sub]).contains("Example"), "nodegate {command} {sub} --help has no example");
        }
    }
}

#[test]
fn an_unknown_step_is_named_with_the_nearest() {
    assert_misused(&run_with(&["--only", "pcie-lnik"]), &["pcie-lnik", "pcie-link"]);
    assert_misused(&run_with(&["--skip", "aftermat"]), &["aftermat", "aftermath"]);
}

#[test]
fn an_unknown_class_is_named_with_the_nearest() {
    assert_misused(&run_with(&["--class", "hgx-h100"]), &["hgx-h100", "hgx-h100-8"]);
}

#[test]
fn a_suite_that_is_empty_or_names_an_unknown_check_runs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let empty = file(folder.path(), "empty.toml", "format = 1\nid = \"mine\"\nrevision = 1\n");
    assert_misused(&run_with(&["--suite", &empty]), &["empty.toml"]);
    let unknown = file(
        folder.path(),
        "unknown.toml",
        "format = 1\nid = \"mine\"\nrevision = 1\n[[step]]\nid = \"pcie-link\"\ncheck = \"pcie-lonk\"\nrequire = \"must\"\nstage = \"rack\"\nlevel = \"quick\"\ntimeout = \"30 s\"\n",
    );
    assert_misused(&run_with(&["--suite", &unknown]), &["unknown.toml:", "pcie-lonk", "pcie-link"]);
    let newer = file(folder.path(), "newer.toml", "format = 2\nid = \"mine\"\nrevision = 1\n");
    assert_misused(&run_with(&["--suite", &newer]), &["format", "2", "1"]);
}

#[test]
fn every_problem_of_a_site_file_is_told_at_once_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let text = "format = 1\nclas = \"hgx-h100-8\"\n\n[[override]]\nstep = \"pcie-lnik\"\nparameter = \"width\"\nvalue = 8\nreason = \"x\"\nwho = \"y\"\n\n[[waiver]]\nstep = \"driver\"\nfinding = \"driver-too-old\"\nsubject = \"host\"\nreason = \"x\"\nwho = \"y\"\nuntil = \"2099-01-01\"\n";
    let site = file(folder.path(), "site.toml", text);
    let refused = run_with(&["--site", &site]);
    assert_misused(&refused, &["site.toml:2", "clas", "class", "pcie-lnik", "pcie-link", "driver"]);
}

#[test]
fn a_wrong_unit_or_parameter_in_a_class_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let class = fs::read_to_string("checks/classes/hgx-h100-8.toml").unwrap();
    let unit = file(folder.path(), "hgx-h100-8.toml", &class.replace("temperature-max = \"", "temperature-max = \"F"));
    assert_misused(&run_with(&["--class", &unit]), &["hgx-h100-8.toml", "temperature"]);
    let other = tempfile::tempdir().unwrap();
    let parameter =
        file(other.path(), "hgx-h100-8.toml", &class.replace("[limits.pcie-link]", "[limits.pcie-link]\nlanes = 16"));
    assert_misused(&run_with(&["--class", &parameter]), &["lanes"]);
}

#[test]
fn a_fixture_that_is_truncated_huge_or_not_json_runs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let make = |name: &str, driver: &[u8]| {
        let fixture = folder.path().join(name);
        fs::create_dir_all(fixture.join("root/proc")).unwrap();
        fs::write(fixture.join("fixture.toml"), "format = 1\ntitle = \"t\"\nprovenance = \"synthetic\"\nsource = \"s\"\n[expect]\ndecision = \"undecided\"\nsteps = []\n").unwrap();
        fs::write(fixture.join("driver.json"), driver).unwrap();
        fixture.display().to_string()
    };
    let whole = fs::read(host("hgx-h100-8").join("driver.json")).unwrap();
    let huge = vec![b' '; 100 << 20];
    for (name, driver) in [("truncated", &whole[..whole.len() / 2]), ("binary", b"\x7fELF\0\0"), ("huge", &huge)] {
        let refused = refused(&["run", "--fixture", &make(name, driver)]);
        assert_misused(&refused, &["driver.json"]);
    }
    assert_misused(&refused(&["run", "--fixture", "/nonexistent/host"]), &["/nonexistent/host"]);
}

#[test]
fn a_fixture_of_pipes_or_endless_files_is_refused_at_once() {
    let make_pipe = |path: &Path| {
        fs::remove_file(path).ok();
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    };
    let make_huge = |path: &Path| fs::File::create(path).unwrap().set_len(3 << 30).unwrap();
    for name in ["fixture.toml", "driver.json", "root/proc/cpuinfo"] {
        for make in [&make_pipe as &dyn Fn(&Path), &make_huge] {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir_all(folder.path().join("root/proc")).unwrap();
            for name in ["fixture.toml", "driver.json"] {
                fs::copy(host("hgx-h100-8").join(name), folder.path().join(name)).unwrap();
            }
            make(&folder.path().join(name));
            let began = std::time::Instant::now();
            assert_misused(&refused(&["run", "--fixture", folder.path().to_str().unwrap()]), &[name]);
            assert!(began.elapsed().as_secs() < 10, "{name}: {:?}", began.elapsed());
        }
    }
}

#[test]
fn a_state_folder_that_cannot_be_written_is_named_and_nothing_runs() {
    let folder = tempfile::tempdir().unwrap();
    let blocked = folder.path().join("file");
    fs::write(&blocked, "not a folder").unwrap();
    let output = nodegate()
        .args(["run", "--fixture", "fixtures/hosts/hgx-h100-8", "--state"])
        .arg(blocked.join("state"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(70));
    assert!(String::from_utf8_lossy(&output.stderr).contains("file/state"), "{output:?}");
}

#[test]
fn hostile_bytes_of_a_host_reach_neither_screen_nor_record() {
    let state = tempfile::tempdir().unwrap();
    let output = nodegate()
        .args(["run", "--fixture", "fixtures/hosts/h100-hostile-text", "--state"])
        .arg(state.path())
        .output()
        .unwrap();
    for bytes in [&output.stdout, &output.stderr, &fs::read(support::record_of(state.path())).unwrap()] {
        let control = bytes.iter().filter(|byte| **byte < 0x20 && **byte != b'\n').count();
        assert_eq!(control, 0, "control bytes in {}", String::from_utf8_lossy(bytes));
    }
    let json = nodegate()
        .args(["run", "--format", "json", "--fixture", "fixtures/hosts/h100-hostile-text", "--state"])
        .arg(state.path())
        .output()
        .unwrap();
    let details: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    fn texts(value: &serde_json::Value, found: &mut Vec<String>) {
        match value {
            serde_json::Value::String(text) => found.push(text.clone()),
            serde_json::Value::Array(list) => list.iter().for_each(|value| texts(value, found)),
            serde_json::Value::Object(map) => map.values().for_each(|value| texts(value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    texts(&details, &mut found);
    let hostile: Vec<&String> = found.iter().filter(|text| text.chars().any(char::is_control)).collect();
    assert!(hostile.is_empty(), "{hostile:?}");
}

#[test]
fn output_that_is_lost_is_said_and_the_record_is_there() {
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for format in ["text", "json", "jsonl"] {
        let state = tempfile::tempdir().unwrap();
        let output = nodegate()
            .args(["run", "--fixture", "fixtures/hosts/hgx-h100-8", "--format", format, "--state"])
            .arg(state.path())
            .stdout(full())
            .output()
            .unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(70), "{format}");
        assert!(message.contains("standard output"), "{format}: {message}");
        assert!(message.contains("accepted"), "{format}: the decision is told all the same: {message}");
        assert!(support::record_of(state.path()).exists(), "{format}");
    }
    for arguments in [&["checks", "list"][..], &["run", "--help"], &["completions", "bash"]] {
        let output = nodegate().args(arguments).stdout(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(70), "{arguments:?}");
    }
}

#[test]
fn a_record_never_takes_the_place_of_a_device_or_link() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("stdout");
    std::os::unix::fs::symlink("/proc/self/fd/1", &link).unwrap();
    assert_misused(&run_with(&["--record", link.to_str().unwrap()]), &["stdout", "not a plain file"]);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
}

#[test]
fn a_time_beyond_every_clock_is_a_mistake_and_not_a_panic() {
    let endless = "1000000000000000000000000000000 s";
    assert_misused(&run_with(&["--wait-ready", endless]), &["--wait-ready", "time"]);
    let output = nodegate().args(["status", "--max-age", endless]).output().unwrap();
    assert_eq!(output.status.code(), Some(64));
}

#[test]
fn a_pipe_in_the_state_folder_is_an_error_and_not_a_wait() {
    for name in ["key.pem", "state.json", "lock", "run.lock"] {
        let state = tempfile::tempdir().unwrap();
        let run = || nodegate().arg("run").arg("--state").arg(state.path()).output().unwrap();
        assert!(matches!(run().status.code(), Some(0..=2)));
        let path = state.path().join(name);
        fs::remove_file(&path).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let output = run();
        assert_eq!(output.status.code(), Some(70), "{name}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("not a plain file"), "{name}: {output:?}");
    }
}

#[test]
fn a_state_that_was_never_written_by_us_is_rebuilt_and_not_a_panic() {
    for (good, bad) in [("\"seq\":1", "\"seq\":18446744073709551615"), ("\"seq\"", "\"intent\":\"../x\",\"seq\"")] {
        let state = tempfile::tempdir().unwrap();
        let run = || nodegate().args(["run", "--format", "json", "--state"]).arg(state.path()).output().unwrap();
        run();
        let path = state.path().join("state.json");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(good));
        fs::write(&path, text.replace(good, bad)).unwrap();
        let details: serde_json::Value = serde_json::from_slice(&run().stdout).unwrap();
        assert_eq!(details["seq"].to_string().trim_matches('"'), "2", "{bad}");
        assert!(details["notices"].to_string().contains("damaged"), "{bad}");
    }
}

#[test]
fn a_run_on_another_root_leaves_this_machines_key_and_history_alone() {
    let state = tempfile::tempdir().unwrap();
    nodegate().arg("run").arg("--state").arg(state.path()).output().unwrap();
    let key = fs::read(state.path().join("key.pem")).unwrap();
    let output = nodegate()
        .args(["run", "--root", "fixtures/hosts/hgx-h100-8/root", "--state"])
        .arg(state.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(70));
    assert!(String::from_utf8_lossy(&output.stderr).contains("another machine"), "{output:?}");
    assert_eq!(fs::read(state.path().join("key.pem")).unwrap(), key);
    let none = nodegate().args(["run", "--root", "/nonexistent", "--state"]).arg(state.path()).output().unwrap();
    assert_eq!(none.status.code(), Some(64), "{none:?}");
}

#[test]
fn a_closed_standard_output_is_quiet() {
    let mut child = nodegate()
        .args(["checks", "list"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn the_readme_lists_every_exit_status_as_it_is() {
    let readme = fs::read_to_string("README.md").unwrap();
    for ending in nodegate::exit::Ending::ALL {
        let row = format!("| {} | {} |", ending.status(), ending.meaning());
        assert!(readme.contains(&row), "README.md lacks: {row}");
    }
}

#[test]
fn a_second_run_on_the_same_host_is_told_who_holds_it() {
    let state = tempfile::tempdir().unwrap();
    let (_folder, fixture) = support::faulty(
        "hgx-h100-8",
        "[[event]]\nwhat = \"call-hangs\"\nfunction = \"nvmlDeviceGetTemperature\"\ngpu = 0\nhow = \"ignores-sigterm\"\n",
    );
    let mut first = nodegate()
        .args(["run", "--fixture"])
        .arg(&fixture)
        .arg("--state")
        .arg(state.path())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_secs(2));
    let second = nodegate()
        .args(["run", "--fixture", "fixtures/hosts/hgx-h100-8", "--state"])
        .arg(state.path())
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(2));
    let message = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(message.contains(&first.id().to_string()), "{message}");
    rustix::process::kill_process(rustix::process::Pid::from_child(&first), rustix::process::Signal::TERM).unwrap();
    first.wait().unwrap();
}

#[test]
fn the_readme_names_every_check() {
    let readme = fs::read_to_string("README.md").unwrap();
    for kind in nodegate::check::KINDS {
        assert!(readme.contains(&format!("`{}`", kind.id)), "README.md lacks the check {}", kind.id);
    }
}

#[test]
fn without_a_key_the_caller_is_told_what_to_do() {
    let state = tempfile::tempdir().unwrap();
    let none = nodegate().args(["key", "show", "--state"]).arg(state.path()).output().unwrap();
    assert_eq!(none.status.code(), Some(64));
    let message = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(message.contains("no key yet in") && message.contains("nodegate key new"), "{message}");
    let unread = nodegate().args(["verify", "README.md", "--key", "/nonexistent.pub"]).output().unwrap();
    assert!(!String::from_utf8_lossy(&unread.stderr).contains("--state"), "{unread:?}");
}
