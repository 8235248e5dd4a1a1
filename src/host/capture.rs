//! A live host as a recording: `driver.json`, `root/` and `fixture.toml` as `fixtures/FORMAT.md` has them.
//!
//! Only what was asked and read is written. Everything is written beside the target first and
//! then renamed onto it, so that nothing half-written is ever there.

mod factor;

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::root::{Recording, Trace};
use crate::facts::redact::Redactor;
use crate::facts::{Answer, Answers};

/// Everything that a capture is made of.
#[derive(Debug)]
pub struct Capture<'a> {
    /// All answers of the opening sweep.
    pub answers: &'a Answers,
    /// What the host's facts were read from.
    pub recording: &'a Recording,
    /// One line for people: what host this is, without its name.
    pub title: String,
    /// Events that a folder cannot carry, by their names in `fixture.toml`, e.g. `library-missing`.
    pub events: Vec<String>,
    /// The class that a run on it passes as `--class`.
    pub class: Option<String>,
    /// Writes identities as they are instead of pseudonyms.
    pub keep_identity: bool,
}

/// How much was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Files, links and device nodes below `root/`.
    pub entries: usize,
    pub answers: usize,
    /// Answers that are not the driver's (no answer in time, not recorded): a replay says *not recorded*.
    pub left_out: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    #[error("{}: not an empty folder; name one that does not exist yet", path.display())]
    NotEmpty { path: PathBuf },
    #[error("folder {} for the capture", path.display())]
    Parent { path: PathBuf, source: io::Error },
    #[error("capture file {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("driver answers as JSON")]
    Encode { source: serde_json::Error },
}

impl Capture<'_> {
    /// Writes the recording into `folder`, which must be empty or not exist; all of it or nothing.
    pub fn write(&self, folder: &Path) -> Result<Written, CaptureError> {
        refuse_non_empty(folder)?;
        let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let at_parent = |source| CaptureError::Parent { path: parent.to_owned(), source };
        fs::create_dir_all(parent).map_err(at_parent)?;
        let beside = tempfile::Builder::new().prefix(".nodegate-capture-").tempdir_in(parent).map_err(at_parent)?;
        // A folder in the private one, so that the result has the permissions of the caller's umask.
        let draft = beside.path().join("capture");
        fs::create_dir(&draft).map_err(at_parent)?;
        let written = self.write_into(&draft)?;
        // Renaming onto an empty folder replaces it; onto one that was filled meanwhile it fails.
        fs::rename(&draft, folder).map_err(|source| CaptureError::Write { path: folder.to_owned(), source })?;
        Ok(written)
    }

    fn write_into(&self, draft: &Path) -> Result<Written, CaptureError> {
        let mut redactor = Redactor::default();
        if !self.keep_identity {
            redactor.learn(self.answers, self.files());
        }
        let (answers, left_out) = self.driver_answers(&mut redactor);
        let json = factor::driver_json(&answers).map_err(|source| CaptureError::Encode { source })?;
        put(&draft.join("driver.json"), json.as_bytes())?;
        put(&draft.join("fixture.toml"), self.fixture_toml().as_bytes())?;
        let root = draft.join("root");
        fs::create_dir(&root).map_err(|source| CaptureError::Write { path: root.clone(), source })?;
        for (path, trace) in self.recording.iter().filter(|(path, _)| !path.is_empty()) {
            self.put_trace(&root, path, trace, &mut redactor)?;
        }
        Ok(Written { entries: self.recording.len(), answers: answers.len(), left_out })
    }

    fn driver_answers(&self, redactor: &mut Redactor) -> (Answers, usize) {
        let is_driver_s = |answer: &Answer| !matches!(answer, Answer::Refused { rc } if rc.is_ours());
        let kept: Answers = self
            .answers
            .iter()
            .filter(|(_, answer)| is_driver_s(answer))
            .map(|(question, answer)| match self.keep_identity {
                true => (question.clone(), answer.clone()),
                false => (question.clone(), redactor.answer(question, answer)),
            })
            .collect();
        let left_out = self.answers.len() - kept.len();
        (kept, left_out)
    }

    fn put_trace(&self, root: &Path, path: &str, trace: &Trace, redactor: &mut Redactor) -> Result<(), CaptureError> {
        let text = |text: &str, redactor: &mut Redactor| match self.keep_identity {
            true => text.to_owned(),
            false => redactor.text(text),
        };
        let place = root.join(text(path, redactor));
        let at_place = |source| CaptureError::Write { path: place.clone(), source };
        match trace {
            Trace::Folder => fs::create_dir_all(&place).map_err(at_place),
            Trace::Presence => put(&place, b""),
            Trace::File(content) if self.keep_identity => put(&place, content.as_bytes()),
            Trace::File(content) => put(&place, redactor.file(path, content).as_bytes()),
            Trace::Link(target) => {
                let target = text(target, redactor);
                place.parent().map_or(Ok(()), fs::create_dir_all).map_err(at_place)?;
                symlink(target, &place).map_err(at_place)
            }
        }
    }

    /// The recorded files as text, by path.
    fn files(&self) -> impl Iterator<Item = (String, String)> {
        self.recording.iter().filter_map(|(path, trace)| match trace {
            Trace::File(content) => Some((path.clone(), content.clone())),
            Trace::Link(_) | Trace::Folder | Trace::Presence => None,
        })
    }

    fn fixture_toml(&self) -> String {
        let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
        let class = self.class.as_ref().map(|class| format!("class = {}\n", quoted(class))).unwrap_or_default();
        let event = |event: &String| format!("[[event]]\nwhat = {}\n\n", quoted(event));
        let events: String = self.events.iter().map(event).collect();
        format!(
            "format = 1\ntitle = {}\nprovenance = \"captured\"\nsource = {}\n{class}\n{events}\
             # What a run must decide is for a person to say:\n\
             # [expect]\n# decision = \"accepted\"\n# steps = []\n",
            quoted(&self.title),
            quoted(&format!("nodegate capture {}", env!("CARGO_PKG_VERSION"))),
        )
    }
}

fn refuse_non_empty(folder: &Path) -> Result<(), CaptureError> {
    let not_empty = || CaptureError::NotEmpty { path: folder.to_owned() };
    match fs::read_dir(folder) {
        Ok(mut entries) => entries.next().map_or(Ok(()), |_| Err(not_empty())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(not_empty()),
        Err(source) => Err(CaptureError::Parent { path: folder.to_owned(), source }),
    }
}

fn put(path: &Path, bytes: &[u8]) -> Result<(), CaptureError> {
    let write = || {
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, bytes)
    };
    write().map_err(|source| CaptureError::Write { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests;
