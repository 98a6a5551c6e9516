//! Tests of claims. Data as in the paper must meet each claim. Data that contradict a claim must miss it.

use super::super::claim::{Claim, Verdict};

/// A part of the names of some claims, and a change of the data. The changed data must miss these claims.
pub(in super::super) type Spoiled<D> = (&'static str, fn(&mut D));

/// Checks that the data of `make` meet each claim, and that `changes` has a change for each claim. Also checks that the
/// changed data miss the claims that the change is for.
pub(in super::super) fn each_can_be_missed<D>(
    make: fn() -> D,
    judge: fn(&D) -> Vec<Claim>,
    changes: &[Spoiled<D>],
) {
    for Claim { what, verdict, .. } in judge(&make()) {
        assert!(
            verdict > Verdict::Weaker,
            "data as in the paper: {what}: {verdict:?}"
        );
        let is_changed = changes.iter().any(|(of, _)| what.contains(of));
        assert!(is_changed, "no change is for {what}");
    }
    for (of, change) in changes {
        let mut data = make();
        change(&mut data);
        let claims = judge(&data);
        let mut of_change = claims
            .iter()
            .filter(|claim| claim.what.contains(of))
            .peekable();
        assert!(of_change.peek().is_some(), "no claim is {of}");
        for Claim { what, verdict, .. } in of_change {
            assert!(
                *verdict <= Verdict::Weaker,
                "changed data: {what}: {verdict:?}"
            );
        }
    }
}
