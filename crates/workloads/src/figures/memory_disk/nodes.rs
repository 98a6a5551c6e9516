//! Simulates nodes that fail and return, event by event, to check the results of [`losses`](super::losses).
//!
//! Each component and each window has a clock: the time that is left until its next event. So a window of a fraction
//! of a second keeps its precision over a million years. The result depends only on the seed.

use fastrand::Rng;

use super::losses::{Cluster, YEAR_S};
use crate::num::{f64_of, ratio};

/// The writer's bit in a set of holders. The two nodes have the bits 1 and 2.
const WRITER: u8 = 4;
/// The set of both nodes: the holders of a tail if the writer has no copy.
const NODES: u8 = 3;

/// The state of a group's tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tail {
    /// All holders have the tail, and no disk has it.
    Mirrored,
    /// A window is open, and these holders still have the tail.
    Exposed(u8),
    /// The tail is on a disk, or lost.
    Settled,
}

/// The event of a clock.
#[derive(Debug, Clone, Copy)]
enum What {
    /// The end of a group's window. If a node returns at the same instant, the window ends first.
    Window(usize),
    /// The failure or the return of a node, given by its group and its bit.
    Node(usize, u8),
    /// The failure of the writer, or the end of the takeover.
    Writer,
    /// The failure of the power supply.
    Power,
}

/// The results of a simulation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    /// The number of losses of data.
    pub losses: u64,
    /// The number of simulated events.
    pub events: u64,
    /// The simulated time, seconds.
    pub seconds: f64,
}

impl Found {
    /// Returns the mean time between two losses, years.
    #[must_use]
    pub fn years(&self) -> f64 {
        ratio(self.seconds / YEAR_S, f64_of(self.losses))
    }
}

/// The state of a simulated cluster.
struct Nodes {
    cluster: Cluster,
    random: Rng,
    what: Vec<What>,
    /// The time left until each event, seconds. Infinite while no event is due.
    left: Vec<f64>,
    up: Vec<bool>,
    tails: Vec<Tail>,
}

/// Simulates a cluster until data have been lost `losses` times.
#[must_use]
pub fn simulate(cluster: Cluster, losses: u64, seed: u64) -> Found {
    assert!(
        cluster.exposure_s <= cluster.repair_s,
        "a window ends before its node returns"
    );
    let mut nodes = Nodes::new(cluster, seed);
    let mut found = Found {
        losses: 0,
        events: 0,
        seconds: 0.0,
    };
    while found.losses < losses {
        found.seconds += nodes.step(&mut found.losses);
        found.events += 1;
    }
    found
}

impl Nodes {
    fn new(cluster: Cluster, seed: u64) -> Nodes {
        let groups = 0..cluster.groups;
        let mut what: Vec<What> = groups.clone().map(What::Window).collect();
        what.extend(groups.flat_map(|group| [What::Node(group, 1), What::Node(group, 2)]));
        what.extend(cluster.writer.map(|_| What::Writer));
        what.extend(cluster.power_mttf_s.map(|_| What::Power));
        let mut nodes = Nodes {
            cluster,
            random: Rng::with_seed(seed),
            left: vec![f64::INFINITY; what.len()],
            up: vec![true; what.len()],
            tails: vec![Tail::Mirrored; cluster.groups],
            what,
        };
        for clock in 0..nodes.what.len() {
            nodes.left[clock] = nodes.life(clock);
        }
        nodes
    }

    /// Chooses, at random, the seconds until a component fails. For a window, the result is infinite.
    fn life(&mut self, clock: usize) -> f64 {
        let mean = match self.what[clock] {
            What::Window(_) => return f64::INFINITY,
            What::Node(..) => self.cluster.mttf_s,
            What::Writer => self
                .cluster
                .writer
                .map_or(f64::INFINITY, |writer| writer.mttf_s),
            What::Power => self.cluster.power_mttf_s.unwrap_or(f64::INFINITY),
        };
        -mean * (1.0 - self.random.f64()).ln()
    }

    /// Runs the next event. Returns the simulated time that passed until it.
    fn step(&mut self, losses: &mut u64) -> f64 {
        let mut next = 0;
        for (clock, left) in self.left.iter().enumerate() {
            if *left < self.left[next] {
                next = clock;
            }
        }
        let passed = self.left[next];
        assert!(passed.is_finite(), "something can always fail");
        for left in &mut self.left {
            *left -= passed;
        }
        match self.what[next] {
            What::Window(group) => {
                self.tails[group] = Tail::Settled;
                self.left[next] = f64::INFINITY;
            }
            What::Power => {
                *losses += u64::from(self.power_fails());
                self.left[next] = self.life(next);
            }
            What::Node(group, bit) if self.up[next] => {
                self.goes_down(next, self.cluster.repair_s);
                *losses += u64::from(self.holder_fails(group, bit, self.cluster.exposure_s));
            }
            What::Writer if self.up[next] => {
                let takeover_s = self.cluster.writer.map_or(0.0, |writer| writer.takeover_s);
                self.goes_down(next, takeover_s);
                *losses += u64::from(self.holder_fails(0, WRITER, takeover_s));
            }
            What::Node(group, _) => self.returns(next, group),
            What::Writer => self.returns(next, 0),
        }
        passed
    }

    fn goes_down(&mut self, clock: usize, for_s: f64) {
        self.up[clock] = false;
        self.left[clock] = for_s;
    }

    /// Removes a failed holder of a group's tail. Returns true if it was the last holder, so that data are lost.
    fn holder_fails(&mut self, group: usize, bit: u8, window_s: f64) -> bool {
        let all = match self.cluster.writer {
            Some(_) => NODES | WRITER,
            None => NODES,
        };
        let (holders, opens) = match self.tails[group] {
            Tail::Settled => return false,
            Tail::Mirrored => (all & !bit, true),
            // A failed writer no longer copies the tail to a disk. The takeover begins the copy again, so the window
            // is set anew.
            Tail::Exposed(holders) => (holders & !bit, bit == WRITER),
        };
        if holders == 0 {
            self.tails[group] = Tail::Settled;
            self.left[group] = f64::INFINITY;
            return true;
        }
        self.tails[group] = Tail::Exposed(holders);
        if opens {
            self.left[group] = window_s;
        }
        false
    }

    /// Marks a node or the writer as up. If all nodes of the group and the writer are up, they mirror the tail again.
    fn returns(&mut self, clock: usize, group: usize) {
        self.up[clock] = true;
        self.left[clock] = self.life(clock);
        let is_of = |what: &What| match what {
            What::Node(of, _) => *of == group,
            What::Writer => true,
            What::Window(_) | What::Power => false,
        };
        let mut all = self.what.iter().zip(&self.up);
        if all.all(|(what, up)| *up || !is_of(what)) {
            assert_eq!(
                self.tails[group],
                Tail::Settled,
                "a window ends before its nodes are back"
            );
            self.tails[group] = Tail::Mirrored;
        }
    }

    /// Takes all components down at once. Returns true if a tail was on no disk, so that data are lost.
    fn power_fails(&mut self) -> bool {
        for clock in 0..self.what.len() {
            match self.what[clock] {
                What::Window(_) => self.left[clock] = f64::INFINITY,
                What::Node(..) | What::Writer => self.goes_down(clock, self.cluster.repair_s),
                What::Power => {}
            }
        }
        let is_lost = self.tails.iter().any(|tail| *tail != Tail::Settled);
        self.tails.fill(Tail::Settled);
        is_lost
    }
}

#[cfg(test)]
mod tests {
    use super::super::losses::PAPER_REPAIR_S;
    use super::*;

    fn agrees(cluster: Cluster, losses: u64) {
        let found = simulate(cluster, losses, 7);
        let of = found.years() / cluster.years();
        let sigmas = (of - 1.0).abs() * f64_of(losses).sqrt();
        assert!(
            sigmas < 4.0,
            "{cluster:?}: {of} of the closed form, {sigmas} standard errors"
        );
    }

    #[test]
    fn simulations_agree_with_the_closed_forms() {
        let pair = |exposure| Cluster::of_paper(1, exposure);
        agrees(pair(PAPER_REPAIR_S).accelerated(100.0), 2_000);
        agrees(pair(PAPER_REPAIR_S).accelerated(5_000.0), 5_000);
        agrees(pair(6.0).accelerated(1_000.0), 2_000);
        agrees(
            Cluster::of_paper(4, PAPER_REPAIR_S).accelerated(200.0),
            2_000,
        );
        agrees(pair(0.15).with_writer(60.0).accelerated(1_000.0), 2_000);
        agrees(pair(40.0).with_writer(10.0).accelerated(2_000.0), 3_000);
        agrees(Cluster::of_paper(4, PAPER_REPAIR_S).with_power(0.5), 1_000);
    }

    #[test]
    fn a_tail_that_is_copied_is_not_lost_and_the_last_holder_loses_it() {
        let cluster = Cluster::of_paper(1, 0.15).with_writer(1.0);
        let mut nodes = Nodes::new(cluster, 1);
        assert!(!nodes.holder_fails(0, 1, 0.15));
        assert_eq!(nodes.left[0], 0.15, "the window is open");
        assert!(!nodes.holder_fails(0, WRITER, 1.0));
        assert_eq!(nodes.left[0], 1.0, "the copy stopped, the takeover drains");
        assert!(nodes.holder_fails(0, 2, 0.15), "nobody has it");
        assert!(!nodes.holder_fails(0, 1, 0.15), "lost once");
        nodes.tails[0] = Tail::Settled;
        assert!(!nodes.power_fails(), "what is on a disk survives");
    }

    #[test]
    fn the_seed_decides() {
        let cluster = Cluster::of_paper(1, PAPER_REPAIR_S).accelerated(1_000.0);
        assert_eq!(simulate(cluster, 20, 3), simulate(cluster, 20, 3));
        assert_ne!(simulate(cluster, 20, 3), simulate(cluster, 20, 4));
    }
}
