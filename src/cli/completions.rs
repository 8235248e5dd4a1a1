//! `nodegate completions`: scripts for shells.

use std::io::Write;

use clap::CommandFactory;

use super::Failure;
use crate::exit::Ending;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example: nodegate completions bash > /etc/bash_completion.d/nodegate")]
pub struct Arguments {
    shell: clap_complete::Shell,
}

pub fn run(arguments: &Arguments, out: &mut dyn Write) -> Result<Ending, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut super::Arguments::command(), "nodegate", &mut script);
    out.write_all(&script).map_err(Failure::broken)?;
    Ok(Ending::Accepted)
}
