//! Section 3.2: the frequency and the causes of losses of data, from closed forms and from a simulation.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use perdura_base::checksum::mix64;
use perdura_base::num::to_u64;
use serde_json::Value;

use super::super::Lab;
use super::super::figure::{Figure, cell};
use super::super::plot::{Chart, Panel, Plot, Series};
use super::loss_claims::{Computed, claims, farthest};
use super::losses::{Cluster, PAPER_NODES, PAPER_REPAIR_S, YEAR_S};
use super::nodes::{Found, simulate};
use super::table;
use crate::num::rounded;

/// The exposure, in seconds, in cases in which the tail is copied to a disk soon after a failure. An exposure is the
/// time from a node's failure until the tail is on a disk.
pub(super) const EXPOSURE_S: f64 = 0.15;
/// The assumed times between two failures of a shared power supply, years.
pub(super) const POWER_YEARS: [f64; 2] = [2.0, 5.0];
/// The exposures for which the lines of the plot are computed, seconds.
const EXPOSURES_S: [f64; 9] = [0.05, 0.15, 0.5, 1.0, 3.0, 10.0, 20.0, 40.0, 60.0];

/// A cluster and the settings of its simulation.
struct Case {
    what: &'static str,
    cluster: Cluster,
    /// The factor by which the nodes and the writer fail more often in the simulation than in `cluster`.
    times: f64,
}

/// A case and the results of its simulation.
struct Point<'a> {
    case: &'a Case,
    found: Found,
}

impl Point<'_> {
    /// Returns the mean time between two losses in the simulation, years. The simulation accelerates the failures. Its
    /// result is multiplied by the ratio of the closed forms without and with acceleration.
    fn years(&self) -> f64 {
        let cluster = self.case.cluster;
        self.found.years() * cluster.years() / cluster.accelerated(self.case.times).years()
    }

    /// Returns the result of the simulation, divided by that of the closed form.
    fn of_closed(&self) -> f64 {
        self.years() / self.case.cluster.years()
    }
}

/// Returns all cases to simulate. In each case, about one failure in 10,000, or more, causes a loss.
fn cases() -> Vec<Case> {
    let pair = |exposure_s| Cluster::of_paper(1, exposure_s);
    let four = |exposure_s| Cluster::of_paper(4, exposure_s);
    let case = |what, cluster, times| Case {
        what,
        cluster,
        times,
    };
    vec![
        case("a pair, the paper's way", pair(PAPER_REPAIR_S), 1.0),
        case("four pairs, the paper's way", four(PAPER_REPAIR_S), 1.0),
        case("a pair, exposure 10 s", pair(10.0), 24.0),
        case("a pair, exposure 1 s", pair(1.0), 240.0),
        case("a pair, exposure 0.15 s", pair(EXPOSURE_S), 1_600.0),
        case("a pair, exposure 0.15 s, again", pair(EXPOSURE_S), 8_000.0),
        case(
            "and the writer's tail, takeover 60 s",
            pair(EXPOSURE_S).with_writer(60.0),
            400.0,
        ),
        case(
            "and the writer's tail, takeover 1 s",
            pair(EXPOSURE_S).with_writer(1.0),
            10_000.0,
        ),
        case(
            "four pairs, one power supply, 2 years",
            four(PAPER_REPAIR_S).with_power(POWER_YEARS[0]),
            1.0,
        ),
        case(
            "four pairs, one power supply, 5 years",
            four(PAPER_REPAIR_S).with_power(POWER_YEARS[1]),
            1.0,
        ),
        case(
            "the same, exposure 0.15 s, 2 years",
            four(EXPOSURE_S).with_power(POWER_YEARS[0]),
            1.0,
        ),
        case(
            "the same, exposure 0.15 s, 5 years",
            four(EXPOSURE_S).with_power(POWER_YEARS[1]),
            1.0,
        ),
    ]
}

/// Makes the figure.
///
/// # Errors
/// None: the function always succeeds.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let cases = cases();
    let points = simulated(lab, &cases);
    let mut setting = vec![
        format!(
            "{PAPER_NODES} nodes in four pairs, each fails once a week (exponential) and is back, empty, after a minute; a writer fails as often"
        ),
        "data are lost when the last holder of a tail fails before the tail is on a disk; the paper's way copies nothing under load".into(),
        format!(
            "exposure: from a node's failure until the tail is on a disk; takeover: from the writer's failure until its tail is drained; a shared \
             power supply fails every {} or {} years: assumptions",
            POWER_YEARS[0], POWER_YEARS[1]
        ),
        format!(
            "simulated event by event until {} losses; rare ones with nodes that fail `faster` times as often, scaled back by the closed form",
            lab.scale.memory_disk.losses
        ),
    ];
    setting.extend(lines(&points));
    Ok(Figure {
        name: "003-reliability",
        title: "years between two losses of data".into(),
        scale: lab.scale.name,
        seed: lab.seed,
        setting,
        columns: "cluster,groups,exposure_s,takeover_s,power_years,faster,losses,events,\
            simulated_years,closed_form_years,simulated_of_closed",
        rows: points.iter().map(row).collect(),
        claims: claims(
            farthest(points.iter().map(Point::of_closed)),
            &Computed::of_paper(),
        ),
        plot: plot(&points),
    })
}

/// Simulates the cases in parallel, one on each core. The seed of a case depends only on the lab's seed and the
/// number of the case.
fn simulated<'a>(lab: &Lab<'_>, cases: &'a [Case]) -> Vec<Point<'a>> {
    let (losses, seed) = (lab.scale.memory_disk.losses, lab.seed);
    let next = AtomicUsize::new(0);
    lab.say(&format!("{} clusters, {losses} losses each", cases.len()));
    let work = || {
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(number) else {
                return done;
            };
            let own = mix64(mix64(seed).wrapping_add(to_u64(number)));
            let found = simulate(case.cluster.accelerated(case.times), losses, own);
            done.push((number, Point { case, found }));
        }
    };
    let mut points = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..lab.cores.max(1)).map(|_| scope.spawn(work)).collect();
        let mut points = Vec::new();
        for thread in threads {
            match thread.join() {
                Ok(done) => points.extend(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        points
    });
    points.sort_by_key(|(number, _)| *number);
    assert_eq!(points.len(), cases.len(), "each is simulated once");
    points.into_iter().map(|(_, point)| point).collect()
}

/// Returns the settings of a cluster that differ between cases: the exposure in seconds, the takeover in seconds, and
/// the years between two failures of the power supply.
fn shape(cluster: &Cluster) -> [Option<f64>; 3] {
    let power = cluster.power_mttf_s.map(|mttf| mttf / YEAR_S);
    let takeover = cluster.writer.map(|writer| writer.takeover_s);
    [Some(cluster.exposure_s), takeover, power]
}

fn row(point: &Point<'_>) -> Vec<Value> {
    let cluster = &point.case.cluster;
    let mut row: Vec<Value> = vec![point.case.what.into(), cluster.groups.into()];
    row.extend(shape(cluster).map(|number| number.map_or(Value::from(""), cell)));
    row.push(cell(point.case.times));
    row.push(point.found.losses.into());
    row.push(point.found.events.into());
    row.extend([point.years(), cluster.years(), point.of_closed()].map(cell));
    row
}

fn lines(points: &[Point<'_>]) -> Vec<String> {
    let head = [
        "cluster",
        "faster",
        "closed form, years",
        "simulated, years",
        "ratio",
    ];
    let row = |point: &Point<'_>| {
        let numbers = [
            point.case.times,
            point.case.cluster.years(),
            point.years(),
            point.of_closed(),
        ];
        let cells = numbers.iter().map(|number| rounded(*number).to_string());
        std::iter::once(point.case.what.to_owned())
            .chain(cells)
            .collect()
    };
    table(&head, &points.iter().map(row).collect::<Vec<_>>())
}

fn plot(points: &[Point<'_>]) -> Plot {
    let closed = |of: &dyn Fn(f64) -> Cluster| {
        let at = |exposure: &f64| (*exposure, of(*exposure).years());
        EXPOSURES_S.iter().map(at).collect()
    };
    let found = |is_it: &dyn Fn(&Cluster) -> bool| {
        let of = points.iter().filter(|point| is_it(&point.case.cluster));
        let at = |point: &Point<'_>| (point.case.cluster.exposure_s, point.years());
        let mut found: Vec<(f64, f64)> = of.map(at).collect();
        found.sort_by(|a, b| a.0.total_cmp(&b.0));
        found
    };
    let is_bare = |of: &Cluster| of.writer.is_none() && of.power_mttf_s.is_none();
    let is_at_power = |of: &Cluster, years: f64| of.power_mttf_s == Some(years * YEAR_S);
    let [often, seldom] = POWER_YEARS;
    let series = vec![
        Series::broken(
            "a pair and the writer, takeover 60 s",
            closed(&|exposure| Cluster::of_paper(1, exposure).with_writer(PAPER_REPAIR_S)),
        ),
        Series::broken("a pair", closed(&|exposure| Cluster::of_paper(1, exposure))),
        Series::solid(
            "a pair, simulated",
            found(&|of| is_bare(of) && of.groups == 1),
        ),
        Series::broken(
            "four pairs",
            closed(&|exposure| Cluster::of_paper(4, exposure)),
        ),
        Series::solid(
            format!("four pairs, a power failure in {often} years, simulated"),
            found(&|of| is_at_power(of, often)),
        ),
        Series::solid(
            format!("four pairs, a power failure in {seldom} years, simulated"),
            found(&|of| is_at_power(of, seldom)),
        ),
    ];
    Plot {
        title: "Section 3.2: years between two losses".into(),
        subtitle: "nodes that fail once a week and are back after a minute".into(),
        panels: vec![Panel::new(
            "",
            "Years",
            Chart::powers("From a failure until the tail is on a disk (s)", series),
        )],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Scale;

    #[test]
    fn a_simulation_in_which_nodes_fail_faster_is_scaled_back() {
        let lab = Lab::new(Scale::TINY, 5, 2, &|_| {});
        let case = Case {
            what: "a pair",
            cluster: Cluster::of_paper(1, EXPOSURE_S),
            times: 4_000.0,
        };
        let found = simulate(case.cluster.accelerated(case.times), 3_000, lab.seed);
        let point = Point { case: &case, found };
        assert!(
            (point.of_closed() - 1.0).abs() < 0.08,
            "{}",
            point.of_closed()
        );
        assert!(point.years() > 30_000.0, "{} years", point.years());
    }

    #[test]
    fn each_case_is_simulated_once_in_its_place_whatever_the_cores() {
        let cases = &cases()[8..];
        let of = |cores| {
            let lab = Lab::new(Scale::TINY, 5, cores, &|_| {});
            let points = simulated(&lab, cases);
            points
                .iter()
                .map(|point| (point.case.what, point.found))
                .collect::<Vec<_>>()
        };
        assert_eq!(of(1), of(3));
    }
}
