//! The pages of trees.

mod pages;

use perdura_base::{Pos, Result};

use super::{Component, Data, KeyContent, Take, Value};
use crate::anchor::Anchor;
use crate::checkpoint::{CheckpointParts, Checkpointer, Phase, Share, Sweep, Taken};
use crate::findings::Findings;
use crate::options::RestartOptions;
use crate::tree::contents::walk;

/// The component of the trees' pages.
pub(super) struct TreePages;

impl Share for TreePages {
    fn step(&self, machine: &mut Checkpointer, sweep: &mut Sweep, _: Phase) -> Result<Taken> {
        machine.write_trees(sweep)
    }

    fn cancel(&self, machine: &mut Checkpointer, _: &mut Sweep) {
        for tree in machine.trees() {
            tree.cancel_checkpoint();
        }
    }

    fn name_in(&self, anchor: &mut Anchor, parts: &CheckpointParts, sweep: &Sweep) {
        assert_eq!(
            sweep.redo_starts.len(),
            parts.trees.len(),
            "checkpoint {} is named before the trees' part of it has ended",
            sweep.k
        );
        for (tree, rssp) in parts.trees.iter().zip(&sweep.redo_starts) {
            anchor.tree = Some(tree.named(*rssp, sweep.k));
        }
    }

    fn needs(&self, parts: &CheckpointParts) -> Vec<Option<Pos>> {
        let mut needs = Vec::new();
        for tree in &parts.trees {
            needs.extend(tree.needs());
        }
        needs
    }
}

impl Component for TreePages {
    fn check_disk(&self, options: &RestartOptions, anchor: &Anchor, found: &mut Findings) {
        for named in anchor.tree.iter() {
            pages::check_pages(options, anchor, named, found);
        }
    }

    fn check_data(&self, data: &Data<'_>, found: &mut Findings) -> Result<()> {
        let mut trees = data.trees.iter();
        trees.try_for_each(|tree| pages::check_tree(tree, data.eosl, found))
    }

    fn contents(&self, data: &Data<'_>, take: &mut Take<'_>) -> Result<()> {
        for tree in &data.trees {
            for table in tree.tables() {
                let mut taken = Ok(());
                walk(tree, table, data.eosl, &mut |key, value| {
                    if taken.is_ok() {
                        let content = KeyContent {
                            key: key.into(),
                            expiry_ms: None,
                            value: Some(Value::Row(value)),
                        };
                        taken = take(table, content);
                    }
                })?;
                taken?;
            }
        }
        Ok(())
    }
}
