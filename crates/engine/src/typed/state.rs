//! Compares the program's declarations with the catalog: checks schemas, makes missing tables, and gives ids to
//! procedures.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use parking_lot::Mutex;
use perdura_base::{CkptEpoch, Error, Result, TableId};
use perdura_formats::ordered::Op;
use perdura_heap::Heap;
use perdura_table::{Procedure, Registry, Schema};
use perdura_txn::Tx;

use super::options::{LogForm, TypedOptions};
use crate::catalog::{
    Dropped, Entry, dropped_behind, dropped_of, kind_of, procedures_of, put_next_id, put_procedure,
    put_table, read_next_id, schema_of, tables_of,
};

/// The typed tables and procedures of an open database.
pub(crate) struct TypedState {
    pub options: TypedOptions,
    pub registry: Registry,
    /// The id and the text hash of each of the program's procedures, by name. Commands in the log contain the id.
    procedures: HashMap<&'static str, (u32, u64)>,
    /// Dropped tables that the catalog still names.
    pub dropped: Mutex<Vec<Dropped>>,
}

impl TypedState {
    /// Returns the state with the typed tables of a restarted heap. No procedure has an id yet.
    pub fn new(heap: &Heap, options: &TypedOptions) -> Result<TypedState> {
        Ok(TypedState {
            registry: registry_of(heap, None)?,
            options: options.clone(),
            procedures: HashMap::new(),
            dropped: Mutex::new(dropped_of(heap)?.into_values().collect()),
        })
    }

    /// Returns the id of a procedure.
    ///
    /// # Errors
    /// [`Error::Usage`] if the database was not opened with it.
    pub fn procedure<P: Procedure>(&self) -> Result<u32> {
        match self.procedures.get(P::NAME) {
            Some((id, hash)) if *hash == P::HASH => Ok(*id),
            Some(_) | None => Err(Error::Usage(format!(
                "the database was not opened with procedure {}: register it by \
                 `Db::builder(..).procedure({})`",
                P::NAME,
                P::NAME
            ))),
        }
    }

    /// Returns the declared tables that the catalog does not have.
    ///
    /// # Errors
    /// [`Error::Usage`] if a schema differs from the catalog's, or a name is taken.
    pub fn missing(&self, heap: &Heap) -> Result<Vec<Schema>> {
        let schemas = self.options.schemas.iter().map(Schema::name);
        check_once("table", schemas)?;
        let procedures = self.options.procedures.iter();
        check_once("procedure", procedures.map(|procedure| procedure.name))?;
        let tables = tables_of(heap)?;
        let mut missing = Vec::new();
        for schema in self.options.schemas.iter() {
            let name = schema.name();
            match tables.get(name) {
                None => missing.push(schema.clone()),
                Some(entry) if entry.schema.is_empty() => {
                    return Err(Error::Usage(format!(
                        "the name {name:?} belongs to a table without a schema. Give this table \
                         another name"
                    )));
                }
                Some(entry) => {
                    let found = schema_of(name, entry)?;
                    if let Some(difference) = found.differs(schema) {
                        return Err(Error::Usage(format!(
                            "table {name:?}: {difference}. The schema of a table cannot be \
                             changed. Declare it as it is, or copy its rows into a table of \
                             another name"
                        )));
                    }
                }
            }
        }
        Ok(missing)
    }

    /// Looks up the ids of the declared procedures in the catalog. Returns the declared procedures whose version the
    /// catalog lacks.
    pub fn number_procedures(&mut self, heap: &Heap) -> Result<Vec<(&'static str, u64, String)>> {
        let rows = procedures_of(heap)?;
        let mut missing = Vec::new();
        for procedure in self.options.procedures.iter() {
            let row = rows
                .values()
                .filter(|row| row.name == procedure.name && row.types == procedure.types)
                .find(|row| row.hash == procedure.hash);
            match row {
                Some(row) => {
                    self.procedures
                        .insert(procedure.name, (row.id, procedure.hash));
                }
                None => missing.push((procedure.name, procedure.hash, procedure.types.clone())),
            }
        }
        Ok(missing)
    }

    /// Adds missing tables and procedures to the catalog, within a transaction that holds every latch. Returns the
    /// argument for [`publish`](Self::publish).
    ///
    /// # Errors
    /// The errors of a write.
    pub fn make(
        &self,
        tx: &mut Tx<'_>,
        missing: &[Schema],
        procedures: &[(&'static str, u64, String)],
    ) -> Result<Made> {
        let mut made = Made::default();
        let mut next = read_next_id(tx)?;
        for schema in missing {
            assert!(
                self.registry.find(schema.name()).is_none(),
                "table {} is missing",
                schema.name()
            );
            let id = TableId(next);
            assert!(
                self.registry.schema(id).is_none(),
                "table ids are never used twice"
            );
            next += 1;
            let mut encoded = Vec::new();
            schema.encode(&mut encoded);
            let entry = Entry {
                id,
                kind: kind_of(schema),
                schema: encoded,
            };
            put_table(tx, schema.name(), &entry)?;
            tx.attach_table(id, schema.form())?;
            if is_keyed(schema) {
                let definition = entry.schema.as_slice();
                tx.note_table(id, &Op::CreateTable { definition });
            }
            made.tables.push((id, schema.clone()));
        }
        put_next_id(tx, next)?;
        for (name, hash, types) in procedures {
            let row = put_procedure(tx, name, *hash, types)?;
            let taken = self.procedures.values().any(|(id, _)| *id == row.id);
            assert!(!taken, "numbers of procedures are never used twice");
            made.procedures.push((name, row.id, *hash));
        }
        Ok(made)
    }

    /// Adds to this state the tables and procedures that a transaction made. Called after its commit.
    pub fn publish(&mut self, made: Made) {
        for (id, schema) in made.tables {
            self.registry.add(id, schema);
        }
        for (name, id, hash) in made.procedures {
            let before = self.procedures.insert(name, (id, hash));
            assert!(before.is_none(), "procedure {name} was missing");
        }
        assert_eq!(
            self.procedures.len(),
            self.options.procedures.len(),
            "every declared procedure has a number, and each has a name of its own"
        );
    }

    /// Returns whether a table of the catalog or one of `missing` is key-addressed.
    pub fn has_keyed(&self, missing: &[Schema]) -> bool {
        self.registry.has_keyed() || missing.iter().any(is_keyed)
    }

    /// Returns whether calls are logged as commands.
    pub fn logs_commands(&self) -> bool {
        match self.options.log {
            LogForm::Command => true,
            LogForm::Value => false,
        }
    }
}

/// Refuses a program that declares a name twice.
fn check_once<'n>(what: &str, names: impl Iterator<Item = &'n str>) -> Result<()> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(Error::Usage(format!("{what} {name:?} is declared twice")));
        }
    }
    Ok(())
}

/// The tables and procedures that a transaction made.
#[derive(Default)]
pub(crate) struct Made {
    tables: Vec<(TableId, Schema)>,
    procedures: Vec<(&'static str, u32, u64)>,
}

/// Returns the typed tables of a heap with an indexed catalog. For a replay, `replayed` is the checkpoint epoch of the
/// image with which it starts. The result then also contains the tables that were dropped after this image.
pub(crate) fn registry_of(heap: &Heap, replayed: Option<CkptEpoch>) -> Result<Registry> {
    let seed = heap.geometry().hash_seed;
    let mut registry = Registry::new(*heap.geometry(), seed);
    let mut schemas = BTreeMap::new();
    for (name, entry) in tables_of(heap)? {
        if !entry.schema.is_empty() {
            schemas.insert(entry.id, schema_of(&name, &entry)?);
        }
    }
    if let Some(k) = replayed {
        for (id, table) in dropped_behind(heap, k)? {
            let before = schemas.insert(id, schema_of(&table.name, &table.entry)?);
            assert!(before.is_none(), "table {id} is dropped, so no name has it");
        }
    }
    for (id, schema) in schemas {
        registry.add(id, schema);
    }
    Ok(registry)
}

/// Returns whether a table is key-addressed.
fn is_keyed(schema: &Schema) -> bool {
    match schema.addressing() {
        perdura_table::Addressing::Key => true,
        perdura_table::Addressing::Page => false,
    }
}
