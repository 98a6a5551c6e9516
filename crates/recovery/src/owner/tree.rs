//! The owner of operations on a tree. It redoes the operations on the tree's pages on disk, after all other owners have
//! played their frames.

use perdura_base::num::to_u64;
use perdura_base::{Error, Gsn, Result};
use perdura_formats::operation;
use perdura_formats::tree_record::TreeRecord;
use perdura_wal::{Frame, FrameKind};

use super::{FrameCounts, Open, Owner, RestartRun};
use crate::anchor::Anchor;
use crate::claims::Claims;
use crate::dump::{self, FrameDump};
use crate::level::Level;
use crate::method::{Method, Methods};
use crate::options::RestartMode;
use crate::player::{FrameOwner, Player};
use crate::tree::{Part, RestartedTree, settle};

/// The owner of operations on a tree.
pub(super) struct Trees;

impl Owner for Trees {
    fn name(&self) -> &'static str {
        "tree"
    }

    fn claims(&self, anchor: &Anchor) -> Claims {
        match anchor.tree {
            None => Claims::default(),
            Some(_) => Claims::default()
                .with(FrameKind::Operations)
                .with(FrameKind::Tree),
        }
    }

    fn writes_in_place(&self, anchor: &Anchor) -> bool {
        anchor.tree.is_some()
    }

    fn method<'a>(&self, methods: &'a Methods, anchor: &Anchor) -> Option<&'a Method> {
        let tree = anchor.tree?;
        let given = methods.given(FrameOwner::Tree);
        Some(given.unwrap_or(Method::of(tree.scheme)))
    }

    fn fits(&self, methods: &Methods, anchor: &Anchor, level: Level) -> Result<(), String> {
        let scheme = anchor.tree.map_or(anchor.scheme, |tree| tree.scheme);
        let given = methods.given(FrameOwner::Tree);
        given.map_or(Ok(()), |method| method.check(scheme, level))
    }

    fn check(&self, restart: &RestartRun<'_>) -> Result<()> {
        let options = restart.options;
        match (restart.anchor.tree, options.mode) {
            (None, _) => Ok(()),
            (Some(_), RestartMode::Salvage) => Err(Error::Usage(String::from(
                "`perdura repair` cannot repair a database with a tree: its rows are only in \
                 tree/pages. Nothing was changed. `perdura verify` lists the damage. Restore the \
                 directory from a copy",
            ))),
            (Some(_), RestartMode::Real | RestartMode::OnDemand | RestartMode::Dry) => {
                options.tree.check()
            }
        }
    }

    fn parses(&self, frame: Frame<'_>, counts: &mut FrameCounts) -> Option<bool> {
        match frame.kind {
            FrameKind::Operations => {
                let decoded = operation::decode(frame.payload);
                Some(decoded.is_ok_and(|operations| {
                    let rows = operations.acts.iter();
                    let rows = rows.filter(|(_, act)| act.row().is_some());
                    counts.records += to_u64(rows.count());
                    true
                }))
            }
            FrameKind::Tree => Some(TreeRecord::decode(frame.payload).is_ok()),
            _ => None,
        }
    }

    fn dump(&self, frame: Frame<'_>) -> Option<FrameDump> {
        let line = match frame.kind {
            FrameKind::Operations => dump::operations(frame.payload),
            FrameKind::Tree => dump::tree(frame.payload),
            _ => return None,
        };
        Some(FrameDump::line(line))
    }

    fn redo(&self, restart: &mut RestartRun<'_>) -> Result<()> {
        let Some(tree) = restart.anchor.tree else {
            return Ok(());
        };
        let method = self.method(&restart.options.methods, restart.anchor);
        let Some(Player::Tree(play)) = method.map(|method| method.player) else {
            unreachable!("a tree has a method");
        };
        let part = Part {
            options: restart.options,
            anchor: restart.anchor,
            tree,
            log: &restart.loaded().log,
            play,
        };
        let (restarted, did) = part.run()?;
        restart.tree = Some(restarted);
        restart.report.tree = Some(did);
        Ok(())
    }

    fn settle(&self, open: &mut Open<'_>) -> Result<u64> {
        let losers = std::mem::take(&mut open.losers);
        let mut trees = open.trees.iter();
        trees
            .next()
            .map_or(Ok(0), |live| settle::settle(live, losers))
    }

    fn settle_in_memory(&self, tree: &mut Option<RestartedTree>, last: Gsn) -> Result<u64> {
        let Some(found) = tree else {
            return Ok(0);
        };
        let losers = std::mem::take(&mut found.losers);
        settle::settle_in_memory(&found.tree, losers, last)
    }
}
