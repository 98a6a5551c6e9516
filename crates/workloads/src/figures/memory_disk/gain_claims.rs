//! The claims about table 3. The think time is fitted to one cell, so the gains at that cell's block size are no
//! evidence. The gains at the other block sizes are predictions of a model. One of the predicted cells is also measured
//! in real time.

use std::time::Duration;

use super::super::claim::{Better, Bounds, Claim, Finding};
use super::super::paper::Paper;
use super::cell::{FITTED_GAIN, REDO_KB, closed_think};
use super::paper::{BLOCKS_KB, PRINTED_GAINS, USERS, gain, mean_gain};
use super::table3::mean;
use super::tables::Tables;
use crate::num::{ratio, rounded};

/// The largest allowed difference of a predicted gain from the paper's, in percent of the disk's throughput.
const PREDICTED_WITHIN: f64 = 3.0;
/// The largest error that rounding in the paper's text can cause, in percent of the disk's throughput.
const ROUNDED_WITHIN: f64 = 0.5;

/// Returns a gain in percent.
fn percent(gain: f64) -> f64 {
    100.0 * (gain - 1.0)
}

/// Returns a gain of the paper, percent.
fn papers(gain: f64) -> Paper {
    let value = percent(gain);
    Paper::of(&rounded(value).to_string(), value)
}

/// Judges all results of table 3.
pub(super) fn claims(tables: &Tables) -> Vec<Claim> {
    let means = std::array::from_fn(mean_gain);
    let mut claims = vec![fitted(tables)];
    claims.extend((1..BLOCKS_KB.len()).map(|block| predicted(tables, block)));
    claims.extend(shape(tables));
    claims.extend(in_real_time(tables));
    claims.extend(printed(&means));
    claims.extend(think_times(tables));
    claims
}

/// Judges the mean gain at the block size of the fitted cell. In the model, the gain hardly depends on the number of
/// users. So the fit determines all cells of this block size.
fn fitted(tables: &Tables) -> Claim {
    let fitted = percent(FITTED_GAIN);
    Claim::arithmetic(
        "gain of memory over disk at 4 KB, mean over users, fitted",
        papers(mean_gain(0)),
        Finding::Within(fitted, 0.5),
        percent(mean(tables, 0)),
        "the think time is fitted to one cell of it, and the other cells follow: no evidence",
    )
    .in_unit(" %")
}

fn predicted(tables: &Tables, block: usize) -> Claim {
    let what = format!(
        "gain of memory over disk at {} KB, mean over users",
        BLOCKS_KB[block]
    );
    let why = match BLOCKS_KB[block] {
        16 => {
            "no think time and no size of the redo give the paper's gain at 16 KB beside that at 32 KB: both send the redo in one block"
        }
        64 => {
            "the paper explains the falling gain with its data block buffer, which a larger block helps: that belongs to a component \
             with a cache, a B-tree; this engine has none, and fewer waits alone do it here"
        }
        _ => "",
    };
    let finding = Finding::Within(percent(mean_gain(block)), PREDICTED_WITHIN);
    let ours = percent(mean(tables, block));
    Claim::modelled(&what, papers(mean_gain(block)), finding, ours, why).in_unit(" %")
}

/// Returns the largest difference between two gains at the same size of a block, percent.
fn widest(gain: &dyn Fn(usize, usize) -> f64) -> f64 {
    let spread = |block: usize| {
        let gains = || (0..USERS.len()).map(|user| percent(gain(user, block)));
        gains().fold(f64::NEG_INFINITY, f64::max) - gains().fold(f64::INFINITY, f64::min)
    };
    (0..BLOCKS_KB.len()).map(spread).fold(0.0, f64::max)
}

/// Judges how the gain depends on blocks and on users. The fall begins at 8 KB, because 4 KB is fitted.
fn shape(tables: &Tables) -> [Claim; 2] {
    let last = BLOCKS_KB.len() - 1;
    let fall = |mean: &dyn Fn(usize) -> f64| ratio(percent(mean(last)), percent(mean(1)));
    let papers_fall = fall(&mean_gain);
    let papers_widest = widest(&gain);
    [
        Claim::modelled(
            "gain at 64 KB / gain at 8 KB, means over users",
            Paper::of(&rounded(papers_fall).to_string(), papers_fall),
            Finding::AtMost(0.99),
            fall(&|block| mean(tables, block)),
            "the larger the block, the fewer waits; the paper's cause is its data block buffer",
        ),
        Claim::modelled(
            "gain over 100 to 500 users, the farthest apart at one block",
            Paper::of(&rounded(papers_widest).to_string(), papers_widest),
            Finding::AtMost(1.15 * papers_widest),
            widest(&|user, block| tables.cells[user][block].gain()),
            "the paper's cells scatter; waits that overlap give all numbers of users one gain",
        )
        .in_unit(" %"),
    ]
}

/// Judges the gains of two cells that are measured in real time. The fitted cell's gain is compared with its gain in
/// virtual time, and the predicted cell's gain with the paper's.
fn in_real_time(tables: &Tables) -> [Claim; 2] {
    let [fitted, predicted] = &tables.real;
    let virtual_time = tables.cells[0][fitted.block].percent();
    let block_kb = BLOCKS_KB[predicted.block];
    [
        Claim::own(
            "real time less virtual time, 100 users at 4 KB, gain",
            Finding::Within(0.0, PREDICTED_WITHIN),
            fitted.sample(|pair| pair.percent() - virtual_time),
            "delays that elapse; the cell is fitted, so its gain is not compared with the paper's",
        )
        .in_unit(" %"),
        Claim::measured(
            &format!("gain of memory over disk in real time, 100 users at {block_kb} KB"),
            papers(gain(0, predicted.block)),
            Bounds(Better::More, Finding::AtLeast(0.0)),
            predicted.sample(super::tables::Pair::percent),
            "delays that elapse; the cell is not fitted, but the think time is; the redo is one block here",
        )
        .in_unit(" %"),
    ]
}

/// Compares the average gains in the paper's text with the means of the paper's cells.
fn printed(means: &[f64; 5]) -> [Claim; 3] {
    let groups: [(&str, &[usize]); 3] = [
        ("4 KB", &[0]),
        ("8 and 16 KB", &[1, 2]),
        ("32 and 64 KB", &[3, 4]),
    ];
    groups.map(|(blocks, of)| {
        let printed = percent(PRINTED_GAINS[of[0]]);
        let sum: f64 = of.iter().map(|block| percent(means[*block])).sum();
        let claim = Claim::arithmetic(
            &format!("the paper's own cells, mean gain at {blocks}"),
            papers(PRINTED_GAINS[of[0]]),
            Finding::Within(printed, ROUNDED_WITHIN),
            sum / crate::num::count_f64(of.len()),
            "",
        );
        claim.in_unit(" %")
    })
}

fn think_times(tables: &Tables) -> [Claim; 2] {
    let ms = |think: Duration| 1e3 * think.as_secs_f64();
    let closed = ms(closed_think(FITTED_GAIN, REDO_KB, BLOCKS_KB[0]));
    let fitted = |what: &str, finding, ours, why: &str| {
        Claim::arithmetic(what, Paper::silent(), finding, ms(ours), why).in_unit(" ms")
    };
    [
        fitted(
            "think time that was fitted",
            Finding::Within(closed, 0.1 * closed),
            tables.think,
            "100 users, 4 KB, gain 1.12; near the closed form, in which execution takes no time",
        ),
        fitted(
            "the same if transactions without redo do not wait",
            Finding::AtMost(ms(tables.think)),
            tables.think_of_writers,
            "order status, stock level, rollbacks: the wait of a mean transaction is shorter, and so is the think time; the ratio of both is the same",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::super::claim::Verdict;
    use super::super::super::logical::judged::{Spoiled, each_can_be_missed};
    use super::super::tables::by_hand::{as_paper, pair};
    use super::*;

    fn all_users(tables: &mut Tables, block: usize, memory: u32) {
        tables
            .cells
            .iter_mut()
            .for_each(|row| row[block] = pair(1_000, memory));
    }

    /// Judges the tables. Leaves out the claims about the paper's own cells, because no measurement changes them.
    fn judge(tables: &Tables) -> Vec<Claim> {
        let of_paper = |claim: &Claim| claim.what.starts_with("the paper's own cells");
        claims(tables)
            .into_iter()
            .filter(|claim| !of_paper(claim))
            .collect()
    }

    #[test]
    fn each_claim_can_be_missed() {
        let changes: [Spoiled<Tables>; 12] = [
            ("at 4 KB, mean over users, fitted", |tables| {
                all_users(tables, 0, 1_110)
            }),
            ("at 8 KB, mean over users", |tables| {
                all_users(tables, 1, 1_050)
            }),
            ("at 16 KB, mean over users", |tables| {
                all_users(tables, 2, 1_042)
            }),
            ("at 32 KB, mean over users", |tables| {
                all_users(tables, 3, 1_100)
            }),
            ("at 64 KB, mean over users", |tables| {
                all_users(tables, 4, 1_010)
            }),
            ("gain at 64 KB / gain at 8 KB", |tables| {
                all_users(tables, 4, 1_092)
            }),
            ("the farthest apart at one block", |tables| {
                tables.cells[1][3] = pair(1_000, 1_300);
            }),
            ("real time less virtual time", |tables| {
                tables.real[0].rounds = vec![pair(380, 400); 3];
            }),
            ("in real time, 100 users at 16 KB", |tables| {
                tables.real[1].rounds = vec![pair(1_000, 1_042); 3];
            }),
            ("in real time, 100 users at 16 KB", |tables| {
                tables.real[1].rounds = vec![pair(1_000, 999); 3];
            }),
            ("think time that was fitted", |tables| {
                tables.think = Duration::from_millis(100)
            }),
            ("without redo do not wait", |tables| {
                tables.think_of_writers = Duration::from_millis(170);
            }),
        ];
        each_can_be_missed(as_paper, judge, &changes);
    }

    #[test]
    fn means_that_the_text_does_not_round_to_fail() {
        let verdicts = |means| printed(&means).map(|claim| claim.verdict);
        assert_eq!(
            verdicts(std::array::from_fn(mean_gain)),
            [Verdict::Arithmetic; 3]
        );
        assert_eq!(
            verdicts([1.11, 1.08, 1.08, 1.05, 1.05]),
            [Verdict::Fails; 3]
        );
    }

    #[test]
    fn only_the_cell_in_real_time_is_evidence() {
        let verdict = |what: &str| {
            let claims = claims(&as_paper());
            claims
                .into_iter()
                .find(|claim| claim.what.contains(what))
                .unwrap()
                .verdict
        };
        assert_eq!(verdict("fitted"), Verdict::Arithmetic);
        assert_eq!(verdict("at 16 KB, mean"), Verdict::Modelled);
        assert_eq!(
            verdict("in real time, 100 users at 16 KB"),
            Verdict::AsPaper
        );
    }
}
