//! `perdura dump log`

use std::io::{BufWriter, Write};

use anyhow::{Result, bail};
use clap::Parser;
use perdura_base::{Pos, StreamId};
use perdura_recovery::dump::{DumpedFrame, DumpedOrdered};
use perdura_recovery::{dump, undrained};
use perdura_wal::{BlockRef, Cut, Direction, StreamScan};
use serde::Serialize;

use crate::exit::Usage;
use crate::offline::{Directories, Offline};
use crate::output;
use perdura_base::moment::moment;

/// Show the log, block by block and frame by frame.
///
/// Begins where the older image's checkpoint began, or at the position of --from. A restart would choose an end of the
/// log. Blocks after this end are shown as void. With --json, each block is one line.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  \
    perdura dump log --data perdura-data | less\n  \
    perdura dump log --data perdura-data --stream 0 --blocks\n  \
    perdura dump log --data perdura-data --json | jq .epoch")]
pub struct Args {
    #[command(flatten)]
    directories: Directories,
    /// Show only the stream with this number.
    #[arg(long, value_name = "N")]
    stream: Option<u8>,
    /// Begin with the block at this position.
    #[arg(long, value_name = "POS")]
    from: Option<u64>,
    /// End after this number of blocks of each stream.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Show blocks only, without their frames.
    #[arg(long)]
    blocks: bool,
    /// Print one JSON object on each line.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct ShownBlock {
    stream: u8,
    pos: u64,
    end: u64,
    epoch: u64,
    checkpoint_epoch: u64,
    written: String,
    body_bytes: u32,
    partitions: Vec<u16>,
    /// The numbers of the restart passes that read the block.
    passes: Vec<u8>,
    void: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    frames: Vec<DumpedFrame>,
}

pub fn run(args: &Args) -> Result<()> {
    let offline = Offline::open(&args.directories)?;
    let streams = offline.anchor.streams;
    if let Some(stream) = args.stream.filter(|stream| *stream >= streams) {
        bail!(Usage(format!(
            "there is no stream {stream}; the database has {streams}"
        )));
    }
    let begin = offline.log_begin();
    let mut scans = Vec::new();
    for stream in (0..streams).map(StreamId) {
        let from = args.from.map_or(begin[usize::from(stream.0)], Pos);
        scans.push(offline.scan(stream, from)?);
    }
    // The verb also shows a log that contradicts itself, and then ends with the error.
    let cut = offline.decide_cut(&scans);
    let mut out = BufWriter::new(output::Stdout);
    let mut unreadable = None;
    for scan in &scans {
        if args.stream.is_some_and(|stream| stream != scan.stream.0) {
            continue;
        }
        let mut shown = show_blocks(scan, args.limit, cut.as_ref().ok());
        if !args.blocks {
            let added = add_frames(scan, &mut shown);
            unreadable = unreadable.or(added.err());
        }
        for block in &shown {
            print_block(&mut out, block, args.json)?;
        }
        if !args.json {
            let why = scan.torn.as_deref().unwrap_or("nothing");
            writeln!(
                out,
                "stream {} ends at {}: {why} there",
                scan.stream, scan.valid_end
            )?;
            for note in &scan.notes {
                writeln!(out, "note: {note}")?;
            }
        }
    }
    if let (Ok(cut), false) = (&cut, args.json) {
        let cuts: Vec<u64> = cut.cut.iter().map(|pos| pos.0).collect();
        writeln!(out, "durable epoch {}, cut at {cuts:?}", cut.durable)?;
    }
    if let Some(text) = undrained(&offline.anchor, cut.as_ref().ok()) {
        match args.json {
            true => output::note(&format!("note: {text}")),
            false => writeln!(out, "note: {text}")?,
        }
    }
    out.flush()?;
    cut?;
    unreadable.map_or(Ok(()), |error| Err(error.into()))
}

/// Returns the first blocks of a stream, without their frames.
fn show_blocks(scan: &StreamScan, limit: Option<usize>, cut: Option<&Cut>) -> Vec<ShownBlock> {
    let blocks = scan.blocks.iter().take(limit.unwrap_or(usize::MAX));
    let shown = blocks.map(|block| show_block(scan.stream, block, cut));
    shown.collect()
}

/// Adds the readable frames to the blocks.
///
/// Continues with the next block after an error. After all blocks, returns the first error.
fn add_frames(scan: &StreamScan, shown: &mut [ShownBlock]) -> perdura::Result<()> {
    let mut unreadable = None;
    for unit in scan.units(0) {
        if unit.start >= shown.len() {
            break;
        }
        let frames = scan.read_unit(unit, Direction::Forward, |frame, block| {
            let at = shown.binary_search_by_key(&block.pos.0, |shown| shown.pos);
            if let Ok(at) = at {
                shown[at].frames.push(dump(frame));
            }
            Ok(())
        });
        unreadable = unreadable.or(frames.err());
    }
    unreadable.map_or(Ok(()), Err)
}

fn show_block(stream: StreamId, block: &BlockRef, cut: Option<&Cut>) -> ShownBlock {
    let partitions = block.partitions.iter().map(|partition| partition.0);
    let beyond = |cut: &Cut| block.pos >= cut.cut[usize::from(stream.0)];
    ShownBlock {
        stream: stream.0,
        pos: block.pos.0,
        end: block.end().0,
        epoch: block.epoch.0,
        checkpoint_epoch: block.ckpt_epoch.0,
        written: moment(block.wall_us),
        body_bytes: block.body_len,
        partitions: partitions.collect(),
        passes: [
            (1, block.holds.others),
            (2, block.holds.ordered),
            (3, block.holds.operations || block.holds.tree),
        ]
        .into_iter()
        .filter_map(|(pass, needs)| needs.then_some(pass))
        .collect(),
        void: cut.is_some_and(beyond),
        frames: Vec::new(),
    }
}

fn print_block(out: &mut impl Write, block: &ShownBlock, json: bool) -> Result<()> {
    if json {
        return output::json_line(out, block);
    }
    writeln!(
        out,
        "block {}:{} to {}  epoch {}  checkpoint epoch {}  {} bytes  {} partition(s)  {}{}",
        block.stream,
        block.pos,
        block.end,
        block.epoch,
        block.checkpoint_epoch,
        block.body_bytes,
        block.partitions.len(),
        block.written,
        if block.void { "  VOID" } else { "" }
    )?;
    for frame in &block.frames {
        let DumpedFrame { contents, .. } = frame;
        let detail = contents.detail.as_deref().unwrap_or_default();
        writeln!(out, "  {} {} bytes  {detail}", frame.kind, frame.bytes)?;
        for line in contents.ordered.iter().flat_map(DumpedOrdered::lines) {
            writeln!(out, "    {line}")?;
        }
        for record in &contents.records {
            writeln!(
                out,
                "    page {} useq {} tag {}: {} fragment(s), {} bytes",
                record.page, record.useq, record.tag, record.fragments, record.bytes
            )?;
        }
    }
    Ok(())
}
