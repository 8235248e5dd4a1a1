//! A key's chain: where a record belongs, and whether it joins its neighbours.
//!
//! Every record says its number in its key's chain, from 1, and the digest of the record before it.
//! Records may arrive in any order, so a record is judged by what is here when it arrives:
//!
//! 1. The first of a chain has number 1 and names none before it; every other names one. Otherwise
//!    it is a **fork**: it claims a place that no chain has.
//! 2. Another record at the same number is a **fork** of the one that came later.
//! 3. Records at the number before it of which it names none make it a **fork**; no record there
//!    at all makes it a **gap**.
//! 4. Records at the number after it of which none names it make it a **fork**.
//! 5. Otherwise it has its place without a flag: a record that arrives late and joins both
//!    neighbours is as good as one that came in order.
//!
//! A flag is judged once, at the time of receipt, and stays: a record that came before one that it
//! builds on was not known to be complete when its receipt was given. The record after it joins it
//! and has no flag. The chain's head (number and digest) is the record with the highest number; it
//! only moves forward, and a fork at the head's own number does not move it.

use crate::ident::Digest;
use crate::record::standing::Flag;

/// A record's place, as it claims it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub seq: u64,
    pub payload: Digest,
    pub prev: Option<Digest>,
}

/// What speaks against this link among those of its key with the numbers around it.
pub fn judge(link: &Link, around: &[Link]) -> Option<Flag> {
    if link.seq == 0 || (link.seq == 1) != link.prev.is_none() {
        return Some(Flag::Fork);
    }
    let at = |seq: Option<u64>| around.iter().filter(move |other| Some(other.seq) == seq);
    let same = at(Some(link.seq)).any(|other| other.payload != link.payload);
    let mut after = at(link.seq.checked_add(1)).peekable();
    let torn_after = after.peek().is_some() && !after.any(|other| other.prev == Some(link.payload));
    let mut before = at(link.seq.checked_sub(1)).peekable();
    let missing = link.seq > 1 && before.peek().is_none();
    let torn_before = link.seq > 1 && !missing && !before.any(|other| Some(other.payload) == link.prev);
    if same || torn_after || torn_before {
        Some(Flag::Fork)
    } else if missing {
        Some(Flag::Gap)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(seq: u64, name: &str, prev: Option<&str>) -> Link {
        Link { seq, payload: Digest::of(name.as_bytes()), prev: prev.map(|name| Digest::of(name.as_bytes())) }
    }

    #[test]
    fn a_chain_in_order_has_no_flag() {
        assert_eq!(judge(&link(1, "a", None), &[]), None);
        assert_eq!(judge(&link(2, "b", Some("a")), &[link(1, "a", None)]), None);
    }

    #[test]
    fn a_record_that_fills_a_gap_has_no_flag_and_the_one_before_which_it_was_missing_has() {
        assert_eq!(judge(&link(3, "c", Some("b")), &[]), Some(Flag::Gap));
        let around = [link(1, "a", None), link(3, "c", Some("b"))];
        assert_eq!(judge(&link(2, "b", Some("a")), &around), None);
        assert_eq!(judge(&link(2, "x", Some("a")), &around), Some(Flag::Fork), "the one after names another");
        assert_eq!(judge(&link(2, "b", Some("x")), &around), Some(Flag::Fork), "it names another before it");
    }

    #[test]
    fn a_second_record_at_a_place_is_a_fork() {
        assert_eq!(judge(&link(1, "x", None), &[link(1, "a", None)]), Some(Flag::Fork));
        let both = [link(1, "a", None), link(1, "x", None)];
        assert_eq!(judge(&link(2, "y", Some("x")), &both), None, "each branch may be followed");
    }

    #[test]
    fn a_place_that_no_chain_has_is_a_fork() {
        for impossible in [link(0, "a", None), link(0, "a", Some("x")), link(1, "a", Some("x")), link(2, "a", None)] {
            assert_eq!(judge(&impossible, &[]), Some(Flag::Fork), "{impossible:?}");
        }
        assert_eq!(judge(&link(u64::MAX, "a", Some("x")), &[]), Some(Flag::Gap));
    }
}
