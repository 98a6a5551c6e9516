//! Ordered frames as text.

use std::fmt::Write as _;

use perdura_base::moment::moment;
use perdura_formats::OrderedPayload;
use perdura_formats::ordered::{At, CommandFrame, Effect, Malformed, Op};
use perdura_wal::{Frame, FrameKind};
use serde::Serialize;

/// An ordered frame as text: the partitions, the sequence number in each partition, and the command or the effects.
#[derive(Debug, Default, Serialize)]
pub struct DumpedOrdered {
    parts: Vec<ShownPart>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<ShownCommand>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    effects: Vec<ShownEffect>,
    #[serde(skip_serializing_if = "Option::is_none")]
    malformed: Option<String>,
}

#[derive(Debug, Serialize)]
struct ShownPart {
    partition: u16,
    pseq: u64,
}

#[derive(Debug, Serialize)]
struct ShownCommand {
    procedure: u32,
    time_ms: u64,
    args: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    effects_hash: Option<String>,
}

#[derive(Debug, Serialize)]
struct ShownEffect {
    op: &'static str,
    table: u32,
    /// The partition of the effect. `None`: all partitions of the frame.
    partition: Option<u16>,
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<String>,
}

impl DumpedOrdered {
    /// Reads a frame. If the frame does not parse, the result has everything before the fault, and `malformed`
    /// describes the fault.
    pub(crate) fn of(frame: &Frame<'_>) -> DumpedOrdered {
        let mut shown = DumpedOrdered::default();
        if let Err(why) = shown.read(frame) {
            shown.malformed = Some(format!("does not parse: {why}"));
        }
        shown
    }

    fn read(&mut self, frame: &Frame<'_>) -> Result<(), Malformed> {
        let payload = OrderedPayload::decode(frame.payload)?;
        let parts = payload.head.parts.iter();
        self.parts = parts
            .map(|(partition, pseq)| ShownPart {
                partition: partition.0,
                pseq: *pseq,
            })
            .collect();
        if frame.kind == FrameKind::Command {
            self.command = Some(shown_command(&payload.command()?));
            return Ok(());
        }
        for effect in payload.effects() {
            let effect = self.shown_effect(&effect?);
            self.effects.push(effect);
        }
        Ok(())
    }

    fn shown_effect(&self, effect: &Effect<'_>) -> ShownEffect {
        let (before, after) = match effect.op {
            Op::Delete | Op::DropTable => (None, None),
            Op::Put { row } => (None, Some(row)),
            Op::Columns { patch } => (None, Some(patch)),
            Op::Replace { before, after } => (Some(before), Some(after)),
            Op::CreateTable { definition } => (None, Some(definition)),
        };
        ShownEffect {
            op: effect.op.name(),
            table: effect.table.0,
            partition: match effect.at {
                At::Part(index) => self.parts.get(index).map(|part| part.partition),
                At::All => None,
            },
            key: hex(effect.key),
            before: before.map(hex),
            after: after.map(hex),
        }
    }

    /// Returns the frame in one line, without its effects.
    #[must_use]
    pub fn line(&self) -> String {
        let mut line = String::new();
        if let Some(command) = &self.command {
            line = format!(
                "procedure {} at {}, ",
                command.procedure,
                moment(command.time_ms.saturating_mul(1000))
            );
        }
        let parts = self.parts.iter();
        let parts: Vec<_> = parts
            .map(|part| format!("{}:{}", part.partition, part.pseq))
            .collect();
        line += &format!("parts [{}]", parts.join(", "));
        if let Some(command) = &self.command {
            line += &format!(", args {}", command.args);
            if let Some(hash) = &command.effects_hash {
                line += &format!(", effects hash {hash}");
            }
        }
        if let Some(why) = &self.malformed {
            line += &format!(", {why}");
        }
        line
    }

    /// Returns a line for each effect.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.effects.iter().map(|effect| {
            let place = effect
                .partition
                .map_or("all its partitions".into(), |p| format!("partition {p}"));
            let mut line = format!("{} table {} in {place}", effect.op, effect.table);
            for (name, bytes) in [
                ("key", Some(&effect.key).filter(|key| !key.is_empty())),
                ("before", effect.before.as_ref()),
                ("after", effect.after.as_ref()),
            ] {
                line += &bytes.map_or(String::new(), |bytes| format!(", {name} {bytes}"));
            }
            line
        })
    }
}

fn shown_command(command: &CommandFrame<'_>) -> ShownCommand {
    ShownCommand {
        procedure: command.procedure,
        time_ms: command.time_ms,
        args: hex(command.args),
        effects_hash: command.effects_hash.map(|hash| format!("{hash:016x}")),
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        write!(out, "{byte:02x}").expect("a string takes it");
    }
    out
}

#[cfg(test)]
mod tests {
    use perdura_base::{PartitionId, TableId};
    use perdura_formats::ordered::{encode_command, encode_head};

    use super::*;

    fn shown(kind: FrameKind, payload: &[u8]) -> DumpedOrdered {
        DumpedOrdered::of(&Frame { kind, payload })
    }

    #[test]
    fn commands_and_effects_are_shown_in_words_and_a_cut_one_says_where() {
        let parts = [(PartitionId(3), 300), (PartitionId(7), 2)];
        let command = CommandFrame {
            procedure: 9,
            time_ms: 1,
            args: &[1, 0xab],
            effects_hash: Some(1),
        };
        let mut payload = Vec::new();
        encode_command(&mut payload, &parts, &command);
        let line = shown(FrameKind::Command, &payload).line();
        assert!(line.starts_with("procedure 9 at 1970-01-01"), "{line}");
        let rest = "parts [3:300, 7:2], args 01ab, effects hash 0000000000000001";
        assert!(line.ends_with(rest), "{line}");

        let mut payload = Vec::new();
        encode_head(&mut payload, &parts, false);
        let effect = |at, op, key| Effect {
            table: TableId(5),
            at,
            op,
            key,
        };
        effect(At::Part(1), Op::Put { row: b"a" }, b"k").encode(&mut payload, 2);
        effect(At::All, Op::DropTable, b"").encode(&mut payload, 2);
        let whole = shown(FrameKind::Effects, &payload);
        assert_eq!(whole.line(), "parts [3:300, 7:2]");
        let lines: Vec<_> = whole.lines().collect();
        assert_eq!(
            lines,
            [
                "put table 5 in partition 7, key 6b, after 61",
                "drop-table table 5 in all its partitions"
            ]
        );
        let cut = shown(FrameKind::Effects, &payload[..payload.len() - 1]);
        assert_eq!(cut.lines().count(), 1);
        let line = cut.line();
        assert!(line.contains("does not parse: byte"), "{line}");
    }
}
