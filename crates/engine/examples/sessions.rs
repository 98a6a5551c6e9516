//! A store of sessions that expire when they are not used.
//!
//! A session is one key with an expiry. A read does not find the key once it has expired. The purge
//! removes it later, in the background, and calls a listener of the store.
//!
//! ```sh
//! cargo run --release -p perdura --example sessions
//! ```

use std::error::Error as StdError;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use perdura::{Db, Error, Options};

/// The lifetime of an unused session.
const IDLE: Duration = Duration::from_millis(1500);
const SESSIONS: usize = 200;

struct Store {
    db: Db,
    expired: Arc<AtomicUsize>,
}

impl Store {
    fn open(options: Options) -> Result<Store, Error> {
        let db = Db::open(options)?;
        let expired = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&expired);
        db.on_expired(Box::new(move |keys, _epoch| {
            count.fetch_add(keys.len(), Ordering::SeqCst);
        }));
        Ok(Store { db, expired })
    }

    fn key(id: usize) -> Vec<u8> {
        format!("session:{id}").into_bytes()
    }

    /// Begins a session that survives a power cut.
    fn begin(&self, id: usize, user: &str) -> Result<(), Error> {
        let (db, key) = (&self.db, Store::key(id));
        db.write(|tx| {
            let expiry = tx.now_ms() + idle_ms();
            tx.put(db.database(0), &key, user.as_bytes(), Some(expiry))
        })
    }

    /// Makes a session expire after the idle time, counted from now. Returns the session's user. This does not wait for
    /// durability: after a crash the session may expire a little earlier.
    fn touch(&self, id: usize) -> Result<Option<String>, Error> {
        let (db, key) = (&self.db, Store::key(id));
        let (user, _durable_soon) = db.write_later(|tx| {
            let row = tx.bytes().get(db.database(0), &key)?;
            let user = row.map(|row| String::from_utf8_lossy(&row.value()).into_owned());
            let expiry = tx.now_ms() + idle_ms();
            tx.set_expiry(db.database(0), &key, Some(expiry))?;
            Ok::<_, Error>(user)
        })?;
        Ok(user)
    }

    /// Returns the number of sessions. It looks at one partition at a time, so other threads
    /// continue.
    fn count(&self) -> Result<usize, Error> {
        self.db
            .keys(0)
            .try_fold(0, |count, key| key.map(|_| count + 1))
    }
}

fn idle_ms() -> u64 {
    u64::try_from(IDLE.as_millis()).unwrap_or(u64::MAX)
}

fn main() -> Result<(), Box<dyn StdError>> {
    let dir = tempfile::tempdir()?;
    let options = Options::new(dir.path().join("sessions"));
    let store = Store::open(options.clone())?;
    let begun = Instant::now();
    for id in 0..SESSIONS {
        store.begin(id, &format!("user{}", id % 7))?;
    }
    println!("{} sessions begun in {:?}", SESSIONS, begun.elapsed());

    // One session is used again and again, the others are not.
    while store.count()? > 1 {
        if store.touch(5)?.is_none() {
            println!("session 5 was away for too long and begins again");
            store.begin(5, "user5")?;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(store.touch(6)?, None);
    println!(
        "one session is left; {} were removed",
        store.expired.load(Ordering::SeqCst)
    );

    store.db.close()?;
    let store = Store::open(options)?;
    let first = store.db.range(0, "session:".."session;", 10)?;
    assert!(first.len() <= 1, "expired sessions stay expired");
    store.db.close()?;
    Ok(())
}
