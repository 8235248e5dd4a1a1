//! One JSON object a line, as things happen: for pipelines that follow a run.

use std::io::Write;

use crate::event::Event;
use crate::report::Reporter;

pub struct JsonLines<'a> {
    out: &'a mut dyn Write,
}

impl<'a> JsonLines<'a> {
    pub fn new(out: &'a mut dyn Write) -> Self {
        JsonLines { out }
    }
}

impl Reporter for JsonLines<'_> {
    fn hear(&mut self, event: &Event) {
        // A closed pipe is quiet, and an event always serializes: it is plain data.
        let _closed = serde_json::to_string(event)
            .map_err(std::io::Error::other)
            .and_then(|line| writeln!(self.out, "{line}"))
            .and_then(|()| self.out.flush());
    }
}
