//! Compares a program's schema with the catalog's.

use super::{Column, Index, Indexed, Schema};

impl Schema {
    /// Compares this schema, which comes from the database, with the schema of a program. If they differ, returns a
    /// text with the first column, index or option that differs, and its two values. `None`: they do not differ.
    ///
    /// Earlier versions accepted a unique index even if rows with equal index columns may be in different partitions. A
    /// program now has to declare such an index without `unique`. The comparison then ignores `unique` for this index.
    #[must_use]
    pub fn differs(&self, program: &Schema) -> Option<String> {
        let fault = options(self, program)
            .or_else(|| columns("key column", &self.key, &program.key))
            .or_else(|| columns("column", &self.columns, &program.columns))
            .or_else(|| indexes(self, program));
        debug_assert!(
            fault.is_some() || self.as_kept() == program.as_kept(),
            "schemas without a difference are equal"
        );
        fault
    }

    /// Returns a copy of the schema. The copy drops `unique` from each index for which
    /// [`keeps_unique`](Self::keeps_unique) returns false.
    fn as_kept(&self) -> Schema {
        let mut kept = self.clone();
        for index in &mut kept.indexes {
            index.unique &= self.keeps_unique(index);
        }
        kept
    }

    /// Returns whether rows with equal index columns are always in one partition.
    fn keeps_unique(&self, index: &Index) -> bool {
        self.replicated || !self.is_keyless() && index.columns.contains(&Indexed::Key(0))
    }
}

fn options(database: &Schema, program: &Schema) -> Option<String> {
    let yes_or_no = |yes: bool| if yes { "replicated" } else { "not replicated" };
    let options = [
        ("name", database.name.as_str(), program.name.as_str()),
        (
            "addressing",
            database.addressing.name(),
            program.addressing.name(),
        ),
        ("order", database.order.name(), program.order.name()),
        (
            "copies",
            yes_or_no(database.replicated),
            yes_or_no(program.replicated),
        ),
    ];
    let differs = options.into_iter().find(|(_, old, new)| old != new);
    differs.map(|(what, old, new)| both(what, old, new))
}

fn both(what: &str, database: &str, program: &str) -> String {
    format!("{what} is {database} in the database and {program} in the program")
}

fn columns(what: &str, database: &[Column], program: &[Column]) -> Option<String> {
    for at in 0..database.len().max(program.len()) {
        match (database.get(at), program.get(at)) {
            (Some(old), Some(new)) if old.name != new.name => {
                let place = format!("{what} number {}", at + 1);
                return Some(both(&place, &old.name, &new.name));
            }
            (Some(old), Some(new)) if old.kind != new.kind => {
                let place = format!("{what} {}", old.name);
                return Some(both(&place, &old.kind.to_string(), &new.kind.to_string()));
            }
            (Some(old), None) => {
                return Some(format!(
                    "{what} {} ({}) is in the database and not in the program",
                    old.name, old.kind
                ));
            }
            (None, Some(new)) => {
                return Some(format!(
                    "{what} {} ({}) is in the program and not in the database",
                    new.name, new.kind
                ));
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
    None
}

fn indexes(database: &Schema, program: &Schema) -> Option<String> {
    let text = |schema: &Schema, index: &Index| {
        let names = index.columns.iter().map(|at| schema.column_name(*at));
        let names = names.collect::<Vec<_>>().join(", ");
        let is_unique = index.unique && schema.keeps_unique(index);
        let unique = if is_unique { "unique " } else { "" };
        format!("{unique}index {}({names})", index.name)
    };
    for at in 0..database.indexes.len().max(program.indexes.len()) {
        let old = database.indexes.get(at).map(|index| text(database, index));
        let new = program.indexes.get(at).map(|index| text(program, index));
        if old != new {
            let place = format!("index number {}", at + 1);
            let text = |index: Option<String>| index.unwrap_or_else(|| "missing".to_owned());
            return Some(both(&place, &text(old), &text(new)));
        }
    }
    None
}
