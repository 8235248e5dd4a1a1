//! Tests of the drawing on the recorded hosts.

use super::*;
use crate::host::replay;

fn drawn(host: &str) -> String {
    svg(&Topology::of(&replay::snapshot(host)), host)
}

/// Elements open and close in order, and nothing but our own markup is there.
fn assert_well_formed(svg: &str) {
    let mut open: Vec<&str> = Vec::new();
    for tag in svg.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("every tag ends");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        assert!(["svg", "title", "desc", "style", "rect", "line", "path", "text"].contains(&name), "{tag}");
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed));
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn every_recorded_host_draws_well_formed_with_all_its_devices() {
    for host in replay::healthy_hosts() {
        let topology = Topology::of(&replay::snapshot(&host));
        let svg = svg(&topology, &host);
        assert_well_formed(&svg);
        for gpu in &topology.gpus {
            assert!(svg.contains(&format!(">{}</text>", gpu.name)), "{host}: {}", gpu.name);
        }
        assert!(!svg.contains("class=\"triangle\""), "{host} is healthy");
    }
}

#[test]
fn a_fault_has_a_shape_and_words_beside_its_colour() {
    let mut snapshot = replay::snapshot("hgx-h200-8");
    snapshot.gpus[2].nvlinks.iter_mut().for_each(|link| link.state = Reading::Value(0));
    snapshot.gpus.remove(7);
    let svg = svg(&Topology::of(&snapshot), "r12");
    assert_well_formed(&svg);
    assert!(svg.contains(">GPU2: 0 of 18 NVLinks are active</text>"), "{svg}");
    assert!(svg.contains(">PCI0: on the PCI bus, but not shown by the driver</text>"));
    // Two boxes and two lines of words.
    assert_eq!(svg.matches("class=\"triangle\"").count(), 4);
    assert_eq!(svg.matches("class=\"faulty\"").count(), 2);
}

#[test]
fn hostile_names_cannot_leave_their_element() {
    let mut snapshot = replay::snapshot("rtx-5090-2");
    snapshot.gpus[0].name = Reading::Value("</text><script>alert('1')</script>\x1b\u{202e}&".into());
    let svg = svg(&Topology::of(&snapshot), "<svg onload=\"x\">");
    assert_well_formed(&svg);
    assert!(!svg.contains("<script") && !svg.contains("onload=\"x") && !svg.contains('\x1b'));
}

#[test]
fn the_drawing_has_a_title_and_a_description() {
    let svg = drawn("rtx-4090-8");
    assert!(svg.contains("<title id=\"topology-title\">Topology of rtx-4090-8</title>"));
    assert!(svg.contains("<desc id=\"topology-desc\">GPU0"));
}

#[test]
fn a_host_without_gpu_draws_too() {
    let svg = svg(&Topology::default(), "bare");
    assert_well_formed(&svg);
    assert!(svg.contains("no GPU"));
}

#[test]
fn a_picture_out_of_a_record_is_the_same_and_a_false_matrix_draws_without_links() {
    for host in replay::healthy_hosts() {
        let topology = Topology { p2p: Vec::new(), ..Topology::of(&replay::snapshot(&host)) };
        let json = serde_json::to_string(&topology).unwrap();
        let mut again: Topology = serde_json::from_str(&json).unwrap();
        assert_eq!(svg(&again, &host), svg(&topology, &host));
        again.matrix.pop();
        assert_well_formed(&svg(&again, &host));
    }
}

#[test]
#[ignore = "writes drawings to look at into the folder that DRAWINGS names"]
fn drawings_to_look_at() {
    let folder = std::path::PathBuf::from(std::env::var("DRAWINGS").unwrap());
    for host in replay::healthy_hosts() {
        std::fs::write(folder.join(format!("{host}.svg")), drawn(&host)).unwrap();
    }
    let mut snapshot = replay::snapshot("hgx-h200-8");
    snapshot.gpus[2].nvlinks.iter_mut().for_each(|link| link.state = Reading::Value(0));
    snapshot.gpus[4].nvlinks[3].state = Reading::Value(0);
    snapshot.gpus.remove(7);
    std::fs::write(folder.join("faulty.svg"), svg(&Topology::of(&snapshot), "gpu-r12-u07")).unwrap();
}
