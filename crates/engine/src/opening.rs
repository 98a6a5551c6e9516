//! The steps of an open before the [`Core`](crate::core::Core) exists. They check the scheme, then make a database that
//! does not exist, or restart an existing one.

use std::sync::Arc;

use perdura_base::checksum::mix64;
use perdura_base::{Error, LifeId, Result, Uuid};
use perdura_heap::{Geometry, MemoryAccount};
use perdura_recovery::footing::Footing;
use perdura_recovery::indexing::ReadCatalog;
use perdura_recovery::restart::{NewDatabase, NewTree, RestartOptions, create_or_resume, restart};
use perdura_recovery::{Anchor, RestartMode, Tail, read_anchor};
use perdura_recovery::{ExecutorWindow, Life, LogMemory, Progress};
use perdura_wal::{Mode, Scheme, Vouched};

use crate::catalog::CatalogRows;
use crate::env::Env;
use crate::nodes::{Claimed, Nodes};
use crate::options::CoreOptions;
use crate::typed::replay::Replayer;
use crate::yardstick::Yardstick;

/// Makes the number of a life differ from other numbers that are drawn with the same seed.
const LIFE: u64 = 0x4c49_4645;

/// Refuses a database if its logging scheme is not that of `yardstick`. Also refuses a database of interleaved
/// transactions, because this engine cannot read the rows in the pages of such a database.
pub(crate) fn check_scheme(env: &Env, yardstick: Yardstick) -> Result<()> {
    let Some(anchor) = read_anchor(env.disks.data.as_ref())? else {
        return Ok(());
    };
    let scheme = anchor.scheme;
    match scheme.mode() {
        Mode::Executor if scheme != yardstick.scheme() => Err(Error::Usage(format!(
            "the database in {} was made with logging scheme {}, which cannot be changed, but it \
             was opened with scheme {}",
            env.disks.data.name(),
            scheme.name(),
            yardstick.scheme().name()
        ))),
        Mode::Executor => Ok(()),
        Mode::Steal | Mode::Keyed => Err(Error::Usage(format!(
            "the database in {} has the logging scheme {}, which this engine cannot serve. \
             `perdura restart` recovers it and shows its content",
            env.disks.data.name(),
            scheme.name()
        ))),
    }
}

/// A recovered or new database.
pub(crate) struct Opened {
    /// The parts of the open database below its transactions.
    pub life: Life,
    /// The database's claim in the arbiter, if the database has nodes.
    pub claimed: Option<Claimed>,
}

/// Restarts the database on these disks and resumes its log. If the disks hold no database, makes one. If nodes are
/// configured, first claims the database and drains the nodes.
pub(crate) fn bring_back(
    env: &Env,
    options: &CoreOptions,
    yardstick: Yardstick,
    forms: &Arc<CatalogRows>,
    progress: Arc<Progress>,
) -> Result<Opened> {
    let standing = Footing::of(&env.disks);
    let mut made = read_anchor(env.disks.data.as_ref())?;
    let mut claimed = match &mut made {
        Some(anchor) => claim(env, anchor)?,
        None => None,
    };
    assert!(
        made.as_ref()
            .is_none_or(|anchor| anchor.scheme == yardstick.scheme()),
        "the scheme was checked"
    );
    let replayer = Replayer::new(options.typed.clone(), options.value_bytes_max);
    let restart_options = RestartOptions {
        disks: env.disks.clone(),
        clock: Arc::clone(&env.clock),
        schedule: options.schedule,
        methods: options.methods.clone(),
        tree: options.tree,
        ordered: Some(Arc::new(replayer)),
        archived: options.archived.clone(),
        life: LifeId(mix64(env.seed ^ LIFE)),
        mode: RestartMode::of(options.on_demand),
        tail: match (&claimed, env.accept_loss) {
            (Some(claimed), _) => claimed.tail,
            (None, true) => Tail::GivenUp,
            (None, false) => Tail::OnDisk,
        },
        memory: Arc::new(
            MemoryAccount::new(options.memory_limit).with_ceiling(options.memory_ceiling.clone()),
        ),
        catalog: Arc::clone(forms) as Arc<dyn ReadCatalog>,
        progress,
    };
    let restarted = match restart(&restart_options)? {
        Some(restarted) => restarted,
        None => {
            let mut anchor = make(env, options, yardstick)?;
            claimed = claim(env, &mut anchor)?;
            restart(&restart_options)?.expect("the database was made just now")
        }
    };
    assert_eq!(
        restarted.record.scheme,
        yardstick.scheme(),
        "the restart keeps the scheme"
    );
    // For a new database `standing` lists only the directories, because the files did not exist when it was made.
    standing.check()?;
    let window = ExecutorWindow {
        // Without a log that completes the pages, all pages of an image must be of one instant.
        cuts: options.consistent_checkpoints || yardstick.scheme() == Scheme::Unlogged,
    };
    let memory = log_memory(env, options);
    let life = Life::begin(restarted, &restart_options, memory, Arc::new(window))?;
    assert_eq!(
        claimed.is_some(),
        env.nodes.is_some(),
        "a database with nodes is claimed"
    );
    Ok(Opened { life, claimed })
}

/// If nodes are configured, claims the database of an anchor and drains the nodes.
fn claim(env: &Env, anchor: &mut Anchor) -> Result<Option<Claimed>> {
    let take_over =
        |nodes: &Nodes| nodes.take_over(&env.disks, anchor, env.accept_loss, env.clock.as_ref());
    env.nodes.as_ref().map(take_over).transpose()
}

/// Makes a database with a tree on disks that hold no database yet. Only test harnesses call this. An open makes no
/// tree.
///
/// # Errors
/// As [`create_or_resume`].
pub fn create_with_tree(env: &Env, options: &CoreOptions, tree: NewTree<'_>) -> Result<()> {
    options.check()?;
    let new = new_database(env, options, Yardstick::Product);
    create_or_resume(&env.disks, env.clock.as_ref(), &new, Some(tree))
}

/// Makes a database, and returns its anchor.
fn make(env: &Env, options: &CoreOptions, yardstick: Yardstick) -> Result<Anchor> {
    if env.accept_loss {
        return Err(Error::Usage(format!(
            "nothing is lost: {} has no database yet. Nothing was made. Start without \
             --accept-loss",
            env.disks.data.name()
        )));
    }
    if let Some(archived) = &options.archived {
        let streams = u8::try_from(env.disks.logs.len()).unwrap_or(u8::MAX);
        archived.check_durable(&Vouched::nothing(streams))?;
    }
    let new = new_database(env, options, yardstick);
    create_or_resume(&env.disks, env.clock.as_ref(), &new, None)?;
    let made = read_anchor(env.disks.data.as_ref())?.expect("the database was made just now");
    assert_eq!(
        made.scheme,
        yardstick.scheme(),
        "it was made of this scheme"
    );
    Ok(made)
}

/// Returns the limits of the log's memory.
fn log_memory(env: &Env, options: &CoreOptions) -> LogMemory {
    LogMemory {
        block_bytes_max: options.block_bytes_max,
        queue_bytes_max: options.queue_bytes_max,
        lanes: options.lanes,
        mirror: env.nodes.as_ref().map(|nodes| perdura_wal::TailOptions {
            tail_bytes_max: nodes.options.tail_bytes_max,
        }),
    }
}

fn new_database(env: &Env, options: &CoreOptions, yardstick: Yardstick) -> NewDatabase {
    NewDatabase {
        uuid: Uuid::of_seed(env.seed),
        geometry: Geometry {
            partitions: options.partitions,
            chunk_pages: options.chunk_pages,
            hash_seed: mix64(env.seed.wrapping_add(0x5851_f42d_4c95_7f2d)),
        },
        streams: u8::try_from(env.disks.logs.len()).expect("at most 16 streams"),
        segments: options.segment_sizes(),
        scheme: yardstick.scheme(),
    }
}
