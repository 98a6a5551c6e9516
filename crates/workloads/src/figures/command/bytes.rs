//! Section V-C3: the bytes that one transaction logs, by the form of the log.

use anyhow::Result;
use perdura::ValueForm;
use serde_json::Value;

use super::super::Lab;
use super::super::claim::{Claim, Target};
use super::super::figure::{Figure, cell};
use super::super::plot::{Bar, Chart, Panel, Plot};
use super::stand::{Setting, Stand, Workload, driven};
use super::{VALUE, label};
use crate::drive::{Limit, LogScheme};
use crate::num::{count_f64, f64_of, ratio};
use crate::tpcc::inputs::{Kind, Mix};

/// The compared forms of the log.
const FORMS: [LogScheme; 5] = [
    LogScheme::Command,
    VALUE,
    LogScheme::Value(ValueForm::Rows),
    LogScheme::Value(ValueForm::Before),
    LogScheme::Differential,
];

/// The transactions that log something.
const KINDS: [&str; 4] = ["vote", "new_order", "payment", "delivery"];

/// The size of the records of one kind of transaction with one form of the log.
struct Sized {
    kind: &'static str,
    scheme: LogScheme,
    bytes: f64,
}

/// Makes the figure.
///
/// # Errors
/// Errors of the engine.
pub fn make(lab: &Lab<'_>) -> Result<Figure> {
    let sized = measure(lab)?;
    let panels = KINDS.map(|kind| {
        Panel::new(
            kind,
            "Bytes in the log",
            Chart::Bars(
                FORMS
                    .map(|scheme| Bar {
                        label: short(scheme).into(),
                        parts: vec![("record with its frame".into(), find(&sized, kind, scheme))],
                    })
                    .to_vec(),
            ),
        )
    });
    Ok(Figure {
        name: "001-bytes",
        title: "bytes logged by a transaction".into(),
        scale: lab.scale.name,
        seed: lab.seed,
        setting: vec![format!(
            "Means, frames included, blocks' headers and padding not; {} transactions of Voter and of TPC-C \
             ({} warehouses, {} items, all transactions local)",
            lab.scale.typed.sized_txns, lab.scale.typed.tpcc.warehouses, lab.scale.typed.tpcc.items
        )],
        columns: "transaction,log,bytes",
        rows: sized
            .iter()
            .map(|s| -> Vec<Value> { vec![s.kind.into(), label(s.scheme).into(), cell(s.bytes)] })
            .collect(),
        claims: claims(&sized),
        plot: Plot {
            title: "Section V-C3: bytes logged by a transaction".into(),
            subtitle: "with frames; columns, rows, before: forms of the value log".into(),
            panels: panels.to_vec(),
        },
    })
}

/// Returns the text below a bar.
fn short(scheme: LogScheme) -> &'static str {
    match scheme {
        LogScheme::Value(ValueForm::Columns) => "columns",
        LogScheme::Value(ValueForm::Rows) => "rows",
        LogScheme::Value(ValueForm::Before) => "before",
        other => other.name(),
    }
}

fn measure(lab: &Lab<'_>) -> Result<Vec<Sized>> {
    let limit = Limit::Txns(lab.scale.typed.sized_txns);
    let mut sized = Vec::new();
    for scheme in FORMS {
        lab.say(&format!("bytes, {}", label(scheme)));
        for workload in [Workload::Voter, Workload::Tpcc] {
            let setting = Setting::of(workload, scheme, lab.scale.typed.tpcc);
            let report = Stand::new(setting, lab.seed)?.run(driven(1, None, limit))?;
            match workload {
                Workload::Voter => {
                    // A refused call changes and logs nothing, so only counted calls are included.
                    let counted = f64_of(report.kinds[0].txns);
                    sized.push(Sized {
                        kind: KINDS[0],
                        scheme,
                        bytes: ratio(f64_of(report.log_bytes), counted),
                    });
                }
                Workload::Tpcc => {
                    let kinds = report
                        .kinds
                        .iter()
                        .filter(|kind| KINDS.contains(&kind.name));
                    sized.extend(kinds.map(|kind| Sized {
                        kind: kind.name,
                        scheme,
                        bytes: kind.log_bytes_per_txn.unwrap_or(0.0),
                    }));
                }
            }
        }
    }
    Ok(sized)
}

fn find(sized: &[Sized], kind: &str, scheme: LogScheme) -> f64 {
    let found = sized.iter().find(|s| s.kind == kind && s.scheme == scheme);
    found.map_or(0.0, |s| s.bytes)
}

fn claims(sized: &[Sized]) -> Vec<Claim> {
    let of = |kind, scheme| find(sized, kind, scheme);
    let asked = [
        ("vote", "55", 45.0),
        ("new_order", "170, the most", 100.0),
        ("payment", "between", 60.0),
        ("delivery", "50, the least", 40.0),
    ];
    let mut claims: Vec<Claim> = asked
        .into_iter()
        .map(|(kind, paper, most)| {
            Claim::measured(
                &format!("command of {kind}"),
                paper,
                Target::AtMost(most),
                of(kind, LogScheme::Command),
                "",
            )
            .in_unit(" B")
        })
        .collect();
    let mean = |scheme| {
        let all = KINDS[1..].iter().map(|kind| of(kind, scheme));
        all.sum::<f64>() / count_f64(KINDS.len() - 1)
    };
    let value = |form| LogScheme::Value(form);
    claims.push(
        Claim::reported(
            "value of vote",
            "81",
            of("vote", VALUE),
            "the id of a vote is no column here; the count of a phone's votes is a row",
        )
        .in_unit(" B"),
    );
    let in_mix = |scheme| {
        let cards = Mix::default().cards;
        let of = [Kind::NewOrder, Kind::Payment, Kind::Delivery]
            .map(|kind| f64::from(cards[kind.index()]) * of(Kind::NAMES[kind.index()], scheme));
        of.into_iter().sum::<f64>()
    };
    claims.push(Claim::measured(
        "value / command, weighted as in the mix",
        "-",
        Target::AtLeast(2.0),
        ratio(in_mix(VALUE), in_mix(LogScheme::Command)),
        "",
    ));
    claims.push(Claim::measured(
        "value / command, mean of the three transactions of TPC-C that write",
        "about 10",
        Target::AtLeast(2.0),
        ratio(mean(VALUE), mean(LogScheme::Command)),
        "the shape is asked for; a Delivery changes about a hundred order lines",
    ));
    claims.push(Claim::measured(
        "whole rows / columns, the same mean",
        "nearly 5",
        Target::AtLeast(1.0),
        ratio(mean(value(ValueForm::Rows)), mean(VALUE)),
        "",
    ));
    claims.push(Claim::measured(
        "rows before and after / rows, the same mean",
        "nearly 2",
        Target::AtLeast(1.0),
        ratio(mean(value(ValueForm::Before)), mean(value(ValueForm::Rows))),
        "",
    ));
    claims.push(Claim::reported(
        "differential / command, the same mean",
        "-",
        ratio(mean(LogScheme::Differential), mean(LogScheme::Command)),
        "page records: not in the paper",
    ));
    claims
}
