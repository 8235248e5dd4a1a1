//! Test only: a recorded host as a snapshot, its root folder read by the live code and its
//! answers looked up as `fixtures/FORMAT.md` says.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::facts::snapshot::{DriverSession, Pair, SessionState};
use crate::facts::{Answer, Answers, Gpu, Question, Snapshot};
use crate::host::read::host_facts;
use crate::host::root::Root;
use crate::reading::Code;

/// The folder of a recorded host.
pub fn folder(host: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/hosts").join(host)
}

/// Hosts that have a root folder of their own and are expected to be accepted.
pub fn healthy_hosts() -> Vec<String> {
    let hosts = std::fs::read_dir(folder("")).unwrap();
    let names = hosts.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut healthy: Vec<String> = names.filter(|name| folder(name).join("driver.json").is_file()).collect();
    healthy.sort();
    assert!(healthy.len() > 8, "{healthy:?}");
    healthy
}

pub fn snapshot(host: &str) -> Snapshot {
    snapshot_and_answers(&folder(host), &Root::new(folder(host).join("root"))).0
}

/// What a session would have been answered, and the snapshot from it.
pub fn snapshot_and_answers(folder: &Path, root: &Root) -> (Snapshot, Answers) {
    let text = std::fs::read_to_string(folder.join("driver.json")).unwrap();
    let recorded: Value = serde_json::from_str(&text).unwrap();
    let mut answers = Answers::default();
    let mut ask = |questions: Vec<Question>| {
        answers.extend(questions.into_iter().map(|q| (q.clone(), answer(&recorded, &q))).collect());
        answers.clone()
    };
    let all = ask(DriverSession::questions());
    let mut driver = DriverSession { session: SessionState::Answering, ..DriverSession::default() };
    driver.read(&all);
    let count = *driver.device_count.value().unwrap();
    for gpu in 0..count {
        let first = ask(Gpu::questions(gpu));
        ask(Gpu::follow_up(gpu, &first));
        (0..count).filter(|peer| *peer != gpu).for_each(|peer| drop(ask(Pair::questions(gpu, peer))));
    }
    let gpus = (0..count).map(|gpu| Gpu::from_answers(gpu, &answers)).collect();
    let ordered = (0..count).flat_map(|a| (0..count).map(move |b| (a, b))).filter(|(a, b)| a != b);
    let pairs = ordered.map(|(a, b)| Pair::from_answers(a, b, &answers)).collect();
    (Snapshot { host: host_facts(root), driver, gpus, pairs, warnings: Vec::new() }, answers)
}

/// The most specific key wins: fewest `*`, then the leftmost literal.
fn answer(recorded: &Value, question: &Question) -> Answer {
    let keys = recorded["answers"][&question.function].as_object();
    let fits = |key: &str| {
        let parts: Vec<&str> = key.split(',').filter(|part| !part.is_empty()).collect();
        let same = |(part, argument): (&&str, &u32)| *part == "*" || *part == argument.to_string();
        parts.len() == question.arguments.len() && parts.iter().zip(&question.arguments).all(same)
    };
    let rank = |key: &str| {
        let stars: Vec<bool> = key.split(',').map(|part| part == "*").collect();
        (stars.iter().filter(|star| **star).count(), stars)
    };
    let best = keys.into_iter().flatten().filter(|(key, _)| fits(key)).min_by_key(|(key, _)| rank(key));
    match best {
        Some((_, Value::Array(sequence))) => serde_json::from_value(sequence[0].clone()).unwrap(),
        Some((_, answer)) => serde_json::from_value(answer.clone()).unwrap(),
        None => Answer::refused(Code::NOT_RECORDED),
    }
}
