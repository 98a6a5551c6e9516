//! Plays the ordered frames of a log: effects with the schemas in the catalog, commands with the program's procedures.
//!
//! A frame runs as an ordinary transaction with the latches of the partitions that the frame names, and with the time
//! of the original transaction. It logs nothing. The driver, [`perdura_recovery::ordered`], passes the frames so that
//! each partition sees its frames in order. During a replay memory has no limit, because the committed data fitted into
//! memory before.
//!
//! # Source
//! *Rethinking Main Memory OLTP Recovery* (001), sections III-B and IV-B.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{CkptEpoch, Error, PartitionId, PartitionSet, Result, TableId};
use perdura_formats::ordered::{At, Effect, Op, OrderedPayload, Part};
use perdura_heap::Heap;
use perdura_heap::ahead::AHEAD_KEYS;
use perdura_recovery::Catalog;
use perdura_recovery::families::Family;
use perdura_recovery::ordered::{
    Differs, Divergence, Divergences, OrderedFrame, OrderedPlayer, malformed,
};
use perdura_table::{Abort, Cx, Registry};
use perdura_txn::{Executor, ExecutorOptions, Manner, Says, Sink, Tx, TypedTable};
use perdura_wal::Origin;
use smallvec::SmallVec;

use super::accept::{Accepted, of_procedure};
use super::options::TypedOptions;
use super::procedures::Registered;
use super::refuse::{damaged, refused, unknown_procedure};
use super::state::registry_of;
use crate::catalog::{ProcedureRow, procedures_of};

/// The player of a database's ordered frames.
pub struct Replayer {
    options: TypedOptions,
    value_bytes_max: usize,
    state: OnceLock<State>,
}

struct State {
    executor: Executor,
    registry: Registry,
    heap: Arc<Heap>,
    memory_limit: u64,
    /// The tables that exist at the log's end.
    catalog: BTreeSet<TableId>,
    /// The procedures in the catalog, by the ids used in commands. The second element is `None` if the program lacks
    /// the procedure.
    procedures: BTreeMap<u32, (ProcedureRow, Option<Registered>)>,
    /// The differences accepted so far. `None`: the caller does not accept differences.
    accepted: Option<Accepted>,
    program: TypedOptions,
}

impl std::fmt::Debug for Replayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Replayer {:?}", self.options.procedures)
    }
}

impl Replayer {
    /// Returns a player that runs a program's procedures.
    #[must_use]
    pub fn new(options: TypedOptions, value_bytes_max: usize) -> Replayer {
        #[cfg(feature = "flaws")]
        super::seeded::begin();
        Replayer {
            options,
            value_bytes_max,
            state: OnceLock::new(),
        }
    }

    fn state(&self) -> &State {
        self.state.get().expect("a player begins before it plays")
    }

    /// Returns the program's procedure for a logged version. If the program lacks this version and the caller accepts
    /// differences, returns a version with the same argument types. `None`: the program has no usable version.
    fn program_of(&self, row: &ProcedureRow) -> Option<Registered> {
        let options = &self.options;
        let all = || options.procedures.iter().chain(options.replayed.iter());
        let mine = || all().filter(|registered| registered.name == row.name);
        let same = mine().find(|registered| registered.hash == row.hash);
        let changed = || mine().find(|registered| registered.types == row.types);
        same.or_else(|| options.accept.as_ref().and_then(|_| changed()))
            .cloned()
    }
}

impl OrderedPlayer for Replayer {
    fn begin(&self, heap: &Arc<Heap>, catalog: &Catalog, image: CkptEpoch) -> Result<()> {
        let procedures = procedures_of(heap)?
            .into_iter()
            .map(|(id, row)| {
                let found = self.program_of(&row);
                (id, (row, found))
            })
            .collect();
        let options = ExecutorOptions {
            value_bytes_max: self.value_bytes_max,
            value_form: self.options.form,
        };
        let registry = registry_of(heap, Some(image))?;
        for id in (0..heap.geometry().partitions).map(PartitionId) {
            let mut part = heap.lock(id);
            // A partition has no page of a table if the image has no row of the table there. The log may still have
            // such rows. So all tables are attached to all partitions.
            for (table, schema) in registry.tables() {
                let is_dropped = !catalog.contains_key(&table);
                if !(armed(Flaw::TableBornAndDropped) && is_dropped) {
                    part.attach_table(table, schema.form());
                }
            }
        }
        let memory_limit = heap.memory().limit();
        if !armed(Flaw::MemoryLimitInReplay) {
            heap.memory().set_limit(u64::MAX);
        }
        for id in (0..heap.geometry().partitions).map(PartitionId) {
            let part = heap.lock(id);
            let known = registry
                .tables()
                .all(|(table, _)| part.table_ids().any(|id| id == table));
            assert!(known, "every typed table is attached in partition {id}");
        }
        let state = State {
            executor: Executor::new(Arc::clone(heap), Sink::Replay, options),
            registry,
            heap: Arc::clone(heap),
            memory_limit,
            catalog: catalog.keys().copied().collect(),
            procedures,
            accepted: self.options.accept.clone().map(Accepted::new),
            program: self.options.clone(),
        };
        assert!(self.state.set(state).is_ok(), "a player begins once");
        Ok(())
    }

    fn play(&self, frame: &OrderedFrame<'_>, origin: &Origin) -> Result<()> {
        let state = self.state();
        let payload = &frame.payload;
        let parts = &payload.head.parts;
        #[cfg(feature = "flaws")]
        super::seeded::note(parts);
        match frame.family {
            Family::Commands => state.command(payload, parts, origin),
            Family::Effects => state.effects(payload, parts, origin),
        }
    }

    fn finish(&self) -> Result<()> {
        if let Some(state) = self.state.get() {
            let mut left = state.registry.tables();
            if let Some((table, _)) = left.find(|(id, _)| !state.catalog.contains(id)) {
                return Err(Error::corrupt(
                    "catalog (table 0)",
                    0,
                    format!("the drop of table {table} in the log"),
                    "no such frame",
                    "The checksums match, so this is a bug in Perdura. Copy the files and report \
                     the bug.",
                ));
            }
            assert!(
                state.heap.memory().limit() == u64::MAX,
                "memory had no limit during the replay"
            );
            state.heap.memory().set_limit(state.memory_limit);
        }
        Ok(())
    }

    fn divergences(&self) -> Divergences {
        let accepted = self.state.get().and_then(|state| state.accepted.as_ref());
        accepted.map(Accepted::divergences).unwrap_or_default()
    }
}

impl State {
    fn command(&self, payload: &OrderedPayload<'_>, parts: &[Part], origin: &Origin) -> Result<()> {
        let command = payload
            .command()
            .map_err(|why| malformed(Family::Commands, why, origin))?;
        let Some((row, procedure)) = self.procedures.get(&command.procedure) else {
            return Err(Error::Usage(format!(
                "the log calls procedure {}, which the catalog does not name (first in epoch {} \
                 of this database, in stream {} at byte {}). Nothing was changed. Open the database with the program \
                 that wrote it",
                command.procedure, origin.epoch, origin.stream, origin.pos.0
            )));
        };
        let Some(procedure) = procedure else {
            return Err(unknown_procedure(row, &self.program, origin));
        };
        let place = (parts, origin);
        if let Some(accepted) = self
            .accepted
            .as_ref()
            .filter(|_| procedure.hash != row.hash)
        {
            accepted.note_body(row, procedure.hash, place.0, place.1);
        }
        let now_ms = if armed(Flaw::ReplayReadsClock) {
            command.time_ms + 1
        } else {
            command.time_ms
        };
        let says = Says::Replayed {
            places: parts,
            effects: command.effects_hash.is_some(),
        };
        let mut hash = 0;
        let played = catch_unwind(AssertUnwindSafe(|| {
            self.run(parts, &Manner::new(now_ms, says), |tx| {
                procedure.run(&mut Cx::new(tx, &self.registry), command.args)?;
                hash = tx.effects_hash();
                Ok(())
            })
        }));
        let why = match played {
            Ok(Ok(())) => {
                return match command.effects_hash {
                    Some(logged) if logged != hash => {
                        let said =
                            [logged, hash].map(|hash| format!("effects with the hash {hash:016x}"));
                        self.differs(row, Divergence::new(Differs::Effects, place, said.into()))
                    }
                    Some(_) | None => Ok(()),
                };
            }
            // The original call neither aborted nor panicked, because otherwise the log would have no record of it.
            Err(_panic) => "it panics now".into(),
            // The procedure or a verb refused, for example because a key exists already or a partition is not latched.
            Ok(Err(Abort::Refused(why) | Abort::Database(Error::Usage(why)))) => why,
            Ok(Err(Abort::Database(error))) => return Err(error),
        };
        let said = ("its changes".into(), format!("no changes: {why}"));
        self.differs(row, Divergence::new(Differs::Abort, place, said))?;
        // The call changed nothing, but it still takes its number in each partition, because these numbers have no
        // gaps.
        let says = Says::Replayed {
            places: parts,
            effects: false,
        };
        self.run(parts, &Manner::new(now_ms, says), |_| Ok::<_, Error>(()))
    }

    /// Accepts a call whose replay differs from the log, or returns an error.
    fn differs(&self, row: &ProcedureRow, divergence: Divergence) -> Result<()> {
        let divergence = of_procedure(row, divergence);
        let Some(accepted) = &self.accepted else {
            return Err(refused(
                &divergence,
                "The procedure is not deterministic, or another version of it wrote the log.",
            ));
        };
        accepted.note(divergence);
        Ok(())
    }

    fn effects(&self, payload: &OrderedPayload<'_>, parts: &[Part], origin: &Origin) -> Result<()> {
        let says = Says::Replayed {
            places: parts,
            effects: false,
        };
        let manner = Manner::new(0, says);
        self.run(parts, &manner, |tx| {
            let mut effects = payload.effects();
            loop {
                // The memory of several rows is prefetched together.
                let some = effects.by_ref().take(AHEAD_KEYS);
                let some: Result<SmallVec<[Effect<'_>; AHEAD_KEYS]>, _> = some.collect();
                let some = some.map_err(|why| malformed(Family::Effects, why, origin))?;
                if some.is_empty() {
                    return Ok::<_, Error>(());
                }
                tx.typed_look_ahead(some.iter().map(|effect| {
                    let first = match effect.at {
                        At::Part(index) => parts[index].0,
                        At::All => parts[0].0,
                    };
                    (keyed(effect.table), first, effect.key)
                }));
                for effect in &some {
                    self.effect(tx, effect, parts, origin)?;
                }
            }
        })
    }

    /// Drops a table with its rows. The frame of a drop names all partitions.
    fn drop_table(&self, tx: &mut Tx<'_>, table: TableId, origin: &Origin) -> Result<()> {
        if self.registry.schema(table).is_none() {
            let found = format!("the drop of table {table}");
            return Err(damaged(origin, "a typed table of the catalog", &found));
        }
        let _indexes = tx.detach_tables([table])?;
        self.registry.mark_dropped(table);
        Ok(())
    }

    fn run<E: From<Error>>(
        &self,
        parts: &[Part],
        manner: &Manner<'_>,
        f: impl FnMut(&mut Tx<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let declared: PartitionSet = parts.iter().map(|(id, _)| *id).collect();
        assert_eq!(
            declared.len(),
            parts.len(),
            "a frame names a partition once"
        );
        let ((), _durable) = self.executor.run_as(&declared, manner, f)?;
        Ok(())
    }

    fn effect(
        &self,
        tx: &mut Tx<'_>,
        effect: &Effect<'_>,
        parts: &[Part],
        origin: &Origin,
    ) -> Result<()> {
        match effect.op {
            // The catalog at the log's end has this table, or lists it as dropped, so the table is
            // attached already.
            Op::CreateTable { .. } => return Ok(()),
            Op::DropTable => return self.drop_table(tx, effect.table, origin),
            Op::Delete | Op::Put { .. } | Op::Columns { .. } | Op::Replace { .. } => {}
        }
        let Some(schema) = self.registry.schema(effect.table) else {
            let found = format!("an effect of table {}", effect.table);
            return Err(damaged(origin, "a typed table of the catalog", &found));
        };
        let table = keyed(effect.table);
        let homes = match effect.at {
            At::Part(index) => index..index + 1,
            At::All => 0..parts.len(),
        };
        assert!(
            homes.end <= parts.len(),
            "an effect lies in the parts of its frame"
        );
        for (home, _) in &parts[homes] {
            let home = *home;
            let (spot, before) = tx.typed_find(table, home, effect.key)?;
            let before = before.map(|row| row.value().into_owned());
            let missing = || self.row_is_missing(effect.op.name(), parts, origin);
            let patched;
            let row = match effect.op {
                Op::Delete => {
                    if !tx.typed_delete(table, home, effect.key)? {
                        missing()?;
                    }
                    continue;
                }
                Op::Put { row } | Op::Replace { after: row, .. } => row,
                Op::Columns { patch } => {
                    let Some(before) = before.as_deref() else {
                        missing()?;
                        continue;
                    };
                    patched = schema.apply_patch(before, patch)?;
                    &patched
                }
                Op::CreateTable { .. } | Op::DropTable => unreachable!("effects of rows"),
            };
            match before {
                Some(_) => {
                    let there = tx.typed_overwrite_at(table, spot, effect.key, row)?;
                    assert!(there, "a row that was read is there");
                }
                None => tx.typed_insert_at(table, spot, effect.key, row)?,
            }
        }
        Ok(())
    }

    /// Handles a change of a row that does not exist: skips the change if differences are accepted, else returns an
    /// error. The likely cause is an earlier call with a changed result. If the log has no hash of that call's effects,
    /// the replay did not notice the difference.
    fn row_is_missing(&self, op: &str, parts: &[Part], origin: &Origin) -> Result<()> {
        let said = (
            "the row that it changed".into(),
            format!("no row to {op}, so the change was skipped"),
        );
        if let Some(accepted) = &self.accepted {
            accepted.note(Divergence::new(Differs::Row, (parts, origin), said));
            return Ok(());
        }
        if self.procedures.is_empty() {
            let found = format!("{op} of a row that does not exist");
            return Err(damaged(
                origin,
                "an effect on the row that it changed",
                &found,
            ));
        }
        let said = (said.0, format!("no row to {op}"));
        Err(refused(
            &Divergence::new(Differs::Row, (parts, origin), said),
            "An earlier procedure did something else than before the crash, in a call without a \
             hash of its effects. Or Perdura has a bug.",
        ))
    }
}

/// Returns the key-addressed table of this id.
fn keyed(id: TableId) -> TypedTable {
    TypedTable { id, keyed: true }
}
