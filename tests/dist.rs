//! What `dist/` ships: units whose command lines the program takes and whose keys systemd has.

mod support;

use std::collections::BTreeSet;
use std::fs;

use support::nodegate;

/// Sections and keys as systemd.unit(5), systemd.service(5), systemd.exec(5), systemd.timer(5) and
/// systemd.path(5) have them, as far as our units use them.
const KEYS: &[(&str, &str)] = &[
    ("Unit", "Description Documentation Wants After Before"),
    (
        "Service",
        "Type ExecStart ExecCondition ExecReload SuccessExitStatus TimeoutStartSec TimeoutStopSec KillMode Restart RestartSec \
         StateDirectory StateDirectoryMode CapabilityBoundingSet NoNewPrivileges PrivateDevices PrivateTmp PrivateUsers \
         ProtectClock ProtectControlGroups ProtectHome ProtectHostname ProtectKernelLogs ProtectKernelModules \
         ProtectKernelTunables ProtectProc ProtectSystem ProcSubset RestrictAddressFamilies RestrictNamespaces \
         RestrictRealtime RestrictSUIDSGID LockPersonality MemoryDenyWriteExecute SystemCallArchitectures \
         SystemCallFilter RemoveIPC UMask DynamicUser User Group LimitNOFILE RemainAfterExit ReadWritePaths",
    ),
    ("Timer", "OnBootSec OnUnitInactiveSec RandomizedDelaySec AccuracySec"),
    ("Path", "DirectoryNotEmpty Unit TriggerLimitIntervalSec TriggerLimitBurst"),
    ("Install", "WantedBy"),
];

/// Section, key and value of each line of a unit.
fn entries(text: &str) -> Vec<(String, String, String)> {
    let mut section = String::new();
    let mut entries = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(name) => section = name.to_owned(),
            None => {
                let (key, value) = line.split_once('=').unwrap_or_else(|| panic!("not a setting: {line}"));
                entries.push((section.clone(), key.to_owned(), value.to_owned()));
            }
        }
    }
    entries
}

fn units() -> Vec<(String, String)> {
    let mut units: Vec<(String, String)> = fs::read_dir("dist")
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read_to_string(&path).unwrap()))
        .collect();
    units.sort();
    units
}

/// The words of a command line, quotes taken off as systemd does.
fn words(line: &str) -> Vec<String> {
    line.split('\'')
        .enumerate()
        .flat_map(|(index, part)| match index % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect::<Vec<_>>(),
            _ => vec![part.to_owned()],
        })
        .collect()
}

#[test]
fn every_unit_uses_only_settings_that_systemd_has_in_that_section() {
    let units = units();
    assert!(units.len() >= 5, "{units:?}");
    for (name, text) in &units {
        for (section, key, _) in entries(text) {
            let known = KEYS.iter().find(|(known, _)| *known == section).unwrap_or_else(|| panic!("{name}: [{section}]"));
            assert!(known.1.split_whitespace().any(|known| known == key), "{name}: {key} in [{section}]");
        }
    }
}

#[test]
fn every_command_line_of_a_unit_is_one_that_the_program_takes() {
    let mut commands = BTreeSet::new();
    for (name, text) in units() {
        for (_, key, value) in entries(&text).iter().filter(|(_, key, _)| key.starts_with("Exec")) {
            if *key == "ExecReload" {
                continue;
            }
            let words = words(value);
            assert_eq!(words[0], "/usr/bin/nodegate", "{name}");
            // `--help` after them: parsed up to there, and nothing is run.
            let output = nodegate().args(&words[1..]).arg("--help").output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("Usage"), "{name}: {value}");
            for option in words.iter().filter(|word| word.starts_with("--")) {
                assert!(said.contains(option.as_str()), "{name}: {option} is none of {}", words[1]);
            }
            commands.insert(words[1].clone());
        }
    }
    assert!(commands.contains("deliver") && commands.contains("run") && commands.contains("status"), "{commands:?}");
}

#[test]
fn a_service_that_runs_children_kills_only_its_own_process() {
    for (name, text) in units().iter().filter(|(name, _)| name.ends_with(".service") && !name.contains("collector")) {
        let entries = entries(text);
        assert!(entries.iter().any(|(_, key, value)| key == "KillMode" && value == "process"), "{name}");
    }
}
