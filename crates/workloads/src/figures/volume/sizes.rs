//! The size of one record if only some bytes of a slot change, for whole and for sparse records.

use anyhow::{Result, ensure};
use perdura_base::PartitionId;
use perdura_steal::{Records, Steal};
use perdura_wal::scheme::Scheme;
use serde_json::Value;

use crate::figures::Lab;
use crate::figures::claim::{Claim, Finding};
use crate::figures::figure::cell;
use crate::figures::lab::{Plant, Speeds};
use crate::num::{count_f64, f64_of, ratio};
use crate::sms::{Driver, SmsOptions};

/// The number of updates from which the size of a record is computed.
const UPDATES: usize = 2_000;

/// The mean sizes of the record of one change, in bytes. The change is of 8 bytes in a row of 256 bytes.
pub struct RecordSizes {
    physical_full: f64,
    physical_sparse: f64,
    differential_full: f64,
    differential_sparse: f64,
}

impl RecordSizes {
    /// Measures the sizes from many updates.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn measure(lab: &Lab<'_>) -> Result<RecordSizes> {
        let of = |scheme, records| record_bytes(lab, scheme, records);
        Ok(RecordSizes {
            physical_full: of(Scheme::Pl2p, Records::Full)?,
            physical_sparse: of(Scheme::Pl2p, Records::Sparse)?,
            differential_full: of(Scheme::Dl1p, Records::Full)?,
            differential_sparse: of(Scheme::Dl1p, Records::Sparse)?,
        })
    }

    fn all(&self) -> [(&'static str, &'static str, f64); 4] {
        [
            ("PL2P", "full, 8-byte change", self.physical_full),
            ("PL2P", "sparse, 8-byte change", self.physical_sparse),
            ("DL1P", "full, 8-byte change", self.differential_full),
            ("DL1P", "sparse, 8-byte change", self.differential_sparse),
        ]
    }

    /// Returns the sizes as rows of the figure.
    pub fn rows(&self) -> impl Iterator<Item = Vec<Value>> {
        self.all().into_iter().map(|(scheme, records, bytes)| {
            let none = Value::from(0);
            vec![
                scheme.into(),
                records.into(),
                none.clone(),
                Value::from(UPDATES),
                cell(bytes * count_f64(UPDATES)),
                none.clone(),
                cell(bytes),
                none,
            ]
        })
    }

    /// Returns the claims about sparse records. The paper has no sparse records.
    pub fn claims(&self) -> Vec<Claim> {
        vec![
            Claim::own(
                "sparse differential / whole physical record, 8 of 256 bytes change",
                Finding::AtMost(0.15),
                ratio(self.differential_sparse, self.physical_full),
                "the product's records: differing bytes only",
            ),
            Claim::own(
                "sparse physical / whole physical record",
                Finding::AtMost(1.0),
                ratio(self.physical_sparse, self.physical_full),
                "sparseness helps physical records as well",
            ),
            Claim::own(
                "sparse differential / sparse physical record",
                Finding::AtMost(1.0),
                ratio(self.differential_sparse, self.physical_sparse),
                "differences stay ahead of sparse images",
            ),
        ]
    }
}

/// Returns the mean size of a record, from many updates by few transactions.
fn record_bytes(lab: &Lab<'_>, scheme: Scheme, records: Records) -> Result<f64> {
    let sms = SmsOptions {
        records,
        rows: 4_000,
        partitions: 4,
        ..lab.sms(scheme)
    };
    let plant = Plant::new(1, 1);
    let steal = Steal::create(plant.env(Speeds::FREE, 0, lab.seed), sms.store())?;
    drop(Driver::fill(&steal, &sms)?);
    let places: Vec<_> = (0..sms.partitions)
        .flat_map(|partition| steal.places(PartitionId(partition)))
        .collect();
    ensure!(places.len() >= UPDATES, "too few rows");
    let mut rng = fastrand::Rng::with_seed(lab.seed);
    let mut row = Vec::new();
    let mut txn = steal.begin();
    let mut before = 0;
    for (number, place) in places.iter().take(UPDATES + 1).enumerate() {
        if number == 1 {
            // The first update also logs the begin record, so counting starts after it.
            before = steal.wal().stats().log_bytes;
        }
        row.clear();
        ensure!(steal.read(*place, &mut row), "{place:?} is taken");
        let at = rng.usize(0..row.len() / 8) * 8;
        for byte in &mut row[at..at + 8] {
            *byte ^= rng.u8(1..=255);
        }
        ensure!(steal.update(&mut txn, *place, &row)?, "nobody else is here");
    }
    let bytes = steal.wal().stats().log_bytes - before;
    steal.abort(txn);
    Ok(f64_of(bytes) / count_f64(UPDATES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::claim::Verdict;

    fn verdicts(sizes: [f64; 4]) -> Vec<Verdict> {
        let [
            physical_full,
            physical_sparse,
            differential_full,
            differential_sparse,
        ] = sizes;
        let sizes = RecordSizes {
            physical_full,
            physical_sparse,
            differential_full,
            differential_sparse,
        };
        sizes.claims().iter().map(|claim| claim.verdict).collect()
    }

    #[test]
    fn sparse_records_must_be_smaller() {
        assert_eq!(verdicts([540.0, 40.0, 280.0, 25.0]), [Verdict::Reported; 3]);
        assert_eq!(verdicts([540.0, 560.0, 280.0, 570.0]), [Verdict::Fails; 3]);
    }
}
