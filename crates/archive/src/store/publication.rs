//! A change of the archive. It writes the next manifest, one I/O a step.
//!
//! The edit is applied to the newest known manifest, and the result is published under the next number. If another
//! writer has published a manifest with this number, this writer reads the other manifest and applies the edit to it.
//! Files that are no longer part of the archive are removed only when the new manifest is durable. So after a crash all
//! files of the newest manifest exist, whether that is the old or the new manifest.

use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::to_u64;
use perdura_base::{Error, Result};
use perdura_device::{Access, File};

use super::{KEPT, Store, chain};
use crate::manifest::{Edit, Manifest};
use crate::output::Progress;

/// The result of a change that is durable.
#[derive(Debug)]
pub struct Published {
    /// The number of the manifest that contains the change.
    pub number: u64,
    /// The errors of removing files that are no longer part of the archive. These files still exist. The next opening
    /// removes them.
    pub left: Vec<Error>,
}

/// A manifest that is being written.
struct Draft {
    manifest: Manifest,
    crc: u32,
    bytes: Vec<u8>,
    temporary: String,
    file: Option<Arc<dyn File>>,
    /// The files to remove when this manifest is durable: the objects that it no longer names, and manifests that are
    /// too old to keep.
    goes: Vec<String>,
}

enum Stage {
    Apply,
    Create(Draft),
    Write(Draft),
    Sync(Draft),
    Publish(Draft),
    SyncDir(Draft),
    Remove(Draft),
    /// The publication is done, or has failed.
    Over,
}

/// A change in progress.
pub struct Publication {
    store: Arc<Store>,
    edit: Edit,
    stage: Stage,
    left: Vec<Error>,
}

/// Fails if the database that changes the archive does not have the archive's history. Its anchor is in the next
/// manifest.
fn check_history(store: &Store, before: &Manifest, next: &Manifest) -> Result<()> {
    match (next.database_lineage(), before.lineage()) {
        (Ok(database), Ok(archived)) => store.check_manifest(&database, before, &archived),
        // Without an anchor that can be read, the history is unknown.
        (Err(_), _) | (_, Err(_)) => Ok(()),
    }
}

impl Publication {
    pub(super) fn new(store: Arc<Store>, edit: Edit) -> Publication {
        Publication {
            store,
            edit,
            stage: Stage::Apply,
            left: Vec::new(),
        }
    }

    /// Makes the next I/O, or reads the manifest of another writer.
    ///
    /// # Errors
    /// [`Error::Usage`] if the archive does not permit the change now; [`Error::ArchiveTaken`]; errors of the disk.
    /// After an error the change is not made, with one exception: the disk failed between the publication of the
    /// manifest and the sync of the folder. Then only the next opening shows whether the change was made, and this
    /// store makes no more changes.
    pub fn step(&mut self) -> Result<Progress<Published>> {
        let stage = std::mem::replace(&mut self.stage, Stage::Over);
        self.stage = match stage {
            Stage::Apply => self.remove_early(self.draft()?),
            Stage::Create(mut draft) => {
                let disk = &self.store.disk;
                draft.file = Some(disk.create(&draft.temporary, Access::Buffered)?);
                Stage::Write(draft)
            }
            Stage::Write(draft) => {
                let file = draft.file.as_ref().expect("the file was created");
                let written = file.write_at(0, &draft.bytes);
                self.or_remove(&draft, written)?;
                Stage::Sync(draft)
            }
            Stage::Sync(draft) => {
                let synced = draft.file.as_ref().expect("the file was created").sync();
                self.or_remove(&draft, synced)?;
                Stage::Publish(draft)
            }
            Stage::Publish(draft) => self.publish(draft)?,
            Stage::SyncDir(draft) => {
                let synced = self.store.disk.sync_dir(&self.store.dir);
                self.store.latch(synced)?;
                self.store.set_newest(&draft.manifest, draft.crc);
                Stage::Remove(draft)
            }
            Stage::Remove(mut draft) => {
                if let Some(path) = draft.goes.pop() {
                    self.remove(&path);
                }
                if draft.goes.is_empty() {
                    return Ok(Progress::Done(Published {
                        number: draft.manifest.number,
                        left: std::mem::take(&mut self.left),
                    }));
                }
                Stage::Remove(draft)
            }
            Stage::Over => return Err(Error::Stopped("the publication has ended".into())),
        };
        Ok(Progress::More)
    }

    /// Takes all steps to the end.
    ///
    /// # Errors
    /// Those of [`step`](Self::step).
    pub fn run(mut self) -> Result<Published> {
        loop {
            if let Progress::Done(published) = self.step()? {
                return Ok(published);
            }
        }
    }

    fn draft(&self) -> Result<Draft> {
        let store = &self.store;
        let writer = store.may_write()?;
        let (before, predecessor, number) = store.base();
        let mut manifest = Manifest::clone(&before);
        self.edit.apply(&mut manifest)?;
        manifest.number = number;
        manifest.writer = writer;
        // A damaged manifest between them has no checksum.
        manifest.predecessor = match manifest.number - before.number {
            1 => predecessor,
            _ => 0,
        };
        let anchor = store.anchor.lock();
        if !anchor.is_empty() {
            manifest.anchor.clone_from(&anchor);
            check_history(&self.store, &before, &manifest)?;
        }
        drop(anchor);
        manifest.oldest = before.oldest.max(manifest.number.saturating_sub(KEPT - 1));
        let bytes = manifest.encode();
        let is_out = |id| manifest.object(id).is_none();
        let gone = before.objects.iter().filter(|object| is_out(object.id));
        let mut goes: Vec<String> = gone.map(|object| store.path(&object.id.path())).collect();
        goes.extend((before.oldest..manifest.oldest).map(|n| store.path(&chain::name(n))));
        debug_assert!(
            manifest.begin <= manifest.end && before.begin <= manifest.begin,
            "an archive grows at its end and shrinks at its begin"
        );
        Ok(Draft {
            crc: Manifest::decode("", &bytes, manifest.number, &manifest.uuid)?.1,
            temporary: store.temporary(manifest.number, writer),
            manifest,
            bytes,
            file: None,
            goes,
        })
    }

    fn remove_early(&mut self, draft: Draft) -> Stage {
        if armed(Flaw::InputsRemovedBeforeManifest) {
            draft.goes.iter().for_each(|path| self.remove(path));
        }
        Stage::Create(draft)
    }

    fn publish(&mut self, draft: Draft) -> Result<Stage> {
        let store = Arc::clone(&self.store);
        let path = store.path(&chain::name(draft.manifest.number));
        match store.disk.publish(&draft.temporary, &path) {
            Ok(()) => {
                let overtaken = self.is_overtaken(&draft);
                if *overtaken.as_ref().unwrap_or(&false) {
                    self.remove(&path);
                    return Ok(Stage::Apply);
                }
                store.latch(overtaken.map(drop))?;
                Ok(Stage::SyncDir(draft))
            }
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::AlreadyExists => {
                self.remove(&draft.temporary);
                // Another thread of this process may have read the other writer's manifest already.
                let newest = store.refresh()?.number;
                assert!(
                    newest >= draft.manifest.number,
                    "the manifest that was there has been read"
                );
                Ok(Stage::Apply)
            }
            Err(error) => {
                store.latch(Err(error))?;
                Ok(Stage::Over)
            }
        }
    }

    /// Returns whether the published draft is older than all kept manifests, so that no manifest follows it. The cause
    /// is another manifest with the draft's number, which was published earlier and removed as too old. Its removal
    /// freed the number.
    fn is_overtaken(&self, draft: &Draft) -> Result<bool> {
        let store = &self.store;
        let number = draft.manifest.number;
        let highest = chain::numbers(store.disk.as_ref(), &store.dir)?.pop();
        debug_assert!(highest >= Some(number), "it was published");
        Ok(highest > Some(number) && store.refresh()?.oldest > number)
    }

    /// Returns `written`. If it is an error, removes the draft's file, so that the files of failed drafts do not fill
    /// the disk.
    fn or_remove(&mut self, draft: &Draft, written: Result<()>) -> Result<()> {
        if written.is_err() {
            self.remove(&draft.temporary);
        }
        written
    }

    /// Removes a file that is not part of the archive. If that fails, adds the error to `left`.
    fn remove(&mut self, path: &str) {
        match self.store.disk.remove(path) {
            Err(error) if !error.is_not_found() => self.left.push(error),
            _ => debug_assert!(to_u64(path.len()) > 0, "a file has a path"),
        }
    }
}
