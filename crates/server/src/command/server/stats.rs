//! The figures of commands as INFO and LATENCY HISTOGRAM show them.

use crate::command::lookup::Lookup;
use crate::latency::Figures;
use crate::options::ServerOptions;
use crate::stats::CommandStats;

fn per_call(figures: &Figures) -> String {
    let hundredths = (figures.took_ns / 10)
        .checked_div(figures.calls)
        .unwrap_or(0);
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// Returns the lines of INFO commandstats.
pub(crate) fn command_stats(stats: &CommandStats, lookup: &Lookup) -> Vec<(String, String)> {
    let named = stats.named(lookup);
    let line = |(name, figures): (String, &Figures)| {
        let value = format!(
            "calls={},usec={},usec_per_call={},rejected_calls={},failed_calls={}",
            figures.calls,
            figures.took_ns / 1000,
            per_call(figures),
            figures.rejected,
            figures.failed,
        );
        (format!("cmdstat_{name}"), value)
    };
    named.into_iter().map(line).collect()
}

/// Returns the lines of INFO errorstats.
pub(crate) fn error_stats(stats: &CommandStats) -> Vec<(String, String)> {
    let errors = stats.errors();
    let line = |(code, count)| (format!("errorstat_{code}"), format!("count={count}"));
    errors.map(line).collect()
}

/// Returns the lines of INFO latencystats.
pub(crate) fn latency_stats(
    stats: &CommandStats,
    lookup: &Lookup,
    options: &ServerOptions,
) -> Vec<(String, String)> {
    let percentiles = &options.latency_percentiles;
    let named = stats.named(lookup);
    let line = |(name, figures): (String, &Figures)| {
        let times = figures.times.as_ref()?;
        let one = |percent: &f64| {
            let ns = times.percentile_ns(*percent);
            format!("p{percent}={}.{:03}", ns / 1000, ns % 1000)
        };
        let value: Vec<String> = percentiles.iter().map(one).collect();
        Some((format!("latency_percentiles_usec_{name}"), value.join(",")))
    };
    named.into_iter().filter_map(line).collect()
}
