//! Every way to end, with its number. One enum, one exhaustive mapping; the README's table is
//! tested against it.

use std::process::ExitCode;

use crate::decision::Decision;

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The host may take work; or a subcommand did what it was asked.
    Accepted,
    /// The machine is wrong.
    Rejected,
    /// We could not find out; also: another run holds the host.
    Undecided,
    /// Accepted, but delivery was required and no receipt came.
    Undelivered,
    /// We were misused: usage, suite, class or site file. Nothing was run.
    Misused,
    /// The agent itself failed; a panic too.
    Broken,
}

impl Ending {
    /// Every ending, in the order of its number.
    pub const ALL: [Ending; 6] =
        [Ending::Accepted, Ending::Rejected, Ending::Undecided, Ending::Undelivered, Ending::Misused, Ending::Broken];

    /// The process's exit status. 64 and 70 are `sysexits.h`'s EX_USAGE and EX_SOFTWARE.
    pub const fn status(self) -> u8 {
        match self {
            Ending::Accepted => 0,
            Ending::Rejected => 1,
            Ending::Undecided => 2,
            Ending::Undelivered => 3,
            Ending::Misused => 64,
            Ending::Broken => 70,
        }
    }

    /// What the number says, as the README's table has it.
    pub const fn meaning(self) -> &'static str {
        match self {
            Ending::Accepted => "accepted",
            Ending::Rejected => "rejected",
            Ending::Undecided => "undecided, or another run holds this host",
            Ending::Undelivered => "accepted, but `--require-delivery` and no receipt: the record is kept",
            Ending::Misused => "usage, suite, class or site file wrong: nothing was run",
            Ending::Broken => "the agent itself failed",
        }
    }
}

impl From<Decision> for Ending {
    fn from(decision: Decision) -> Ending {
        match decision {
            Decision::Accepted => Ending::Accepted,
            Decision::Rejected => Ending::Rejected,
            Decision::Undecided => Ending::Undecided,
        }
    }
}

impl From<Ending> for ExitCode {
    fn from(ending: Ending) -> ExitCode {
        ExitCode::from(ending.status())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_endings_share_a_number_and_none_is_taken_by_shells_or_rust() {
        let mut numbers: Vec<u8> = Ending::ALL.iter().map(|ending| ending.status()).collect();
        numbers.dedup();
        assert_eq!(numbers.len(), Ending::ALL.len());
        assert!(numbers.iter().all(|number| ![101, 124, 125, 126, 127, 255].contains(number)));
    }
}
