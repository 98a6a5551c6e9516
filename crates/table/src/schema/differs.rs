//! What a program declares, against what the catalog has.

use super::{Column, Index, Schema};

impl Schema {
    /// Says in what the schema of a program differs from this one, which is the database's; `None` if
    /// it does not. Names the first column, index or option that differs, and both sides.
    #[must_use]
    pub fn differs(&self, program: &Schema) -> Option<String> {
        let fault = options(self, program)
            .or_else(|| columns("key column", &self.key, &program.key))
            .or_else(|| columns("column", &self.columns, &program.columns))
            .or_else(|| indexes(self, program));
        debug_assert!(
            fault.is_some() || self == program,
            "schemas without a difference are equal"
        );
        fault
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
        let unique = if index.unique { "unique " } else { "" };
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
