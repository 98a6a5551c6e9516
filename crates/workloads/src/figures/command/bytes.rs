//! Section V-C3: the bytes that one transaction logs, by the form of the log.

use anyhow::Result;
use perdura::ValueForm;
use serde_json::Value;

use super::super::Lab;
use super::super::claim::{Better, Bounds, Claim, Finding};
use super::super::figure::{Figure, cell};
use super::super::paper::Paper;
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
                    // A refused call changes and logs nothing, so only calls of the kind `counted` are included.
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

/// Returns the mean number of bytes over the kinds of TPC-C's transactions that write.
fn mean(sized: &[Sized], scheme: LogScheme) -> f64 {
    let all = KINDS[1..].iter().map(|kind| find(sized, kind, scheme));
    all.sum::<f64>() / count_f64(KINDS.len() - 1)
}

/// Returns the bytes of a hundred transactions of TPC-C in the mix.
fn in_mix(sized: &[Sized], scheme: LogScheme) -> f64 {
    let cards = Mix::default().cards;
    let of = [Kind::NewOrder, Kind::Payment, Kind::Delivery].map(|kind| {
        let bytes = find(sized, Kind::NAMES[kind.index()], scheme);
        f64::from(cards[kind.index()]) * bytes
    });
    of.into_iter().sum()
}

fn claims(sized: &[Sized]) -> Vec<Claim> {
    let command = |kind| find(sized, kind, LogScheme::Command);
    let says = [
        ("vote", Paper::of("55", 55.0)),
        ("new_order", Paper::of("170, the most", 170.0)),
        ("payment", Paper::between("50 to 170", 50.0, 170.0)),
        ("delivery", Paper::of("50, the least", 50.0)),
    ];
    let mut claims = Vec::from(says.map(|(kind, paper)| {
        let value = find(sized, kind, VALUE);
        Claim::measured(
            &format!("command of {kind}"),
            paper,
            Bounds(Better::Less, Finding::AtMost(value)),
            command(kind),
            "required: no more than the value log of the same transaction",
        )
        .in_unit(" B")
    }));
    claims.push(Claim::measured(
        "command of delivery / of new_order",
        Paper::of("0.29: 50 and 170", 50.0 / 170.0),
        Bounds(Better::Neither, Finding::AtMost(1.0)),
        ratio(command("delivery"), command("new_order")),
        "",
    ));
    claims.push(
        Claim::measured(
            "value of vote",
            Paper::of("81", 81.0),
            Bounds(Better::More, Finding::AtLeast(command("vote"))),
            find(sized, "vote", VALUE),
            "the id of a vote is no column here; the count of a phone's votes is a row",
        )
        .in_unit(" B"),
    );
    claims.extend(form_claims(sized));
    claims
}

/// Returns the claims that compare forms of the log.
fn form_claims(sized: &[Sized]) -> Vec<Claim> {
    let over = |a, b| ratio(mean(sized, a), mean(sized, b));
    let (rows, before) = (
        LogScheme::Value(ValueForm::Rows),
        LogScheme::Value(ValueForm::Before),
    );
    let is_more = Bounds(Better::More, Finding::AtLeast(1.0));
    vec![
        Claim::own(
            "value / command, weighted as in the mix",
            Finding::AtLeast(1.0),
            ratio(in_mix(sized, VALUE), in_mix(sized, LogScheme::Command)),
            "",
        ),
        Claim::measured(
            "value / command, mean of the three transactions of TPC-C that write",
            Paper::of("about 10", 10.0),
            is_more,
            over(VALUE, LogScheme::Command),
            "a Delivery changes about a hundred order lines",
        ),
        Claim::measured(
            "whole rows / columns, the same mean",
            Paper::of("nearly 5", 5.0),
            is_more,
            over(rows, VALUE),
            "",
        ),
        Claim::measured(
            "rows before and after / rows, the same mean",
            Paper::of("nearly 2", 2.0),
            is_more,
            over(before, rows),
            "",
        ),
        Claim::own(
            "differential / command, the same mean",
            Finding::AtLeast(1.0),
            over(LogScheme::Differential, LogScheme::Command),
            "page records: not in the paper",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::super::claim::Verdict;
    use super::super::testing::expect;
    use super::*;

    /// Returns the sizes of records. The command log has the sizes `commands`. Each other form has one of `multiples`
    /// times these sizes. For a vote, the multiple is 81/55.
    fn sizes(commands: [f64; 4], multiples: [f64; 4]) -> Vec<Sized> {
        let of = |kind: usize, form: usize| {
            let multiple = match form {
                0 => 1.0,
                _ if kind == 0 => 81.0 / 55.0,
                form => multiples[form - 1],
            };
            Sized {
                kind: KINDS[kind],
                scheme: FORMS[form],
                bytes: commands[kind] * multiple,
            }
        };
        (0..KINDS.len())
            .flat_map(|kind| (0..FORMS.len()).map(move |form| of(kind, form)))
            .collect()
    }

    const COMMANDS: [&str; 4] = [
        "command of vote",
        "command of new_order",
        "command of payment",
        "command of delivery",
    ];
    const OTHERS: [&str; 5] = [
        "command of delivery / of new_order",
        "value of vote",
        "value / command, mean of the three transactions of TPC-C that write",
        "whole rows / columns, the same mean",
        "rows before and after / rows, the same mean",
    ];
    const OWN: [&str; 2] = [
        "value / command, weighted as in the mix",
        "differential / command, the same mean",
    ];

    #[test]
    fn the_papers_values_are_as_the_paper() {
        let made = claims(&sizes([55.0, 170.0, 100.0, 50.0], [10.0, 50.0, 100.0, 5.0]));
        for what in COMMANDS.into_iter().chain(OTHERS) {
            expect(&made, what, Verdict::AsPaper);
        }
        for what in OWN {
            expect(&made, what, Verdict::Reported);
        }
    }

    #[test]
    fn each_claim_comes_out_otherwise_with_other_data() {
        let weak = claims(&sizes([75.0, 250.0, 200.0, 90.0], [2.0, 4.0, 6.0, 5.0]));
        for what in COMMANDS {
            expect(&weak, what, Verdict::Weaker);
        }
        for what in [OTHERS[0], OTHERS[2], OTHERS[3], OTHERS[4]] {
            expect(&weak, what, Verdict::Weaker);
        }
        let mut against = sizes([55.0, 50.0, 100.0, 170.0], [0.9, 0.8, 0.7, 0.5]);
        for sized in &mut against {
            if sized.kind == "vote" && sized.scheme == VALUE {
                sized.bytes = 30.0;
            }
        }
        let against = claims(&against);
        for what in COMMANDS.into_iter().chain(OTHERS).chain(OWN) {
            expect(&against, what, Verdict::Fails);
        }
        let small = claims(&sizes([40.0, 62.0, 31.0, 17.0], [40.0, 50.0, 60.0, 5.0]));
        expect(&small, COMMANDS[0], Verdict::Stronger);
        expect(&small, "value of vote", Verdict::Weaker);
    }
}
