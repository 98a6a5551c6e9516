//! The bottleneck of a run whose clients have no rate limit: the clients, the CPU or the disk.
//!
//! A client waits until its transaction is durable before it begins the next. By Little's law, `c` clients begin at
//! most `c / latency` transactions a second, whatever the log costs. If the clients are the bottleneck, a run compares
//! latencies and not the costs of logs. So each scheme runs with several numbers of clients. The schemes are compared
//! at a number at which the clients are not the bottleneck.

use super::super::claim::{Claim, Finding};
use super::stand::LOG_MBPS;
use super::sweep::{Point, Sweep};
use crate::drive::{LogScheme, RunReport};
use crate::num::{count_f64, f64_of, ratio, rounded};

/// The compared numbers of clients of each worker. The paper's server lets 5,000 transactions wait.
pub const COUNTS: [usize; 3] = [1_000, 5_000, 20_000];
/// The disk counts as the bottleneck if at least this part of its transfer rate is used.
const DISK_BUSY: f64 = 0.9;
/// The clients count as the bottleneck if they all wait for at least this part of the workers' time.
const CLIENTS_WAIT: f64 = 0.05;

/// The resource that limits a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bottleneck {
    /// All clients wait for the disk, which has bandwidth left.
    Clients,
    /// The workers always have a client to serve.
    Cpu,
    /// The bandwidth of the disk.
    Disk,
}

impl Bottleneck {
    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Bottleneck::Clients => "clients",
            Bottleneck::Cpu => "CPU",
            Bottleneck::Disk => "disk",
        }
    }
}

/// Returns what limits a point, by the medians of its rounds.
pub fn limit(point: &Point) -> Bottleneck {
    if point.median(disk_part) >= DISK_BUSY {
        Bottleneck::Disk
    } else if point.median(|run| run.waited_part) >= CLIENTS_WAIT {
        Bottleneck::Clients
    } else {
        Bottleneck::Cpu
    }
}

/// Returns the used part of the disk's transfer rate.
pub fn disk_part(run: &RunReport) -> f64 {
    let most = f64_of(LOG_MBPS) * 1e6 * run.seconds;
    ratio(f64_of(run.log_device_bytes), most)
}

/// Returns the mean number of clients that wait, by Little's law: throughput times latency.
pub fn waiting(run: &RunReport) -> f64 {
    run.tps * run.latency_mean_us / 1e6
}

/// Returns one claim for each number of clients, which names the bottleneck of the command log. A last claim checks the
/// numbers of waiting clients.
pub fn claims(sweep: &Sweep) -> Vec<Claim> {
    let command = |clients| sweep.closed(LogScheme::Command, clients);
    let mut claims = Vec::from(COUNTS.map(|clients| {
        Claim::own(
            &format!("command / none with {clients} clients a worker"),
            Finding::Any,
            command(clients).over(sweep.closed(LogScheme::None, clients), |run| run.tps),
            &limit_words(command(clients)),
        )
    }));
    let part = |run: &RunReport| ratio(waiting(run), count_f64(run.clients.unwrap_or(0)));
    let most = COUNTS.map(|clients| command(clients).median(part));
    claims.push(Claim::own(
        "most clients that wait, by Little's law / clients, command",
        Finding::AtMost(1.1),
        most.into_iter().fold(0.0, f64::max),
        "throughput times mean latency; above 1 the counts are wrong",
    ));
    claims
}

/// Returns the bottleneck of a point, and the values that show it, as text.
fn limit_words(point: &Point) -> String {
    let latency_s = point.median(|run| run.latency_mean_us) / 1e6;
    let clients = point.median(|run| count_f64(run.clients.unwrap_or(0)));
    format!(
        "limit: {}; Little's law allows {} clients / {} ms = {} a second; {} reached; all clients waited {} % of the \
         time; {} CPUs busy; {} % of the disk's rate used",
        limit(point).name(),
        rounded(clients),
        rounded(latency_s * 1e3),
        rounded(ratio(clients, latency_s)),
        rounded(point.median(|run| run.tps)),
        rounded(point.median(|run| run.waited_part) * 100.0),
        rounded(point.median(|run| ratio(run.cpu_seconds.unwrap_or(0.0), run.seconds))),
        rounded(point.median(disk_part) * 100.0),
    )
}

#[cfg(test)]
mod tests {
    use super::super::super::claim::Verdict;
    use super::super::testing::{sweep, verdict};
    use super::*;
    use crate::figures::command::stand::Workload;

    #[test]
    fn the_limit_follows_from_what_was_measured() {
        let mut point = Point::closed(LogScheme::Command, 1_000);
        point.runs.push(RunReport {
            seconds: 1.0,
            ..RunReport::default()
        });
        assert_eq!(limit(&point), Bottleneck::Cpu);
        point.runs[0].waited_part = 0.06;
        assert_eq!(limit(&point), Bottleneck::Clients);
        point.runs[0].log_device_bytes = 370_000_000;
        assert_eq!(limit(&point), Bottleneck::Disk);
    }

    #[test]
    fn schemes_are_compared_where_the_clients_do_not_limit() {
        let mut of = sweep(Workload::Voter);
        assert_eq!(of.free_clients(), 5_000);
        for point in &mut of.points {
            point.runs.iter_mut().for_each(|run| run.waited_part = 0.5);
        }
        assert_eq!(of.free_clients(), 20_000);
        for point in &mut of.points {
            point.runs.iter_mut().for_each(|run| run.waited_part = 0.0);
        }
        assert_eq!(of.free_clients(), 1_000);
    }

    #[test]
    fn a_limit_is_named_with_its_values_and_impossible_counts_fail() {
        let mut of = sweep(Workload::Voter);
        let made = claims(&of);
        assert!(made[0].why.contains("limit: clients") && made[1].why.contains("limit: CPU"));
        assert!(
            made[0]
                .why
                .contains("1000 clients / 2 ms = 500000 a second"),
            "{}",
            made[0].why
        );
        let what = "most clients that wait, by Little's law / clients, command";
        assert_eq!(verdict(&made, what), Verdict::Reported);
        for point in &mut of.points {
            point
                .runs
                .iter_mut()
                .for_each(|run| run.latency_mean_us *= 100.0);
        }
        assert_eq!(verdict(&claims(&of), what), Verdict::Fails);
    }
}
