//! The ordered frame of a transaction. It holds the transaction's number in each partition's sequence, and a command or
//! the transaction's effects.
//!
//! Each partition has a sequence. It numbers the transactions that wrote typed tables there. A command gets a number in
//! every partition that it latched, because it may have read there. A transaction that is undone gets no number. The
//! format is in `docs/formats/ordered.md`.

use perdura_base::{Error, PartitionId, PartitionSet, Result};
use perdura_formats::ordered::{CommandFrame, Part, encode_command, encode_head};
use perdura_wal::FrameKind;
use smallvec::SmallVec;

use crate::tx::Guards;
use crate::typed::Typed;

/// The places of a transaction: its partitions, ascending, each with the transaction's sequence
/// number there.
pub(crate) type Places = SmallVec<[Part; 4]>;

/// The logged form of a transaction on key-addressed tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Says<'a> {
    /// The rows that the transaction changed.
    Effects,
    /// The procedure and its arguments.
    Command(CommandCall<'a>),
    /// Nothing is logged, because this is a replay: the log already has the transaction.
    Replayed {
        /// The transaction's partitions, ascending, with its number in each.
        places: &'a [Part],
        /// True if the transaction's effects are noted, so that the caller can compare them.
        effects: bool,
    },
}

impl<'a> Says<'a> {
    /// Returns whether the rows that a transaction changes are noted.
    pub(crate) fn notes_effects(&self) -> bool {
        match self {
            Says::Effects => true,
            // The frame of a command has a hash of its effects.
            Says::Command(_) => true,
            Says::Replayed { effects, .. } => *effects,
        }
    }

    /// Returns the logged form of a transaction that must run again, because it used partitions that it did not
    /// declare. Fails for a strict command and for a replay.
    pub(crate) fn widened(self, missing: &PartitionSet) -> Result<Says<'a>> {
        let first = missing.iter().next().unwrap_or_default();
        match self {
            Says::Effects => Ok(self),
            Says::Command(call) if call.strict => Err(Error::Usage(format!(
                "procedure {} used a row of partition {first}, which it did not declare; it was \
                 called as a strict command, so nothing was done",
                call.procedure
            ))),
            Says::Command(_) => Ok(Says::Effects),
            Says::Replayed { places, .. } => {
                let held: Vec<String> = places.iter().map(|(id, _)| id.to_string()).collect();
                Err(Error::Usage(format!(
                    "a replayed command used a row of partition {first}; its frame names partitions \
                     {}. The procedure is not the one that was logged",
                    held.join(", ")
                )))
            }
        }
    }

    /// Returns the logged form of a command that must run again, because it used a page-addressed table. Fails for a
    /// strict command and for a replay.
    pub(crate) fn without_command(self) -> Result<Says<'a>> {
        match self {
            Says::Command(call) if call.strict => Err(Error::Usage(format!(
                "procedure {} used a page-addressed table, which a command cannot; it was called as a \
                 strict command, so nothing was done",
                call.procedure
            ))),
            Says::Command(_) | Says::Effects => Ok(Says::Effects),
            Says::Replayed { .. } => Err(Error::Usage(
                "a replayed command used a page-addressed table. The procedure is not the one that \
                 was logged"
                    .into(),
            )),
        }
    }
}

/// The call of a procedure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandCall<'a> {
    /// The procedure's number in the catalog.
    pub procedure: u32,
    /// The encoded arguments of the call.
    pub args: &'a [u8],
    /// True if the call fails when it cannot be logged as a command. Otherwise its effects are
    /// logged instead.
    pub strict: bool,
}

/// Gives a transaction the next number in the sequence of each of its partitions, and returns the numbers. A command
/// gets a number in every latched partition. A transaction whose effects are logged gets one in every partition with a
/// changed row.
pub(crate) fn take_places(guards: &mut Guards<'_>, typed: &Typed, says: &Says<'_>) -> Places {
    let counts = |id: PartitionId| match says {
        Says::Command(_) => true,
        Says::Effects => typed.homes.contains(id),
        Says::Replayed { .. } => false,
    };
    debug_assert!(
        guards.windows(2).all(|pair| pair[0].0 < pair[1].0),
        "latches are held in ascending order"
    );
    let mut places = Places::new();
    for (id, part) in guards.iter_mut().filter(|(id, _)| counts(*id)) {
        let number = part.pseq() + 1;
        part.set_pseq(number);
        places.push((*id, number));
    }
    places
}

/// Sets each partition's sequence to the number that the replayed transaction originally got there.
pub(crate) fn restore_places(guards: &mut Guards<'_>, places: &[Part]) {
    for (id, part) in guards {
        let found = places.binary_search_by_key(id, |(place, _)| *place);
        let at = found.expect("a replayed transaction holds the partitions of its frame");
        let (_, number) = places[at];
        assert!(
            part.pseq() < number,
            "partition {id} replays number {number} behind {}",
            part.pseq()
        );
        part.set_pseq(number);
    }
}

/// Returns the partitions of a frame's places.
pub(crate) fn partitions(places: &Places) -> PartitionSet {
    places.iter().map(|(id, _)| *id).collect()
}

/// Encodes the frame and appends the payload to `out`.
pub(crate) fn encode(
    places: &Places,
    typed: &mut Typed,
    says: &Says<'_>,
    now_ms: u64,
    out: &mut Vec<u8>,
) -> FrameKind {
    debug_assert!(!places.is_empty(), "a frame has a partition");
    debug_assert!(
        places.windows(2).all(|pair| pair[0].0 < pair[1].0),
        "a frame names its partitions in ascending order"
    );
    match says {
        Says::Command(call) => {
            let command = CommandFrame {
                procedure: call.procedure,
                time_ms: now_ms,
                args: call.args,
                effects_hash: Some(typed.effects_hash()),
            };
            encode_command(out, places, &command);
            FrameKind::Command
        }
        Says::Effects | Says::Replayed { .. } => {
            encode_head(out, places, false);
            typed.encode_effects(places, out);
            FrameKind::Effects
        }
    }
}
