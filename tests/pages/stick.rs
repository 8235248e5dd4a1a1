//! The page of one record as a file, as a technician takes it along.

use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use nodegate::record::bundle::Bundle;
use nodegate::record::{Algorithm, Documents, HostKey, Unsigned};
use tempfile::TempDir;

use crate::support::nodegate;
use crate::{sample, world};

/// A record of a machine with what lies beside it, signed by a key of this kind.
pub struct Kept {
    folder: TempDir,
    pub run_id: String,
}

impl Kept {
    pub fn signed_by(algorithm: Algorithm) -> Kept {
        let folder = tempfile::tempdir().unwrap();
        let key = HostKey::generate(algorithm);
        let documents = Documents::of(&sample::snapshot("S514387X4A02117", &sample::GPUS));
        let mut details = world::ran("h100-link-narrow");
        (details.simulated, details.seq) = (false, 1);
        let run_id = details.run_id.clone();
        let Unsigned::Live(live) = Unsigned::new(details, &documents).unwrap() else { panic!("of a machine") };
        let envelope = key.sign(&live).unwrap();
        let write = |name: String, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
        write(format!("{run_id}.json"), &envelope.to_json());
        write(format!("{run_id}.sigstore.json"), &serde_json::to_vec(&Bundle::of(&envelope)).unwrap());
        write(format!("{run_id}.host.json"), &documents.host.to_json());
        write(format!("{run_id}.node.json"), &documents.node.to_json());
        write("host.pub".to_owned(), key.public_key().to_pem().as_bytes());
        Kept { folder, run_id }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `nodegate record show FILE --key … --html OUT`.
    pub fn page(&self, record: &str) -> String {
        let (key, out) = (self.path("host.pub"), self.path("report.html"));
        let output = nodegate()
            .args(["record", "show", self.path(record).to_str().unwrap(), "--key", key.to_str().unwrap(), "--html"])
            .arg(&out)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::read_to_string(out).unwrap()
    }
}

/// Saves the files that are in the page, by the names that it gives them.
pub fn save(page: &str, folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for link in page.split("<a download=\"").skip(1) {
        let (name, rest) = link.split_once('"').unwrap();
        let data = rest.split_once("base64,").unwrap().1.split_once('"').unwrap().0;
        std::fs::write(folder.join(name), base64::engine::general_purpose::STANDARD.decode(data).unwrap()).unwrap();
        names.push(name.to_owned());
    }
    names
}

/// The commands below a heading, as someone copies them out of the page.
pub fn commands(page: &str, heading: &str) -> String {
    let section = page.split_once(heading).unwrap_or_else(|| panic!("no {heading}")).1;
    let code = section.split_once("<pre><code>").unwrap().1.split_once("</code></pre>").unwrap().0;
    let entities = [("&gt;", ">"), ("&lt;", "<"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")];
    entities.iter().fold(code.to_owned(), |text, (entity, character)| text.replace(entity, character))
}

/// Runs them in a folder, `nodegate` being the one under test.
pub fn bash(commands: &str, folder: &Path) -> (bool, String) {
    let program = nodegate().get_program().to_owned();
    let own = Path::new(&program).parent().unwrap().to_owned();
    let path = format!("{}:{}", own.display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash").args(["-euc", commands]).current_dir(folder).env("PATH", path).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.success(), said)
}
