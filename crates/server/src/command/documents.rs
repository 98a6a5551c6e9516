//! The answers of COMMAND DOCS (`documents.txt`): each command's group, first version and summary.

use std::collections::HashMap;
use std::sync::LazyLock;

/// The answer for one command.
#[derive(Clone, Copy, Default)]
pub(super) struct Document {
    /// The group of the command.
    pub group: &'static str,
    /// The first version of Redis that had the command.
    pub since: &'static str,
    /// One sentence about the command's effect.
    pub summary: &'static str,
}

static DOCUMENTS: LazyLock<HashMap<&'static str, Document>> = LazyLock::new(read);

fn read() -> HashMap<&'static str, Document> {
    let (mut documents, mut group) = (HashMap::new(), "");
    let body = include_str!("documents.txt").lines();
    for line in body.skip_while(|line| !line.starts_with('@')) {
        if let Some(name) = line.strip_prefix('@') {
            group = name;
        } else if let [name, since, summary] = line.splitn(3, ' ').collect::<Vec<_>>()[..] {
            let document = Document {
                group,
                since,
                summary,
            };
            documents.insert(name, document);
        }
    }
    documents
}

/// Returns the answer for the command of this name.
pub(super) fn of(name: &str) -> Document {
    DOCUMENTS.get(name).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::table::all;

    #[test]
    fn every_command_says_what_it_does_and_nothing_else_is_said() {
        for command in all() {
            let document = of(command.name);
            assert!(document.summary.ends_with('.'), "{}", command.name);
            assert!(!document.group.is_empty(), "{}", command.name);
        }
        assert_eq!(DOCUMENTS.len(), all().count());
    }
}
