//! Opening an archive, and making a new one.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use perdura_base::{Epoch, Error, Pos, Result, Uuid};
use perdura_device::Disk;
use perdura_page::RegionDigest;
use perdura_wal::Parent;

use super::chain::{self, Newest};
use super::history::lives_of;
use super::mend::{Files, Lost};
use super::restart::{self, Duty, Plan};
use super::verify::{check_size, file_crc};
use super::{Known, Store};
use crate::manifest::object::{BACKUPS, RUNS};
use crate::manifest::{
    Clock, Edit, FIRST, Manifest, Object, ObjectId, Role, Writer, damage, object_damage,
};
use crate::merge::Images;
use crate::name::{RunId, TEMPORARY};

/// The contents of a new archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Creation {
    /// The database.
    pub uuid: Uuid,
    /// A random number. It identifies the process that has the database open and makes the archive.
    pub life: u64,
    /// The first epoch that will be archived.
    pub begin: Epoch,
    /// For each stream of the log, the position where the epoch before `begin` ends.
    pub positions: Vec<Pos>,
    /// The database's images.
    pub images: Images,
    /// The parent: this database was restored from the parent.
    pub parent: Option<Parent>,
    /// True if the database was empty before epoch `begin`, and has no image and no parent.
    pub is_whole: bool,
    /// The database's anchor, encoded.
    pub anchor: Vec<u8>,
}

/// The images and the anchor of a database that opens its archive.
#[derive(Debug, Clone, Copy)]
pub struct Own<'a> {
    /// The database's images.
    pub images: &'a Images,
    /// The database's anchor, encoded.
    pub anchor: &'a [u8],
}

/// The changes that the opening of an archive made, and the damage that it found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opened {
    /// The runs that this opening added to the archive. No manifest named them, but they continue the archive.
    pub adopted: Vec<RunId>,
    /// The files that were removed.
    pub removed: Vec<String>,
    /// The damaged manifests that are newer than the one that was used, and the objects that are missing or have the
    /// wrong size. Each has a description. No restore can use a damaged object.
    pub damaged: Vec<String>,
}

/// The exclusive right to merge, or to make backups. It ends when this value is dropped.
pub struct Lease {
    /// The files that an earlier holder of the right had left. They have been removed.
    pub removed: Vec<String>,
    _lock: Box<dyn Any + Send + Sync>,
}

/// A writer that opens an archive, and the lock of its role.
pub(super) struct Opening {
    pub(super) writer: Writer,
    pub(super) lock: RoleLock,
    /// The treatment of missing runs.
    pub(super) lost: Lost,
}

/// A lock that is released when this value is dropped.
pub(super) type RoleLock = Box<dyn Any + Send + Sync>;

/// Returns the name of a database's folder.
pub(crate) fn folder(uuid: &Uuid) -> String {
    uuid.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Lists the databases that have an archive on the disk.
///
/// # Errors
/// Errors of the disk.
pub fn list_archives(disk: &dyn Disk) -> Result<Vec<Uuid>> {
    let mut found = Vec::new();
    for name in disk.list("")? {
        let mut uuid = Uuid::default();
        let digits = name.as_bytes();
        if digits.len() != 2 * uuid.0.len() {
            continue;
        }
        for (byte, two) in uuid.0.iter_mut().zip(digits.chunks(2)) {
            let text = std::str::from_utf8(two).unwrap_or_default();
            *byte = u8::from_str_radix(text, 16).unwrap_or_default();
        }
        if folder(&uuid) != name {
            continue;
        }
        match chain::numbers(disk, &name) {
            Ok(numbers) if !numbers.is_empty() || has_runs(disk, &name)? => found.push(uuid),
            Err(error) if !error.is_of_another_kind() => return Err(error),
            _ => {}
        }
    }
    Ok(found)
}

/// Takes lock `name` of an archive. If another process holds the lock, the error names the lock.
pub(super) fn lock(disk: &dyn Disk, dir: &str, name: &str) -> Result<RoleLock> {
    let path = format!("{dir}/{name}.lock");
    disk.lock(&path).map_err(|error| match error {
        Error::Locked { dir: root } => Error::Locked {
            dir: format!("{path} of the archive {root}"),
        },
        other => other,
    })
}

fn temporary_prefix(role: Role) -> String {
    format!("-{}-", role.name())
}

/// Returns the name of a manifest's temporary file.
pub(super) fn temporary_name(number: u64, writer: Writer, counter: u64) -> String {
    let Writer { role, life } = writer;
    let (name, role) = (chain::name(number), temporary_prefix(role));
    format!("{name}{role}{life:016x}-{counter}{TEMPORARY}")
}

impl Store {
    fn new(disk: Arc<dyn Disk>, newest: &Newest, writer: Option<Writer>) -> Store {
        let (uuid, highest) = (newest.manifest.uuid, newest.highest());
        Store {
            disk,
            uuid,
            dir: folder(&uuid),
            writer,
            known: Mutex::new(Known {
                manifest: Arc::new(newest.manifest.clone()),
                crc: newest.crc,
                highest,
                stopped: None,
            }),
            temporaries: AtomicU64::new(0),
            anchor: Mutex::default(),
            _lock: None,
        }
    }

    /// Makes an archive for a database that has none on this disk.
    ///
    /// # Errors
    /// [`Error::Usage`] if the database has an archive; [`Error::Locked`] while a second process makes an archive;
    /// errors of the disk.
    pub fn create(disk: Arc<dyn Disk>, creation: Creation) -> Result<Arc<Store>> {
        let dir = folder(&creation.uuid);
        for folder in [RUNS, BACKUPS] {
            disk.make_dir(&format!("{dir}/{folder}"))?;
        }
        disk.sync_dir("")?;
        let lock = lock(disk.as_ref(), &dir, Role::Database.name())?;
        disk.sync_dir(&dir)?;
        let has_files = |name: &str| disk.list(&format!("{dir}/{name}")).map(|l| !l.is_empty());
        if !chain::numbers(disk.as_ref(), &dir)?.is_empty()
            || has_files(RUNS)?
            || has_files(BACKUPS)?
        {
            return Err(Error::Usage(format!(
                "{dir} on {} is the archive of this database already, or the rest of it. Open \
                 it, or give another directory",
                disk.name()
            )));
        }
        let mut images = creation.images;
        images.retained.sort_unstable();
        images.retained.dedup();
        let writer = Writer {
            role: Role::Database,
            life: creation.life,
        };
        // The first manifest is published like every later one: as an edit of the manifest before it. `before` is in no
        // file.
        let before = Manifest {
            number: FIRST - 1,
            uuid: creation.uuid,
            writer,
            oldest: FIRST,
            predecessor: 0,
            parent: creation.parent,
            is_whole: creation.is_whole,
            begin: creation.begin,
            end: creation.begin,
            positions: creation.positions,
            images,
            objects: Vec::new(),
            anchor: creation.anchor,
            clock: Clock::default(),
        };
        let mut store = Store::new(disk, &Newest::of_none(before), Some(writer));
        store._lock = Some(lock);
        let store = Arc::new(store);
        store.clean_manifests(&mut Vec::new())?;
        store.publish(Edit::Open).run()?;
        assert_eq!(store.manifest().number, FIRST, "the archive has begun");
        Ok(store)
    }

    /// Opens the archive of a database for reading. Changes nothing and takes no lock. Checks no object, because a
    /// restore checks the few objects that it needs. If the newest manifest is damaged or missing, the files show what an
    /// older one cannot know.
    ///
    /// # Errors
    /// [`Error::Usage`] if the database has no archive; [`Error::Corrupt`], [`Error::Version`]; errors of the disk.
    pub fn read_only(disk: Arc<dyn Disk>, uuid: &Uuid) -> Result<Arc<Store>> {
        let newest = newest_of(disk.as_ref(), uuid)?;
        let store = Store::new(Arc::clone(&disk), &newest, None);
        let newest = as_files_show(&store, newest)?;
        Ok(Arc::new(Store::new(disk, &newest, None)))
    }

    /// Opens the archive of a database for writing. Publishes a manifest of `writer`. Removes the manifests that a
    /// crash has left. In the role [`Role::Database`], also mends an archive whose newest manifest is damaged or missing,
    /// and adopts or removes the runs that a crash has left. `own` has the database's images and anchor; `None` for an
    /// agent.
    ///
    /// # Errors
    /// [`Error::Locked`] while a second process has the role; [`Error::Usage`] for a database without an archive.
    /// [`Error::Corrupt`] for runs that leave a gap or partly overlap, and for an agent if the newest manifest is damaged.
    /// These errors leave the archive unchanged. Errors of the disk may leave it changed.
    pub fn open(
        disk: Arc<dyn Disk>,
        uuid: &Uuid,
        writer: Writer,
        own: Option<Own<'_>>,
    ) -> Result<(Arc<Store>, Opened)> {
        newest_of(disk.as_ref(), uuid)?;
        let lock = lock(disk.as_ref(), &folder(uuid), writer.role.name())?;
        let newest = newest_of(disk.as_ref(), uuid)?;
        let opening = Opening {
            writer,
            lock,
            lost: Lost::Stays,
        };
        Store::open_by(disk, newest, opening, own)
    }

    /// Opens an archive by its newest manifest. The caller holds the lock of the role.
    pub(super) fn open_by(
        disk: Arc<dyn Disk>,
        newest: Newest,
        opening: Opening,
        own: Option<Own<'_>>,
    ) -> Result<(Arc<Store>, Opened)> {
        let Opening { writer, lock, lost } = opening;
        assert!(
            newest.manifest.begin <= newest.manifest.end,
            "it was decoded"
        );
        let leftovers: Vec<u64> = newest.leftovers().collect();
        let mut store = Store::new(disk, &newest, Some(writer));
        store._lock = Some(lock);
        let store = Arc::new(store);
        let mut opened = Opened {
            damaged: store.mended(newest, lost)?,
            ..Opened::default()
        };
        let (plan, damaged) = store.found()?;
        opened.damaged.extend(damaged);
        if let Some(own) = own {
            let lives = lives_of(&store.manifest(), own.anchor)?;
            store.check_runs(&lives, &plan.adopt)?;
        }
        // A killed process may have published the newest manifest without making it durable. Our next manifest follows
        // it.
        store.make_durable()?;
        store.note_anchor(own.map_or_else(Vec::new, |own| own.anchor.to_vec()));
        store
            .publish(match own {
                Some(own) => Edit::Images(own.images.clone()),
                None => Edit::Open,
            })
            .run()?;
        store.clean_manifests(&mut opened.removed)?;
        for number in leftovers {
            store.remove_leftover(&chain::name(number), &mut opened.removed)?;
        }
        if writer.role == Role::Database {
            store.adopt(&plan.adopt, &mut opened)?;
            store.clean(&plan, Duty::Archiving, &mut opened.removed)?;
        }
        Ok((store, opened))
    }

    /// Publishes the manifest that the files show, if the newest one is damaged or missing. Returns the damage.
    fn mended(self: &Arc<Store>, newest: Newest, lost: Lost) -> Result<Vec<String>> {
        let files = Files::list(self.disk.as_ref(), &self.dir)?;
        let mended = self.mend(&newest, &files, lost)?;
        let mut damaged = newest.damaged;
        if let Some(mended) = &mended {
            damaged.extend(self.lost_at_start(&newest.manifest, mended));
        }
        let role = self.may_write()?.role;
        if role == Role::Agent && (mended.is_some() || !damaged.is_empty()) {
            // An agent does not know the database's newest images, and a merge must not combine records across one.
            return Err(damaged.drain(..).next().unwrap_or_else(|| {
                let path = self.path(&chain::name(newest.manifest.number + 1));
                damage(
                    &path,
                    0,
                    "the manifest of the files in the archive",
                    "no file",
                )
            }));
        }
        let edit = match mended {
            Some(mended) => Edit::Mend(Box::new(mended)),
            None if damaged.is_empty() => return Ok(Vec::new()),
            // From now on, the newest manifest is undamaged.
            None => Edit::Open,
        };
        self.make_durable()?;
        for folder in [self.runs_dir(), self.backups_dir()] {
            self.disk.sync_dir(&folder)?;
        }
        self.publish(edit).run()?;
        Ok(damaged.iter().map(ToString::to_string).collect())
    }

    /// Returns the damage of the first runs of a manifest, which are missing and which the mended manifest leaves out.
    fn lost_at_start(&self, before: &Manifest, mended: &Manifest) -> Vec<Error> {
        let gone = before
            .runs()
            .take_while(|run| run.epochs.end <= mended.begin);
        let path = |run: RunId| self.path(&run.path(RUNS));
        gone.map(|run| object_damage(&path(run), 0, "a run of the manifest", "no file"))
            .collect()
    }

    /// Takes the right to merge. Removes the files that an earlier holder of this right has left.
    ///
    /// # Errors
    /// [`Error::Locked`] if a second process has the right; [`Error::Corrupt`] as in [`open`](Self::open); errors of
    /// the disk.
    pub fn lease_merging(&self) -> Result<Lease> {
        self.may_write()?;
        self.lease(
            lock(self.disk.as_ref(), &self.dir, "merging")?,
            Duty::Merging,
        )
    }

    /// Takes the right to make backups. Adds the whole backups that an earlier holder of this right has left without a
    /// manifest that names them. Removes its other files.
    ///
    /// # Errors
    /// Those of [`lease_merging`](Self::lease_merging).
    pub fn lease_backups(self: &Arc<Store>) -> Result<Lease> {
        self.may_write()?;
        let held = lock(self.disk.as_ref(), &self.dir, "backups")?;
        let manifest = self.refresh()?;
        let files = Files::list(self.disk.as_ref(), &self.dir)?;
        // A run that no manifest names may not be durable, so a backup that needs it cannot join.
        let unnamed = self.backups_before(manifest.end, &manifest, &files)?;
        if !unnamed.is_empty() {
            // A killed process may have published these backups without syncing the folder.
            self.disk.sync_dir(&self.backups_dir())?;
        }
        for backup in unnamed {
            let edit = match backup.id {
                ObjectId::Cut(id) => Edit::AddCut {
                    cut: backup,
                    within: manifest.run_around(id.end),
                },
                ObjectId::Increment(id) => match self.open_increment(id)?.header().continues() {
                    Some(base) => Edit::AddIncrement {
                        increment: backup,
                        base,
                    },
                    None => continue,
                },
                ObjectId::Sweep(_) | ObjectId::Run(_) => Edit::AddBackup(backup),
            };
            match self.publish(edit).run() {
                // A merge has combined the records around it. It is removed below.
                Err(Error::Usage(_)) => {}
                published => drop(published?),
            }
        }
        self.lease(held, Duty::BackingUp)
    }

    fn lease(&self, lock: RoleLock, duty: Duty) -> Result<Lease> {
        assert_ne!(duty, Duty::Any, "a lease is for one kind of work");
        let (plan, _) = self.found()?;
        let mut removed = Vec::new();
        self.clean(&plan, duty, &mut removed)?;
        Ok(Lease {
            removed,
            _lock: lock,
        })
    }

    /// Compares the files of the archive with the newest manifest. Returns the treatment of the files, and a
    /// description of each object that is missing or has the wrong size.
    fn found(&self) -> Result<(Plan, Vec<String>)> {
        loop {
            let manifest = self.refresh()?;
            let list = |folder: &str| self.disk.list(&self.path(folder));
            let plan = list(RUNS)
                .and_then(|runs| Ok((runs, list(BACKUPS)?)))
                .and_then(|(runs, backups)| restart::plan(&manifest, &self.dir, &runs, &backups))
                .and_then(|plan| {
                    let damaged = self.check_sizes(&manifest, &plan)?;
                    Ok((plan, damaged))
                });
            // Another writer may have removed files from the archive after the manifest was read.
            let is_certain = matches!(&plan, Ok((_, damaged)) if damaged.is_empty());
            if is_certain || self.refresh()?.number == manifest.number {
                return plan;
            }
        }
    }

    /// Checks the sizes of all objects. Returns a description of each object that is missing or has the wrong size.
    fn check_sizes(&self, manifest: &Manifest, plan: &Plan) -> Result<Vec<String>> {
        let mut damaged = Vec::new();
        for object in &manifest.objects {
            if plan.lost.contains(&object.id) {
                let path = self.path(&object.id.path());
                let expected = format!("{} bytes, as the manifest says", object.bytes);
                damaged.push(object_damage(&path, 0, expected, "no file").to_string());
                continue;
            }
            match check_size(self, object) {
                Err(error @ Error::Corrupt(_)) => damaged.push(error.to_string()),
                checked => checked?,
            }
        }
        debug_assert!(
            damaged.len() >= plan.lost.len(),
            "each lost object is named"
        );
        Ok(damaged)
    }

    /// Adds `runs`, which continue the archive, to the archive. Stops at the first damaged run, and removes this run
    /// and all runs after it.
    fn adopt(self: &Arc<Store>, runs: &[RunId], opened: &mut Opened) -> Result<()> {
        let region = RegionDigest::new();
        let mut is_whole = true;
        if !runs.is_empty() {
            // A killed process may have published these runs without syncing the folder.
            self.disk.sync_dir(&self.runs_dir())?;
        }
        for id in runs {
            is_whole = is_whole && self.adopt_one(*id, &region)?;
            if is_whole {
                opened.adopted.push(*id);
            } else {
                // The run can be removed: the log was cut at most up to the end of the manifest's runs, so it still has
                // these epochs.
                self.remove_leftover(&id.path(RUNS), &mut opened.removed)?;
            }
        }
        Ok(())
    }

    fn adopt_one(self: &Arc<Store>, id: RunId, region: &RegionDigest) -> Result<bool> {
        let object = ObjectId::Run(id);
        let whole = self.open_run(id).and_then(|run| {
            run.verify(region)?;
            let crc = file_crc(self.disk.as_ref(), &self.path(&object.path()), run.bytes())?;
            Ok((run, crc))
        });
        let (run, crc) = match whole {
            Err(Error::Corrupt(_)) => return Ok(false),
            whole => whole?,
        };
        let edit = Edit::AddRun {
            run: Object {
                id: object,
                bytes: run.bytes(),
                crc,
            },
            ends: run.ends().to_vec(),
            images: None,
            moments: run.moments().clone(),
        };
        self.publish(edit).run()?;
        Ok(true)
    }

    /// Removes the temporary manifests of this store's role. No other process uses these manifests, because the store
    /// holds the lock of the role.
    fn clean_manifests(&self, removed: &mut Vec<String>) -> Result<()> {
        let own = temporary_prefix(self.may_write()?.role);
        for name in self.disk.list(&self.dir)? {
            let is_own = name.starts_with("manifest-") && name.contains(&own);
            if is_own && name.ends_with(TEMPORARY) {
                self.remove_leftover(&name, removed)?;
            }
        }
        Ok(())
    }

    fn clean(&self, plan: &Plan, duty: Duty, removed: &mut Vec<String>) -> Result<()> {
        let own = plan
            .remove
            .iter()
            .filter(|(by, _)| [duty, Duty::Any].contains(by));
        let own: Vec<&String> = own.map(|(_, path)| path).collect();
        if !own.is_empty() {
            // Another writer may have published the manifest without these files, but not yet made it durable.
            self.disk.sync_dir(&self.dir)?;
        }
        for path in own {
            self.remove_leftover(path, removed)?;
        }
        Ok(())
    }

    fn remove_leftover(&self, name: &str, removed: &mut Vec<String>) -> Result<()> {
        match self.disk.remove(&self.path(name)) {
            Err(error) if error.is_not_found() => {}
            done => {
                done?;
                removed.push(name.to_owned());
            }
        }
        Ok(())
    }
}

/// Returns `newest` with the manifest that the files of the archive show.
pub(super) fn as_files_show(store: &Store, mut newest: Newest) -> Result<Newest> {
    loop {
        let files = Files::list(store.disk.as_ref(), &store.dir)?;
        let mended = store.mend(&newest, &files, Lost::Stays);
        if let Ok(None) = mended {
            // A newer manifest that is missing may have named these.
            let others = store.unnamed_backups(&newest.manifest, &files)?;
            newest.manifest.objects.extend(others);
            newest
                .manifest
                .objects
                .sort_unstable_by_key(|object| object.id);
            return Ok(newest);
        }
        // A writer may have removed files from the archive after the manifest was read.
        let again = newest_of(store.disk.as_ref(), &store.uuid)?;
        if again.numbers == newest.numbers {
            if let Some(mended) = mended? {
                newest.manifest = mended;
            }
            return Ok(newest);
        }
        newest = again;
    }
}

/// Reads the newest undamaged manifest of a database's archive.
fn newest_of(disk: &dyn Disk, uuid: &Uuid) -> Result<Newest> {
    let dir = folder(uuid);
    let none = || {
        let name = disk.name();
        Error::Usage(format!("{name} has no archive of database {uuid}"))
    };
    match chain::newest(disk, &dir, uuid) {
        Err(error) if error.is_not_found() => Err(none()),
        Ok(None) if has_runs(disk, &dir)? => {
            let path = format!("{dir}/{}", chain::name(FIRST));
            Err(damage(
                &path,
                0,
                "a manifest of the runs that are there",
                "none",
            ))
        }
        found => found?.ok_or_else(none),
    }
}

fn has_runs(disk: &dyn Disk, dir: &str) -> Result<bool> {
    match disk.list(&format!("{dir}/{RUNS}")) {
        Err(error) if error.is_not_found() => Ok(false),
        names => Ok(names?.iter().any(|name| RunId::parse(name).is_some())),
    }
}
