//! A model of a restart's schedule. The model predicts the restart's time on a machine with more cores.
//!
//! A restart has four kinds of jobs: reading and playing the image (BR, BP), reading and playing the log (LR, LP).
//! Disks do the reads. Different disks work in parallel, and each disk reads in order. Cores do the plays. The model
//! assigns measured job costs to modelled disks and cores by list scheduling. The job with the earliest start is next,
//! on the first free core. The model does not include memory bandwidth. But costs measured with two busy cores contain
//! some effect of the bandwidth.
//!
//! # Source
//! *Differential Logging* (000), section 4.2: the level of parallelism defines the earliest start of each job.

/// The players of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Players {
    /// One player merges all streams: physical logging, in serialization order.
    Merged,
    /// One player for each stream, in the stream's order.
    PerStream,
    /// Any player takes any unit of the log, because differences commute. With as many players as streams, the result
    /// is that of [`Players::PerStream`].
    Free,
}

/// A restart to be scheduled. Sizes are in bytes, costs in seconds.
#[derive(Debug, Clone, Copy)]
pub struct Job {
    /// The number of image disks. Each has an equal share of the image.
    pub image_disks: usize,
    /// The size of the image, bytes.
    pub image_bytes: f64,
    /// The number of log disks. Each has an equal share of the log.
    pub log_disks: usize,
    /// The size of the log, bytes.
    pub log_bytes: f64,
    /// The transfer rate of one disk, bytes a second.
    pub disk_rate: f64,
    /// The CPU time of playing one byte of the image, seconds.
    pub image_cost: f64,
    /// The CPU time of playing one byte of the log, seconds.
    pub log_cost: f64,
    /// The players of the log.
    pub players: Players,
    /// The number of cores.
    pub cores: usize,
    /// The level of parallelism, 1 to 4.
    pub level: u8,
}

/// The results of the model, seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Modelled {
    /// The end of the restart.
    pub total: f64,
    /// The end of the image phase.
    pub image: f64,
    /// The time from the first read of the log to the last play.
    pub log: f64,
}

/// The size of a unit, bytes. A unit is read as a whole, and then played as a whole.
const UNIT: f64 = 262_144.0;

/// The units that one player plays in order.
struct Lane {
    /// The end of each unit's read.
    ready: Vec<f64>,
    /// The cost of one unit, seconds.
    cost: f64,
    next: usize,
    free_at: f64,
}

/// Schedules a restart and returns its times.
#[must_use]
pub fn schedule(job: &Job) -> Modelled {
    let mut cores = vec![0.0; job.cores.max(1)];
    let reads = |bytes: f64, disks: usize, from: f64| -> Vec<Vec<f64>> {
        let units = units_of(bytes, disks);
        let time = UNIT / job.disk_rate;
        let mut disk = Vec::new();
        let mut at = from;
        for _ in 0..units {
            at += time;
            disk.push(at);
        }
        vec![disk; disks.max(1)]
    };
    let image = reads(job.image_bytes, job.image_disks, 0.0);
    if job.level >= 4 {
        let mut lanes = image_lanes(&image, job);
        let log = reads(job.log_bytes, job.log_disks, 0.0);
        let images = lanes.len();
        lanes.extend(log_lanes(&log, job));
        let ends = place(&mut lanes, &mut cores);
        let image_end = latest(&ends[..images]);
        let log_end = latest(&ends[images..]);
        return Modelled {
            total: image_end.max(log_end),
            image: image_end,
            log: log_end,
        };
    }
    let image_end = if job.level == 1 {
        unpipelined(&image, job.image_cost, &mut cores)
    } else {
        latest(&place(&mut image_lanes(&image, job), &mut cores))
    };
    let from = if job.level == 3 { 0.0 } else { image_end };
    cores.fill(image_end);
    let mut log = reads(job.log_bytes, job.log_disks, from);
    for ready in log.iter_mut().flatten() {
        *ready = ready.max(image_end);
    }
    let log_end = if job.level == 1 {
        match job.players {
            Players::Merged => {
                let last = log.iter().flatten().copied().fold(0.0, f64::max);
                last + job.log_cost * job.log_bytes
            }
            Players::PerStream | Players::Free => unpipelined(&log, job.log_cost, &mut cores),
        }
    } else {
        latest(&place(&mut log_lanes(&log, job), &mut cores))
    };
    Modelled {
        total: image_end.max(log_end),
        image: image_end,
        log: log_end - from,
    }
}

fn units_of(bytes: f64, disks: usize) -> usize {
    let mut units = 0;
    let mut left = bytes / crate::num::count_f64(disks.max(1));
    while left > 0.0 {
        units += 1;
        left -= UNIT;
    }
    units
}

fn image_lanes(image: &[Vec<f64>], job: &Job) -> Vec<Lane> {
    let lane = |ready: &Vec<f64>| Lane::new(ready.clone(), job.image_cost * UNIT);
    image.iter().map(lane).collect()
}

fn log_lanes(log: &[Vec<f64>], job: &Job) -> Vec<Lane> {
    let cost = job.log_cost * UNIT;
    match job.players {
        Players::PerStream => log
            .iter()
            .map(|ready| Lane::new(ready.clone(), cost))
            .collect(),
        Players::Merged => {
            let mut all: Vec<f64> = log.iter().flatten().copied().collect();
            all.sort_by(f64::total_cmp);
            vec![Lane::new(all, cost)]
        }
        Players::Free => {
            let mut all: Vec<f64> = log.iter().flatten().copied().collect();
            all.sort_by(f64::total_cmp);
            let players = job.cores.max(1);
            (0..players)
                .map(|player| {
                    let own = all.iter().skip(player).step_by(players);
                    Lane::new(own.copied().collect(), cost)
                })
                .collect()
        }
    }
}

impl Lane {
    fn new(ready: Vec<f64>, cost: f64) -> Lane {
        Lane {
            ready,
            cost,
            next: 0,
            free_at: 0.0,
        }
    }

    /// Returns the earliest start of the lane's next unit. `None`: no unit is left.
    fn could_start(&self) -> Option<f64> {
        let ready = *self.ready.get(self.next)?;
        Some(ready.max(self.free_at))
    }
}

/// Schedules all units on the cores. Returns the time at which each lane ends.
fn place(lanes: &mut [Lane], cores: &mut [f64]) -> Vec<f64> {
    loop {
        let heads = lanes
            .iter()
            .enumerate()
            .filter_map(|(index, lane)| Some((index, lane.could_start()?)));
        let Some((index, start)) = heads.min_by(|a, b| a.1.total_cmp(&b.1)) else {
            return lanes.iter().map(|lane| lane.free_at).collect();
        };
        let core = cores
            .iter_mut()
            .min_by(|a, b| a.total_cmp(b))
            .expect("there is a core");
        let lane = &mut lanes[index];
        lane.free_at = start.max(*core) + lane.cost;
        *core = lane.free_at;
        lane.next += 1;
    }
}

/// Schedules level 1: each loader first reads a whole disk and then plays all the data. Returns the time at which the
/// last loader ends.
fn unpipelined(disks: &[Vec<f64>], cost: f64, cores: &mut [f64]) -> f64 {
    let mut lanes: Vec<Lane> = disks
        .iter()
        .map(|ready| {
            let last = ready.last().copied().unwrap_or(0.0);
            Lane::new(vec![last; ready.len()], cost * UNIT)
        })
        .collect();
    latest(&place(&mut lanes, cores))
}

fn latest(ends: &[f64]) -> f64 {
    ends.iter().copied().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a restart on the paper's machine as the paper's text describes it: disks of 29 MB/s and four CPUs. A
    /// physical replay runs at about 36 MB/s, because it took about 20 s for 721 MB.
    fn paper(players: Players, log_bytes: f64, disks: usize) -> Job {
        Job {
            image_disks: disks,
            image_bytes: 250e6,
            log_disks: disks,
            log_bytes,
            disk_rate: 29e6,
            image_cost: 1.0 / 200e6,
            log_cost: 1.0 / 36e6,
            players,
            cores: 4,
            level: 2,
        }
    }

    #[test]
    fn the_papers_own_figures_come_out_of_its_own_costs() {
        let physical = schedule(&paper(Players::Merged, 721e6, 4));
        let differential = schedule(&paper(Players::PerStream, 370e6, 4));
        let speedup = physical.log / differential.log;
        assert!((5.5..6.7).contains(&speedup), "{speedup}");
        let one = schedule(&paper(Players::Merged, 721e6, 1));
        let speedup = one.log / differential.log;
        assert!((6.5..8.2).contains(&speedup), "{speedup}");
    }

    #[test]
    fn each_level_is_at_least_as_fast_as_the_one_below() {
        for players in [Players::PerStream, Players::Free] {
            let mut last = f64::MAX;
            for level in 1..=4 {
                let total = schedule(&Job {
                    level,
                    ..paper(players, 370e6, 2)
                })
                .total;
                assert!(total <= last + 0.2, "level {level}: {total} after {last}");
                last = total;
            }
        }
        let two = schedule(&paper(Players::PerStream, 250e6, 2)).total;
        let four = schedule(&Job {
            level: 4,
            ..paper(Players::PerStream, 250e6, 2)
        })
        .total;
        assert!(two / four > 1.8, "equal halves overlap: {two} / {four}");
    }

    #[test]
    fn where_disks_are_no_wall_cores_are() {
        let fast = |players, cores| {
            schedule(&Job {
                disk_rate: 1e12,
                cores,
                log_disks: 8,
                ..paper(players, 400e6, 8)
            })
            .log
        };
        let speedup = fast(Players::Free, 1) / fast(Players::Free, 4);
        assert!((3.8..4.1).contains(&speedup), "{speedup}");
        let merged = fast(Players::Merged, 1) / fast(Players::Merged, 8);
        assert!((0.99..1.01).contains(&merged), "{merged}");
    }
}
