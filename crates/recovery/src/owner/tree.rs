//! The owner of operations on a tree: redoes them on pages on disk, behind the other owners.

use perdura_base::{Error, Result};
use perdura_wal::FrameKind;

use super::{Owner, RestartRun};
use crate::anchor::Anchor;
use crate::claims::Claims;
use crate::options::RestartMode;
use crate::player::{Player, TreePlay};
use crate::sections::tree::TreeAnchor;
use crate::tree::{Part, TreeMeans};

/// The owner.
pub(super) struct Trees;

impl Owner for Trees {
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

    fn check(&self, restart: &RestartRun<'_>) -> Result<()> {
        given(restart).map(drop)
    }

    fn redo(&self, restart: &mut RestartRun<'_>) -> Result<()> {
        let Some((tree, means, play)) = given(restart)? else {
            return Ok(());
        };
        let part = Part {
            options: restart.options,
            means,
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
}

/// Returns what restarts the database's tree; `None` if it has none.
fn given<'a>(restart: &RestartRun<'a>) -> Result<Option<(TreeAnchor, &'a TreeMeans, TreePlay)>> {
    let Some(named) = restart.anchor.tree else {
        return Ok(None);
    };
    if restart.options.mode == RestartMode::Salvage {
        return Err(Error::Usage(String::from(
            "the database has a tree, of which nothing can be salvaged yet",
        )));
    }
    let means = restart.means.ok_or_else(|| {
        Error::Usage(String::from(
            "the database has a tree, and this program gives it no pages in memory; `perdura restart` brings it back",
        ))
    })?;
    match restart.options.method.player {
        Player::Tree(play) => Ok(Some((named, means, play))),
        Player::Pages(_) | Player::Ordered => Err(Error::Usage(format!(
            "method {} restarts no tree",
            restart.options.method.name
        ))),
    }
}
