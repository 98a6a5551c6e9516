//! `perdura dump anchor`

use std::collections::BTreeMap;

use anyhow::Result;
use clap::Parser;
use perdura_base::ImageSlot;
use perdura_recovery::sections::tree::{TREE_DIR, TreeAnchor};
use perdura_recovery::{AcceptedLoss, Anchor, ImageStatus};
use perdura_wal::PastLife;
use serde::Serialize;

use crate::offline::{Directories, Offline};
use crate::output;
use crate::verb::parent::ShownParent;
use perdura_base::moment::moment;

/// Show the anchor, the file that a restart reads first.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  perdura dump anchor --data perdura-data --json")]
pub struct Args {
    #[command(flatten)]
    directories: Directories,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// A past life of the database.
#[derive(Serialize)]
struct ShownLife {
    number: String,
    incarnation: u32,
    end_epoch: u64,
}

impl ShownLife {
    fn of(life: &PastLife) -> ShownLife {
        ShownLife {
            number: format!("{:016x}", life.id.0),
            incarnation: life.incarnation.0,
            end_epoch: life.end.0,
        }
    }
}

#[derive(Serialize)]
struct Shown {
    seq: u64,
    uuid: String,
    created: String,
    clean: bool,
    incarnation: u32,
    epoch_floor: u64,
    ckpt_max: u64,
    streams: u8,
    partitions: u16,
    chunk_pages: u16,
    segment_bytes: u64,
    segment_first_bytes: u64,
    vouched: ShownVouched,
    image_a: ShownImage,
    image_b: ShownImage,
    chain: Vec<ShownLink>,
    /// The families of ordered frames that the log may contain: effects, commands, or both.
    ordered: Vec<&'static str>,
    /// The last epoch that was in the archive when the anchor was last written. The database keeps the log after this
    /// epoch.
    archived: Option<ShownArchived>,
    /// The number of the newest life, hexadecimal. The past lives follow, each with its last epoch.
    life: String,
    past_lives: Vec<ShownLife>,
    /// The parent: the database that this database was restored from.
    parent: Option<ShownParent>,
    /// The name of the timeline. `None`: the first one.
    timeline: Option<String>,
    /// The losses that were accepted, oldest first.
    losses: Vec<ShownLoss>,
    /// The trees, keyed by the names of their folders.
    #[serde(flatten)]
    trees: BTreeMap<&'static str, ShownTree>,
    sections: Vec<ShownSection>,
    notes: Vec<String>,
}

/// A section of the anchor, which belongs to one component.
#[derive(Serialize)]
struct ShownSection {
    tag: String,
    required: bool,
    bytes: usize,
}

#[derive(Serialize)]
struct ShownLoss {
    incarnation: u32,
    /// The last epoch that was kept when the loss was accepted.
    durable_epoch: u64,
    /// The highest epoch that is known to have been acknowledged before the loss. 0: unknown.
    acked_epoch: u64,
    accepted: String,
    #[serde(skip)]
    text: String,
}

impl ShownLoss {
    fn of(loss: &AcceptedLoss) -> ShownLoss {
        ShownLoss {
            incarnation: loss.incarnation.0,
            durable_epoch: loss.durable.0,
            acked_epoch: loss.acked.0,
            accepted: moment(loss.wall_us),
            text: loss.text(),
        }
    }
}

#[derive(Serialize)]
struct ShownTree {
    page_bytes: usize,
    /// The number of an operation. The pages on disk have all changes up to this operation.
    redo_start: u64,
    checkpoint: u64,
}

#[derive(Serialize)]
struct ShownVouched {
    epoch: u64,
    at: String,
    ends: Vec<u64>,
}

#[derive(Serialize)]
struct ShownArchived {
    epoch: u64,
    ends: Vec<u64>,
}

/// The anchor's description of an image.
#[derive(Serialize)]
pub struct ShownImage {
    /// `empty`, `building` or `complete`.
    pub state: &'static str,
    /// True if all pages of the image show the database at one instant.
    pub consistent: bool,
    /// The image's checkpoint epoch.
    pub checkpoint: u64,
    /// The lowest commit epoch that a restart from the image reads. `null`: the image was made by an older build, which
    /// did not record the epoch.
    pub begin_epoch: Option<u64>,
    /// A commit epoch. The image is consistent only together with the log up to this epoch.
    pub end_epoch: u64,
    /// The end time of the checkpoint.
    pub ended: String,
    /// For each stream, the log position at the beginning of the checkpoint.
    pub begin: Vec<u64>,
    /// For each stream, the log position at the end of the checkpoint.
    pub end: Vec<u64>,
}

#[derive(Serialize)]
struct ShownLink {
    incarnation: u32,
    durable_epoch: u64,
    start: Vec<u64>,
    cut: Vec<u64>,
}

impl ShownImage {
    /// Returns the description of an image.
    pub fn of(image: &ImageStatus) -> ShownImage {
        ShownImage {
            state: image.state().name(),
            consistent: image.consistent,
            checkpoint: image.k.0,
            begin_epoch: image.begin_epoch.map(|epoch| epoch.0),
            end_epoch: image.cover.end_epoch.0,
            ended: moment(image.wall_us),
            begin: image.cover.begin.iter().map(|pos| pos.0).collect(),
            end: image.cover.end.iter().map(|pos| pos.0).collect(),
        }
    }
}

fn shown_tree(tree: &TreeAnchor) -> (&'static str, ShownTree) {
    let shown = ShownTree {
        page_bytes: tree.page_bytes,
        redo_start: tree.rssp.0,
        checkpoint: tree.k.0,
    };
    (TREE_DIR, shown)
}

fn shown(anchor: &Anchor, notes: Vec<String>) -> Shown {
    Shown {
        seq: anchor.seq,
        uuid: anchor.uuid.to_string(),
        created: moment(anchor.created_us),
        clean: anchor.clean,
        incarnation: anchor.incarnation.0,
        epoch_floor: anchor.epoch_floor.0,
        ckpt_max: anchor.ckpt_max.0,
        streams: anchor.streams,
        partitions: anchor.geometry.partitions,
        chunk_pages: anchor.geometry.chunk_pages,
        segment_bytes: anchor.segments.max,
        segment_first_bytes: anchor.segments.first,
        vouched: ShownVouched {
            epoch: anchor.vouched.epoch.0,
            at: moment(anchor.vouched.wall_us),
            ends: anchor.vouched.ends.iter().map(|pos| pos.0).collect(),
        },
        image_a: ShownImage::of(anchor.image(ImageSlot::A)),
        image_b: ShownImage::of(anchor.image(ImageSlot::B)),
        chain: anchor
            .chain
            .iter()
            .map(|link| ShownLink {
                incarnation: link.incarnation.0,
                durable_epoch: link.durable.0,
                start: link.start.iter().map(|pos| pos.0).collect(),
                cut: link.cut.iter().map(|pos| pos.0).collect(),
            })
            .collect(),
        ordered: anchor.families.names(),
        archived: anchor.archived.as_ref().map(|archived| ShownArchived {
            epoch: archived.epoch.0,
            ends: archived.ends.iter().map(|pos| pos.0).collect(),
        }),
        life: format!("{:016x}", anchor.lineage.id.0),
        past_lives: anchor.lineage.past.iter().map(ShownLife::of).collect(),
        parent: anchor.parent.as_ref().map(ShownParent::of),
        timeline: anchor.timeline.as_ref().map(ToString::to_string),
        losses: anchor.losses.iter().map(ShownLoss::of).collect(),
        trees: anchor.trees().iter().map(shown_tree).collect(),
        sections: anchor
            .sections()
            .iter()
            .map(|section| ShownSection {
                tag: section.tag.to_string(),
                required: section.required,
                bytes: section.bytes.len(),
            })
            .collect(),
        notes,
    }
}

pub fn run(args: &Args) -> Result<()> {
    let offline = Offline::open(&args.directories)?;
    let anchor = shown(&offline.anchor, offline.anchor_notes.clone());
    if args.json {
        return output::json(&anchor);
    }
    output::text(&described(&anchor))
}

/// Returns the lines at the start of the description. Every anchor has these lines.
fn begin_text(anchor: &Shown) -> String {
    let mut text = format!(
        "database     {}, made {}\nanchor       update {}, {}\n\
         incarnation  {}, epochs up to {} and checkpoints up to {} used\n\
         shape        {} stream(s), {} partitions, {} pages a chunk, segments of {} to {} bytes\n\
         vouched      the log reaches epoch {}, durable at {}, up to {:?}\n",
        anchor.uuid,
        anchor.created,
        anchor.seq,
        if anchor.clean {
            "closed cleanly"
        } else {
            "open or crashed"
        },
        anchor.incarnation,
        anchor.epoch_floor,
        anchor.ckpt_max,
        anchor.streams,
        anchor.partitions,
        anchor.chunk_pages,
        anchor.segment_first_bytes,
        anchor.segment_bytes,
        anchor.vouched.epoch,
        anchor.vouched.at,
        anchor.vouched.ends
    );
    for (name, image) in [("A", &anchor.image_a), ("B", &anchor.image_b)] {
        text += &format!(
            "image {name}      {}, checkpoint {}, epoch {}, ended {}, log from {:?} to {:?}\n",
            image.state, image.checkpoint, image.end_epoch, image.ended, image.begin, image.end
        );
    }
    text
}

/// Returns the description of an anchor as text for people.
fn described(anchor: &Shown) -> String {
    let mut text = begin_text(anchor);
    for link in &anchor.chain {
        text += &format!(
            "closed       incarnation {}, durable epoch {}, from {:?} to {:?}\n",
            link.incarnation, link.durable_epoch, link.start, link.cut
        );
    }
    if !anchor.ordered.is_empty() {
        text += &format!("ordered      {}\n", anchor.ordered.join(", "));
    }
    if let Some(archived) = &anchor.archived {
        text += &format!(
            "archived     up to epoch {}; the log from {:?} on is kept\n",
            archived.epoch, archived.ends
        );
    }
    if !anchor.past_lives.is_empty() {
        let lives = anchor
            .past_lives
            .iter()
            .map(|life| format!("{} up to epoch {}", life.number, life.end_epoch));
        let lives: Vec<String> = lives.collect();
        text += &format!("lives        {}; now {}\n", lives.join(", "), anchor.life);
    }
    if let Some(timeline) = &anchor.timeline {
        text += &format!("timeline     {timeline}\n");
    }
    if let Some(parent) = &anchor.parent {
        text += &format!("parent       {}\n", parent.text());
    }
    for loss in &anchor.losses {
        text += &format!("accepted     {}, {}\n", loss.accepted, loss.text);
    }
    for tree in anchor.trees.values() {
        text += &format!(
            "tree         pages of {} bytes; redo starts behind number {}, of checkpoint {}\n",
            tree.page_bytes, tree.redo_start, tree.checkpoint
        );
    }
    for section in &anchor.sections {
        let required = if section.required {
            "required"
        } else {
            "optional"
        };
        text += &format!(
            "section      {}, {} bytes, {required}\n",
            section.tag, section.bytes
        );
    }
    for note in &anchor.notes {
        text += &format!("note         {note}\n");
    }
    text
}
