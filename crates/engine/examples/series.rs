//! A time series: measurements of many sensors in an ordered map of bytes. The map is sorted by sensor and then by
//! time.
//!
//! It shows ordered keys, ascending and descending ranges and prefixes, and the removal of old values.
//!
//! ```sh
//! cargo run --release -p perdura --example series
//! ```

use std::error::Error as StdError;

use perdura::{Db, Error, Map, Options};

const SENSORS: u16 = 20;
const MINUTES: u64 = 120;
const KEPT_MINUTES: u64 = 60;

/// Returns the key for a sensor and a minute. The key consists of big-endian numbers, because these sort numerically as
/// bytes.
fn key(sensor: u16, minute: u64) -> Vec<u8> {
    [&sensor.to_be_bytes()[..], &minute.to_be_bytes()[..]].concat()
}

fn value(bytes: &[u8]) -> f64 {
    f64::from_le_bytes(bytes.try_into().expect("a measurement is a number"))
}

/// Stores one measurement of every sensor, in one transaction.
fn measure(db: &Db, series: &Map, minute: u64) -> Result<(), Error> {
    db.write(|tx| {
        (0..SENSORS).try_for_each(|sensor| {
            let now = f64::from(sensor) + f64::from(u32::try_from(minute % 60).unwrap_or(0)) / 60.0;
            tx.put(
                series.table(),
                &key(sensor, minute),
                &now.to_le_bytes(),
                None,
            )
        })
    })
}

/// Removes the values older than `minute`.
fn forget(series: &Map, minute: u64) -> Result<u64, Error> {
    let mut removed = 0;
    for sensor in 0..SENSORS {
        for entry in series.range(key(sensor, 0)..key(sensor, minute)) {
            removed += u64::from(series.remove(entry?.0)?);
        }
    }
    Ok(removed)
}

fn main() -> Result<(), Box<dyn StdError>> {
    let dir = tempfile::tempdir()?;
    let options = Options::new(dir.path().join("series"));
    let db = Db::open(options.clone())?;
    let series = db.map("series")?;
    for minute in 0..MINUTES {
        measure(&db, &series, minute)?;
    }
    assert_eq!(series.len()?, u64::from(SENSORS) * MINUTES);

    let newest = series.prefix(7_u16.to_be_bytes()).next_back().transpose()?;
    let (at, bytes) = newest.expect("sensor 7 has measured");
    assert_eq!(at, key(7, MINUTES - 1));
    println!("sensor 7 measured {:.2} last", value(&bytes));

    let hour = series.range(key(7, 30)..key(7, 90));
    let values = hour
        .map(|entry| Ok(value(&entry?.1)))
        .collect::<Result<Vec<_>, Error>>()?;
    println!("{} measurements in that hour", values.len());
    assert_eq!(values.len(), 60);

    let removed = forget(&series, MINUTES - KEPT_MINUTES)?;
    assert_eq!(removed, u64::from(SENSORS) * (MINUTES - KEPT_MINUTES));
    println!("{removed} old measurements removed");

    drop(series);
    db.abandon();
    let db = Db::open(options)?;
    let series = db.map("series")?;
    let first = series.range::<&[u8]>(..).next().transpose()?;
    let (at, _) = first.expect("there are measurements");
    assert_eq!(at, key(0, MINUTES - KEPT_MINUTES));
    println!("{} are left after the restart", series.len()?);
    db.close()?;
    Ok(())
}
