//! The catalog as a restart reads it: the tables, and the [`TableForm`] of each typed or dropped table.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use perdura_base::flaw::{Flaw, armed};
use perdura_base::{CkptEpoch, Error, Result, TableId};
use perdura_heap::{Heap, TableForm};
use perdura_recovery::indexing::ReadCatalog;
use perdura_recovery::{Addressing, Catalog, ComponentKind, KeyOrder, TableKind};
use perdura_table::{Order, Schema};

use super::{Dropped, Entry, dropped_of, read_catalog, tables_of};

/// The reader of the catalog for a restart. It keeps the forms of the typed tables that it has read.
#[derive(Debug, Default)]
pub struct CatalogRows {
    forms: Mutex<BTreeMap<TableId, TableForm>>,
    /// The dropped tables and their forms.
    dropped: Mutex<BTreeMap<TableId, (Dropped, TableForm)>>,
}

impl ReadCatalog for CatalogRows {
    fn read_catalog(&self, heap: &Heap) -> Result<Catalog> {
        let mut forms = BTreeMap::new();
        for (name, entry) in tables_of(heap)? {
            if !entry.schema.is_empty() {
                let schema = schema_of(&name, &entry)?;
                assert_eq!(kind_of(&schema), entry.kind, "a schema is of its kind");
                forms.insert(entry.id, schema.form());
            }
        }
        let catalog = read_catalog(heap)?;
        assert!(
            forms.keys().all(|table| catalog.contains_key(table)),
            "typed tables are in the catalog"
        );
        *self.forms.lock() = forms;
        let mut dropped = BTreeMap::new();
        for (id, table) in dropped_behind(heap, CkptEpoch(0))? {
            assert!(!catalog.contains_key(&id), "table {id} is dropped");
            let form = schema_of(&table.name, &table.entry)?.form();
            dropped.insert(id, (table, form));
        }
        *self.dropped.lock() = dropped;
        Ok(catalog)
    }

    fn form(&self, table: TableId, kind: TableKind) -> TableForm {
        let forms = self.forms.lock();
        let found = forms.get(&table).cloned();
        found.unwrap_or_else(|| kind.form())
    }

    fn dropped(&self, table: TableId, k: CkptEpoch) -> Option<TableForm> {
        let dropped = self.dropped.lock();
        let (dropped, form) = dropped.get(&table)?;
        dropped.is_behind(k).then(|| form.clone())
    }
}

/// Returns the tables with a drop that the image of checkpoint epoch `k` does not reflect.
pub(crate) fn dropped_behind(heap: &Heap, k: CkptEpoch) -> Result<BTreeMap<TableId, Dropped>> {
    let mut tables = dropped_of(heap)?;
    tables.retain(|_, table| table.is_behind(k) && !armed(Flaw::CommandBeforeDrop));
    Ok(tables)
}

/// Returns the schema of a typed table.
pub(crate) fn schema_of(name: &str, entry: &Entry) -> Result<Schema> {
    let schema = Schema::decode(&entry.schema);
    let found = schema.filter(|schema| schema.name() == name && kind_of(schema) == entry.kind);
    found.ok_or_else(|| {
        Error::corrupt(
            format!("catalog (table 0), table {name}"),
            0,
            "a schema that this build knows",
            "another",
            "A newer version of Perdura made the table, or the row is damaged. Nothing was \
             changed. Open the database with that version.",
        )
    })
}

/// Returns the kind of table that a schema describes.
pub(crate) fn kind_of(schema: &Schema) -> TableKind {
    TableKind {
        order: match schema.order() {
            Order::Hashed => KeyOrder::Hashed,
            Order::Ordered => KeyOrder::Ordered,
        },
        addressing: match schema.addressing() {
            perdura_table::Addressing::Key => Addressing::Key,
            perdura_table::Addressing::Page => Addressing::Page,
        },
        component: ComponentKind::Heap,
    }
}
