//! Formulas in closed form for the rate at which a log in the memory of mirrored nodes loses data.
//!
//! A node's memory is lost when the node fails. The node is back, empty, after a fixed time. Times to failure are
//! exponential. A group is *mirrored* while its two nodes are up and, if the writer's copy counts, the writer is up.
//! Under load, a mirrored group always has a *tail* of the log that is on no disk. The first failure opens a
//! *window*, at whose end the tail is on a disk. From then on, each write waits for the disk until the group is
//! mirrored again. Data are lost if the last holder of the tail fails within the window.
//!
//! | holders | window | rate of losses, to the first order |
//! |---|---|---|
//! | two nodes, nothing copied while one is away (the paper under load) | the repair R | 2 R / MTTF² |
//! | two nodes, the tail copied after a failure | the exposure E | 2 E / MTTF² |
//! | two nodes and the writer; after its failure, a takeover of time T drains the tail | E, or T once the writer has failed | (E + T)² / (MTTF² MTTF of the writer) |
//! | all at one power supply | none: they fail together | 1 / MTTF of the supply |
//!
//! The rate in the third row is the sum of three sequences of failures:
//!
//! * A node fails, and the other node and the writer fail within E: E².
//! * A node fails, the writer fails within E, and the other node fails within T: 2 E T.
//! * The writer fails, and both nodes fail within T: T².
//!
//! # Source
//! 003, section 3.2. The paper counts the wrong event: that all nodes are down at once.
//!
//! # Deviations
//! [`Cluster::losses_per_s`] makes only one approximation: a failure of power is so rare that it does not coincide with
//! another failure. A group leaves the mirrored state at the rate of its components' failures, times the chance that
//! all its components are up. The chance that data are lost is the same each time, because remaining lifetimes are
//! exponential. So the formula is also valid for the frequent failures of a simulation.

/// The number of seconds of a year of 365.25 days.
pub const YEAR_S: f64 = 31_557_600.0;
/// The paper's time between two failures of a node: one week, seconds.
pub const PAPER_MTTF_S: f64 = 604_800.0;
/// The paper's time of a repair: one minute, seconds.
pub const PAPER_REPAIR_S: f64 = 60.0;
/// The number of the paper's nodes. They form groups of two.
pub const PAPER_NODES: u32 = 8;

/// A writer that also keeps the tail.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Writer {
    /// The mean time between two failures of the writer, seconds.
    pub mttf_s: f64,
    /// The time from a failure of the writer until the next writer has drained the tail and is up, seconds.
    pub takeover_s: f64,
}

/// Groups of two nodes, with the other components that can fail.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cluster {
    /// The number of pairs of nodes; 1 if there is a writer.
    pub groups: usize,
    /// The mean time between two failures of a node, seconds.
    pub mttf_s: f64,
    /// The time that a node is away after a failure, seconds.
    pub repair_s: f64,
    /// The time from the failure of a node until the tail is on a disk, seconds. It is at most `repair_s`.
    pub exposure_s: f64,
    /// The writer, if its copy of the tail counts.
    pub writer: Option<Writer>,
    /// The mean time between two failures of the power supply that all components share, seconds.
    pub power_mttf_s: Option<f64>,
}

impl Cluster {
    /// Returns `groups` pairs of nodes with the paper's times. A tail is copied to a disk `exposure_s` seconds after
    /// the failure of a node.
    #[must_use]
    pub fn of_paper(groups: usize, exposure_s: f64) -> Cluster {
        Cluster {
            groups,
            mttf_s: PAPER_MTTF_S,
            repair_s: PAPER_REPAIR_S,
            exposure_s,
            writer: None,
            power_mttf_s: None,
        }
    }

    /// Adds a writer that keeps the tail and fails as often as a node.
    #[must_use]
    pub fn with_writer(self, takeover_s: f64) -> Cluster {
        assert_eq!(self.groups, 1, "the writer's copy is counted for one group");
        Cluster {
            writer: Some(Writer {
                mttf_s: self.mttf_s,
                takeover_s,
            }),
            ..self
        }
    }

    /// Adds a power supply that all components share.
    #[must_use]
    pub fn with_power(self, mttf_years: f64) -> Cluster {
        Cluster {
            power_mttf_s: Some(mttf_years * YEAR_S),
            ..self
        }
    }

    /// Returns a cluster whose nodes and writer fail `times` times as often.
    #[must_use]
    pub fn accelerated(self, times: f64) -> Cluster {
        assert!(times >= 1.0, "failures become more frequent, {times} times");
        Cluster {
            mttf_s: self.mttf_s / times,
            writer: self.writer.map(|writer| Writer {
                mttf_s: writer.mttf_s / times,
                ..writer
            }),
            ..self
        }
    }

    /// Returns the mean number of losses of data in a second.
    #[must_use]
    pub fn losses_per_s(&self) -> f64 {
        assert!(
            self.exposure_s <= self.repair_s,
            "a group whose tail is exposed is not mirrored"
        );
        let rate = 1.0 / self.mttf_s;
        let node_up = self.mttf_s / (self.mttf_s + self.repair_s);
        let group = match self.writer {
            None => 2.0 * rate * node_up.powi(2) * failing(rate, self.exposure_s),
            Some(writer) => {
                let writer_rate = 1.0 / writer.mttf_s;
                let writer_up = writer.mttf_s / (writer.mttf_s + writer.takeover_s);
                let both = rate + writer_rate;
                // The chance that the writer fails within the window, and that the second node survives until the end
                // of the takeover.
                let survives = (-rate * writer.takeover_s).exp() * writer_rate / both
                    * failing(both, self.exposure_s);
                let node_first = failing(writer_rate, self.exposure_s) - survives;
                let writer_first = failing(rate, writer.takeover_s).powi(2);
                node_up.powi(2)
                    * writer_up
                    * (2.0 * rate).mul_add(node_first, writer_rate * writer_first)
            }
        };
        let power = self.power_mttf_s.map_or(0.0, |mttf| 1.0 / mttf);
        crate::num::count_f64(self.groups).mul_add(group, power)
    }

    /// Returns the mean time between two losses, years.
    #[must_use]
    pub fn years(&self) -> f64 {
        1.0 / self.losses_per_s() / YEAR_S
    }
}

/// Returns the chance of at least one failure within `within_s` seconds, at `rate` failures a second.
fn failing(rate: f64, within_s: f64) -> f64 {
    -(-rate * within_s).exp_m1()
}

/// Returns the decimal logarithm of the chance that all nodes of the paper are down at once.
#[must_use]
pub fn all_down_log10() -> f64 {
    f64::from(PAPER_NODES) * (PAPER_REPAIR_S / PAPER_MTTF_S).log10()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEEK: f64 = PAPER_MTTF_S;

    fn near(ours: f64, theirs: f64) {
        assert!((ours / theirs - 1.0).abs() < 1e-3, "{ours} is not {theirs}");
    }

    #[test]
    fn a_pair_loses_data_every_97_years_and_four_every_24() {
        near(
            Cluster::of_paper(1, PAPER_REPAIR_S).years(),
            WEEK * WEEK / 120.0 / YEAR_S,
        );
        assert_eq!(Cluster::of_paper(1, PAPER_REPAIR_S).years().round(), 97.0);
        assert_eq!(Cluster::of_paper(4, PAPER_REPAIR_S).years().round(), 24.0);
        near(
            Cluster::of_paper(1, 0.15).years(),
            WEEK * WEEK / 0.3 / YEAR_S,
        );
        assert!((all_down_log10() - (1.0_f64 / 10_080.0).powi(8).log10()).abs() < 1e-9);
    }

    #[test]
    fn the_writers_tail_turns_a_square_into_a_cube() {
        for (exposure, takeover) in [(0.15, 60.0), (0.15, 1.0), (30.0, 2.0)] {
            let cluster = Cluster::of_paper(1, exposure).with_writer(takeover);
            let seconds = WEEK.powi(3) / (exposure + takeover).powi(2);
            near(cluster.years(), seconds / YEAR_S);
        }
    }

    #[test]
    fn a_writer_that_never_fails_leaves_nothing_to_lose_and_one_that_always_does_leaves_the_pair() {
        let pair = Cluster::of_paper(1, 0.15);
        let with = |mttf_s| Cluster {
            writer: Some(Writer {
                mttf_s,
                takeover_s: 1e-9,
            }),
            ..pair
        };
        assert!(with(1e30).years() > 1e12);
        // If the writer is almost always down, data are lost when the other node fails within the window.
        let lost = with(1e-3);
        let node_first = 2.0 / WEEK * failing(1.0 / WEEK, 0.15);
        assert!(lost.losses_per_s() < node_first * 1.01);
    }

    #[test]
    fn a_shared_power_supply_decides() {
        let four = Cluster::of_paper(4, PAPER_REPAIR_S);
        near(
            four.with_power(2.0).years(),
            1.0 / (1.0 / 2.0 + 1.0 / four.years()),
        );
        near(Cluster::of_paper(4, 0.15).with_power(2.0).years(), 2.0);
    }
}
