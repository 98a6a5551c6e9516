//! The common parts of all worlds that run the product's engine. Each world opens the engine on simulated disks. After
//! a restart the world compares the engine with a model, and with the results of other restarts.

use std::sync::Arc;

use fastrand::Rng;
use perdura::catalog::CatalogRows;
use perdura::yardstick::Yardstick;
use perdura::{Core, CoreOptions, Env, Error};
use perdura_base::limits::PAGE_BYTES;
use perdura_base::num::{to_u64, to_usize};
use perdura_base::{ImageSlot, PartitionId};
use perdura_device::{Clock, Disk, SimDisk};
use perdura_page::digest::bound;
use perdura_recovery::image::{ImageFile, PageSummer, Places, read_directory};
use perdura_recovery::player::PagePlayer;
use perdura_recovery::{
    Anchor, Disks, Level, METHODS, Method, Methods, Player, RestartOptions, Schedule, Tail,
    read_anchor, restart, writes_in_place,
};
use perdura_wal::{Direction, Rung, Scheme};

use crate::cluster::Cluster;
use crate::machine::{Machine, copies_of, engine, keep_locked};
use crate::on_demand::OnDemand;
use crate::other_image::OtherImage;
use crate::report::Check;
use crate::restarted::{check_void, refused, started};
use crate::swarm::{draw_schedule, pick};

/// A variant of the group method of restart. It reads the streams backwards.
static BACKWARD: Method = Method {
    player: Player::Pages(PagePlayer::Group(Direction::Backward)),
    ..METHODS[0]
};

/// A reply that waits for its epoch.
pub struct Promise {
    /// The reply may be given once this epoch is durable on the rung `mirror`.
    pub(crate) ticket: u64,
    /// The newest epoch that the reply depends on.
    pub(crate) needs: u64,
}

engine!(Core, Promise, |core: &Core, promise: &Promise| {
    (promise.ticket <= core.wal().durable(Rung::Mirror).0).then_some(promise.needs)
});

/// Returns the anchor on a disk, if any. The anchor may lack an image, because a restart gives up an image that it
/// could not read.
pub(crate) fn anchor_of(disk: &SimDisk) -> Check<Option<Anchor>> {
    read_anchor(disk.life().as_ref()).map_err(|error| format!("the anchor: {error}"))
}

/// Returns the options of a dry run: a restart of these disks by `methods` that writes nothing to them.
pub(crate) fn dry_run_options(
    env: &Env,
    methods: impl Into<Methods>,
    schedule: Schedule,
) -> RestartOptions {
    let (disks, clock) = (env.disks.clone(), Arc::clone(&env.clock));
    RestartOptions {
        mode: perdura_recovery::RestartMode::Dry,
        catalog: Arc::new(CatalogRows::default()),
        ..RestartOptions::of_records(disks, clock, schedule, methods)
    }
}

/// Returns whether the anchor says that the nodes' log may be ahead of these disks.
pub(crate) fn is_mirrored(disks: &[Arc<SimDisk>]) -> Check<bool> {
    Ok(anchor_of(&disks[0])?.is_some_and(|anchor| anchor.mirrored.is_some()))
}

impl Machine<Core> {
    /// Takes a step of the nodes after a step of the run, if the run has nodes.
    pub(crate) fn step_of_nodes(&mut self) -> Check {
        let (Some(cluster), Some(core)) = (&mut self.cluster, &self.engine) else {
            return Ok(());
        };
        let is_mirrored = core.nodes().is_some_and(|nodes| nodes.is_mirrored());
        match cluster.step(core) {
            Ok(is_ahead) => {
                for (mark, is_so) in [("mirrored", is_mirrored), ("ahead_of_disk", is_ahead)] {
                    *self.tally.reached.entry(mark).or_default() += u64::from(is_so);
                }
                Ok(())
            }
            Err(error) => self.tolerate("the mirror", &error),
        }
    }

    /// Stops the use of nodes, like a clean shutdown. Acknowledgements then wait for the disk again. Returns false if
    /// the nodes are still in use.
    fn end_of_nodes(&mut self) -> Check<bool> {
        let (Some(cluster), Some(core)) = (&mut self.cluster, &self.engine) else {
            return Ok(true);
        };
        let ended = cluster.end(core);
        self.observe();
        match ended {
            Ok(has_ended) => Ok(has_ended),
            Err(error) => self
                .tolerate("the end of the mirror", &error)
                .map(|()| false),
        }
    }

    /// Closes the epoch, or takes a single step of closing it.
    pub(crate) fn close(&mut self) {
        let stream = self.draw_stream();
        let part = self.rng.u8(0..4);
        let core = self.engine();
        match part {
            0 => drop(core.wal().close_begin()),
            1 => core.wal().close_visit(stream),
            _ => drop(core.close_epoch()),
        }
    }

    /// Shuts down cleanly in one of 24 calls, if nothing prevents it. Sets `closed` to `Some(true)` if the anchor gets
    /// the mark of a clean shutdown. Sets `closed` to `None` if writing the mark fails, because the anchor may have it
    /// or not.
    pub(crate) fn close_cleanly_at_times(&mut self, closed: &mut Option<bool>) -> Check {
        if self.stopped || self.rng.u8(0..24) > 0 {
            return Ok(());
        }
        self.checkpoint_now()?;
        self.flush_all()?;
        if self.stopped || !self.engine().wal().is_idle() {
            return Ok(());
        }
        if !self.end_of_nodes()? {
            return Ok(());
        }
        match self.engine().mark_clean() {
            Ok(()) => {
                assert!(
                    self.promises.is_empty(),
                    "an answer waits for an epoch when everything is durable"
                );
                *closed = Some(true);
            }
            Err(error) => {
                // The mark of a clean shutdown may be in one of the anchor's two copies.
                *closed = None;
                self.tolerate("mark_clean", &error)?;
                self.stopped = true;
            }
        }
        Ok(())
    }
}

/// A world over the product's engine.
pub(crate) trait OverCore {
    /// The rows that the model expects.
    type State;
    /// The pair (n, max). One in n of the restarts on copies chooses its number of threads at random, from 1 to max.
    const THREADS: (u8, usize) = (16, 3);

    /// Returns the machine, which has the disks, the clock and the engine.
    fn machine(&self) -> &Machine<Core>;
    /// Returns whether each stream has a separate disk.
    fn disks_apart(&self) -> bool;
    /// Returns the options for opening the engine.
    fn options(&self) -> CoreOptions;
    /// Returns whether segments are prepared only by steps of the run. The engine then refuses writers until a
    /// segment is ready.
    fn prepares_by_steps(&self) -> bool;
    /// Returns whether the last life ended with the anchor's mark of a clean shutdown. `None`: unknown.
    fn closed_cleanly(&self) -> Option<bool>;
    /// Returns the expected rows if exactly the epochs up to `durable` survived.
    fn state_at(&self, durable: u64) -> Self::State;
    /// Returns the newest epoch with commits that the restart kept. A world whose model orders commits by checkpoint
    /// returns the number of the restored checkpoint instead.
    fn survived(&self, core: &Core) -> u64 {
        core.report().durable_epoch
    }
    /// Returns whether the model can still compute the state at this epoch.
    fn remembers(&self, _survived: u64) -> bool {
        true
    }
    /// Returns whether the log gets the changes. If not, only images hold the changes.
    fn is_logged(&self) -> bool {
        true
    }
    /// Compares an open engine with `expected`.
    fn compare_with(&self, core: &Core, expected: &Self::State) -> Check;
    /// Reads the pages that opening the database has left unread.
    fn read_rest(&self, _: &Core) -> Result<(), Error> {
        Ok(())
    }
    /// Creates the database that the world needs if the disks have none.
    fn make(&self, _: &Env) -> Result<(), Error> {
        Ok(())
    }
    /// Returns the options of a dry run: a restart of these disks by `methods` that writes nothing to them.
    fn dry_run_options(&self, env: &Env, methods: Methods, schedule: Schedule) -> RestartOptions {
        dry_run_options(env, methods, schedule)
    }

    /// Returns the environment of an engine on the given disks.
    fn env(&self, disks: &[Arc<SimDisk>]) -> Env {
        let machine = self.machine();
        let logs = (0..machine.course.streams)
            .map(|s| match self.disks_apart() {
                true => disks[usize::from(s) + 1].life() as Arc<dyn Disk>,
                false => disks[0].life() as Arc<dyn Disk>,
            })
            .collect();
        let data = disks[0].life() as Arc<dyn Disk>;
        keep_locked(disks);
        Env {
            disks: Disks {
                images: vec![Arc::clone(&data)],
                data,
                logs,
            },
            clock: Arc::clone(&machine.clock) as Arc<dyn Clock>,
            seed: machine.next_seed(),
            nodes: None,
            accept_loss: false,
        }
    }

    /// Opens the engine on the given disks, and loads everything first.
    fn open_core(&self, disks: &[Arc<SimDisk>]) -> Result<Core, Error> {
        let options = CoreOptions {
            on_demand: false,
            ..self.options()
        };
        self.open_as(self.env(disks), options)
    }

    /// Opens the engine with these options.
    fn open_as(&self, env: Env, options: CoreOptions) -> Result<Core, Error> {
        self.make(&env)?;
        let yardstick = match self.is_logged() {
            true => Yardstick::Product,
            false => Yardstick::Unlogged,
        };
        let options = CoreOptions {
            lanes: 1 + to_usize(self.machine().seed % 3),
            ..options
        };
        let core = Core::open_by(yardstick, env, options, Arc::default())?;
        if self.prepares_by_steps() {
            core.wal().prepare_by(|| ());
        }
        Ok(core)
    }

    /// Opens the engine on the run's disks, with its nodes if the run has some.
    fn open_life(&self, disks: &[Arc<SimDisk>]) -> Result<Core, Error> {
        let env = Env {
            nodes: self.machine().cluster.as_ref().map(Cluster::nodes),
            ..self.env(disks)
        };
        self.open_as(env, self.options())
    }

    /// Compares the model with the result of a restart from undamaged disks.
    fn verify(&self, core: &Core) -> Check {
        let (report, machine) = (core.report(), self.machine());
        let (durable, survived) = (report.durable_epoch, self.survived(core));
        machine.check_kept(if self.is_logged() { survived } else { durable })?;
        machine.check_images_met(report)?;
        let doubted = |note: &&String| note.ends_with("are valid");
        if let Some(doubted) = report.notes.iter().find(doubted) {
            return Err(format!("not durable before the first block: {doubted}"));
        }
        check_void(report, core.wal().current().0)?;
        if self.closed_cleanly().is_some_and(|was| was != report.clean) && !report.created {
            return Err(format!("the report says clean: {}", report.clean));
        }
        let expected = self.state_at(survived);
        self.compare_with(core, &expected)
            .map_err(|what| format!("after the restart at epoch {durable}: {what}"))
    }

    /// Repeats the database's own restart in other ways, and checks that the rows are equal. The first repeats run at
    /// every level of parallelism. The next repeat uses the older image, because the newest image is damaged, wholly
    /// or in one page. The last repeat follows one more checkpoint. `before` holds the disks as they were before the
    /// database's own restart.
    fn check_other_ways(&self, before: &[Arc<SimDisk>], choice: u64) -> Check {
        let core = self.machine().engine();
        self.check_levels(before, choice)?;
        self.check_images(&before[0])?;
        if !self.is_logged() || is_mirrored(before)? {
            // Without a log, the older image cannot replace a damaged one. With nodes, it could do so only together
            // with the nodes' log.
            return Ok(());
        }
        let Some(anchor) = anchor_of(&before[0])? else {
            let created = core.report().created;
            return created.then_some(()).ok_or("the anchor is gone".to_owned());
        };
        let live = self.state_at(u64::MAX);
        self.check_on_demand(before, &live, choice)?;
        let standby = OtherImage {
            engine: core,
            before,
            image_disks: &before[..1],
            open: |disks: &[Arc<SimDisk>]| self.open_core(disks),
            compare: |other: &Core| self.compare_with(other, &live),
        };
        standby.check(&anchor, choice)
    }

    /// Checks that restarts lead to equal rows if they load partitions on demand.
    fn check_on_demand(&self, before: &[Arc<SimDisk>], live: &Self::State, choice: u64) -> Check {
        let check = OnDemand {
            disks: &copies_of(before),
            open: |disks: &[Arc<SimDisk>], on_demand| {
                let options = CoreOptions {
                    on_demand,
                    schedule: Schedule::inline(Level::Four, 0),
                    ..self.options()
                };
                self.open_as(self.env(disks), options)
            },
            compare: |core: &Core| self.compare_with(core, live),
        };
        check.check(choice)
    }

    /// Checks that restarts lead to equal rows at every level of parallelism, in random orders of jobs, and in both
    /// reading directions. A job is a part of the restart's work that one thread does.
    fn check_levels(&self, before: &[Arc<SimDisk>], choice: u64) -> Check {
        let mut rng = Rng::with_seed(choice);
        let methods = match self.is_logged() {
            true => [&METHODS[0], &BACKWARD],
            false => [Method::of(Scheme::Unlogged); 2],
        };
        let first = Schedule::inline(Level::Four, 0);
        let first = self.dry_run(before, methods[0].into(), first)?;
        for level in Level::ALL {
            let mut schedule = draw_schedule(&mut rng, level);
            let (one_in, threads_max) = Self::THREADS;
            if rng.u8(0..one_in) == 0 {
                schedule = Schedule::new(level, rng.usize(1..=threads_max));
            }
            let method = pick(&mut rng, &methods);
            if self.dry_run(before, method.into(), schedule)? != first {
                let way = Methods::from(method)
                    .records(Scheme::Differential)
                    .direction();
                let level = level.number();
                return Err(format!("level {level}, log read {way:?}: other rows"));
            }
        }
        Ok(())
    }

    /// Checks the checksum and the digest of every page that a complete image lists. The digests must add up to the
    /// image's proof.
    fn check_images(&self, disk: &SimDisk) -> Check {
        let core = self.machine().engine();
        let anchor = core.anchor().get();
        let geometry = *core.heap().geometry();
        let disk = disk.life();
        let (summer, places) = (PageSummer::new(), Places::of(&anchor));
        let mut bytes = vec![0; PAGE_BYTES];
        for slot in ImageSlot::ALL {
            if !anchor.image(slot).is_complete() {
                continue;
            }
            let failed = |error: Error| format!("image {slot}: {error}");
            let listed = read_directory(disk.as_ref(), &anchor, slot, &geometry);
            let listed = listed.map_err(failed)?.directory;
            let file = ImageFile::open(disk.as_ref(), slot, &anchor.uuid).map_err(failed)?;
            let mut proof = 0;
            for id in (0..geometry.partitions).map(PartitionId) {
                for (local, entry) in listed.present(id) {
                    let page = geometry
                        .page_id(id, local)
                        .ok_or("a page beyond the last")?;
                    let place = places.place(page);
                    file.read(place, &mut bytes).map_err(failed)?;
                    let digest = summer.digest(&bytes);
                    if !ImageFile::is_listed(page, &bytes, &entry) || digest != entry.digest {
                        return Err(format!("image {slot}: page {page} is not as listed"));
                    }
                    proof ^= bound(page, digest);
                }
            }
            if proof != listed.proof(&geometry) {
                return Err(format!(
                    "image {slot}: the pages do not add up to its proof"
                ));
            }
        }
        Ok(())
    }

    /// Returns the digest of the rows that a dry run recovers. The dry run writes nothing to these disks.
    fn dry_run(&self, disks: &[Arc<SimDisk>], methods: Methods, schedule: Schedule) -> Check<u64> {
        let anchor = anchor_of(&disks[0])?;
        let writes = anchor.as_ref().is_some_and(writes_in_place);
        let env = self.env(&if writes {
            copies_of(disks)
        } else {
            disks.to_vec()
        });
        let mut options = self.dry_run_options(&env, methods, schedule);
        if anchor.is_some_and(|anchor| anchor.mirrored.is_some()) {
            // Nodes may hold a further part of the log. This restart ends where the disks' log ends.
            options.tail = Tail::GivenUp;
        }
        match restart(&options) {
            Ok(Some(restarted)) => perdura::digest::digest(&restarted.data())
                .map_err(|error| format!("the digest: {error}")),
            Ok(None) => Ok(0),
            Err(error) => Err(format!("dry run: {error}")),
        }
    }

    /// Checks a restart after damage. The restart must fail with an error of the corruption family, or recover whole
    /// epochs without a gap. Their last epoch must be at least `evidence`. Returns this last epoch, or `None` after
    /// an error.
    fn check_damaged(
        &self,
        disks: &[Arc<SimDisk>],
        evidence: u64,
        damage: &str,
    ) -> Check<Option<u64>> {
        let kept = |core: &Core| match self.is_logged() {
            true => self.survived(core),
            false => core.report().durable_epoch,
        };
        let started = started(self.open_core(disks), kept, evidence, damage)?;
        let Some((core, durable)) = started else {
            return Ok(None);
        };
        let survived = self.survived(&core);
        if !self.remembers(survived) {
            return Ok(Some(durable));
        }
        if let Err(error) = self.read_rest(&core) {
            return refused(&error, damage).map(|()| None);
        }
        self.compare_with(&core, &self.state_at(survived))
            .map_err(|what| format!("{damage}: started at epoch {durable}: {what}"))?;
        Ok(Some(durable))
    }
}

/// Flips a byte in a page that holds data.
pub(crate) fn damage_page(disk: &SimDisk, path: &str, choice: u64) {
    let Ok(bytes) = disk.read_all(path) else {
        return;
    };
    let header = to_usize(perdura_recovery::image::PAGES_HEADER_BYTES);
    let pages = bytes.len().saturating_sub(header) / PAGE_BYTES;
    let holds = |page: &usize| {
        let start = header + page * PAGE_BYTES;
        bytes[start..start + 64].iter().any(|byte| *byte != 0)
    };
    let held: Vec<usize> = (0..pages).filter(holds).collect();
    if !held.is_empty() {
        let page = held[to_usize(choice % to_u64(held.len()))];
        disk.flip(path, to_u64(header + page * PAGE_BYTES + 9), 3);
    }
}
