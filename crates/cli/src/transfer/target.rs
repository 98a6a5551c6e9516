//! A server as the target of a transfer.
//!
//! One thread sends requests in batches while a second thread reads the replies, so that sending does not wait for
//! replies. For each batch, the first thread tells the second through a bounded channel which keys the replies belong
//! to.

use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver as Inbox, SyncSender, sync_channel};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow, bail};
use perdura_rdb::Value;

use super::client::{Connection, Receiver, Reply, Sender};
use super::commands::{is_single, put, put_library, put_part, put_string};
use super::report::Written;
use super::{Part, Sink, UNFINISHED};

/// The size of a complete batch, bytes.
const BATCH_BYTES: usize = 1 << 18;
/// The maximum number of batches in the channel to the thread that reads their replies.
const BATCHES_MAX: usize = 8;

/// The beginnings of fatal error replies. After a fatal error, every further write would fail too.
const FATAL: [&str; 9] = [
    "OOM",
    "MISCONF",
    "NOAUTH",
    "NOPERM",
    "READONLY",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "MOVED",
    "ERR the database has stopped",
];

/// The name in messages for requests without a key.
const ASIDE: &[u8] = b"(none)";

/// The action on keys that already exist at the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Present {
    /// No key exists at the target.
    None,
    /// Existing keys are overwritten.
    Replaced,
    /// Existing keys are left unchanged.
    Kept,
}

/// The object that is complete after the last of the expected replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whole {
    Nothing,
    /// A key of the named type.
    Key(&'static str),
    /// A library of functions. `may_be_there` means that an existing library is no error.
    Library {
        may_be_there: bool,
    },
}

/// The replies expected for one unit: a key, a piece, or a request without a key.
struct Expected {
    db: u64,
    key: Vec<u8>,
    /// The number of expected replies.
    replies: usize,
    whole: Whole,
    /// The channel to the thread that waits for the replies to all pieces of a key. The thread that reads the replies
    /// sends whether the target accepted every piece. `None`: no thread waits.
    verdict: Option<SyncSender<bool>>,
}

/// A server, as a destination of keys.
pub struct Target {
    sender: Sender,
    present: Present,
    /// True if the source may deliver a key twice.
    may_repeat: bool,
    selected: Option<u64>,
    out: Vec<u8>,
    expected: Vec<Expected>,
    batches: SyncSender<Vec<Expected>>,
    reader: JoinHandle<(Written, Result<()>)>,
    /// Set when the target would refuse every further write.
    hopeless: Arc<AtomicBool>,
}

impl Target {
    /// Begins to write to a server over a connection.
    pub fn new(connection: Connection, present: Present, may_repeat: bool) -> Target {
        let (sender, receiver) = connection.split();
        let (batches, inbox) = sync_channel(BATCHES_MAX);
        let hopeless = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&hopeless);
        let reader = std::thread::spawn(move || {
            let mut written = Written::default();
            let done = read_replies(receiver, &inbox, &flag, &mut written);
            // The reading thread has ended, so after an error no more requests may be sent.
            flag.store(
                done.is_err() || flag.load(Ordering::Relaxed),
                Ordering::Relaxed,
            );
            (written, done)
        });
        Target {
            sender,
            present,
            may_repeat,
            selected: None,
            out: Vec::new(),
            expected: Vec::new(),
            batches,
            reader,
            hopeless,
        }
    }

    /// Sends the remaining requests and waits for all replies. Returns the counts even after an error.
    pub fn finish(mut self) -> (Written, Result<()>) {
        self.tidy();
        let sent = self.flush();
        drop(self.batches);
        match self.reader.join() {
            // If sending failed, the replies may contain the reason.
            Ok((written, replies)) => (written, replies.and(sent)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    fn flush(&mut self) -> Result<()> {
        if self.hopeless.load(Ordering::Relaxed) {
            bail!("the target accepts no more data");
        }
        if self.expected.is_empty() {
            return Ok(());
        }
        self.batches
            .send(take(&mut self.expected))
            .map_err(|_| anyhow!("the target accepts no more data"))?;
        self.sender
            .send(&self.out)
            .context("sending to the target")?;
        self.out.clear();
        Ok(())
    }

    fn flush_if_full(&mut self) -> Result<()> {
        match self.out.len() >= BATCH_BYTES {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Appends a request that belongs to no key.
    fn aside(&mut self, db: u64, words: &[&[u8]]) {
        put(&mut self.out, words);
        self.expected.push(Expected {
            db,
            key: ASIDE.to_vec(),
            replies: 1,
            whole: Whole::Nothing,
            verdict: None,
        });
    }

    /// Deletes the key [`UNFINISHED`]. The key still exists if the target refused to rename it because the final name
    /// already existed.
    fn tidy(&mut self) {
        if let (Some(db), Present::Kept) = (self.selected, self.present) {
            self.aside(db, &[b"DEL", UNFINISHED]);
        }
    }

    fn expect(&mut self, part: &Part<'_>, replies: usize) {
        let whole = match part.last {
            true => Whole::Key(part.value.type_name()),
            false => Whole::Nothing,
        };
        self.expected.push(Expected {
            db: part.db,
            key: part.key.to_vec(),
            replies,
            whole,
            verdict: None,
        });
    }

    /// Appends the command or the transaction that writes a key. The key consists of one piece.
    fn small(&mut self, part: &Part<'_>) {
        debug_assert!(part.first && part.last, "a small key comes in one piece");
        let kept = self.present == Present::Kept;
        if let Value::String(value) = part.value {
            put_string(&mut self.out, part.key, value, part.expires_at_ms, kept);
            return self.expect(part, 1);
        }
        let delete =
            self.present == Present::Replaced || (self.may_repeat && !part.is_harmless_twice());
        let is_one_command =
            !matches!(part.value, Value::Stream(_)) && part.expires_at_ms.is_none();
        if !delete && !kept && is_one_command {
            let commands = put_part(&mut self.out, part.key, part);
            return self.expect(part, commands);
        }
        put(&mut self.out, &[b"MULTI"]);
        let name = if kept { UNFINISHED } else { part.key };
        put(&mut self.out, &[b"DEL", name]);
        let mut commands = 3 + put_part(&mut self.out, name, part);
        if kept {
            put(&mut self.out, &[b"RENAMENX", name, part.key]);
            commands += 1;
        }
        put(&mut self.out, &[b"EXEC"]);
        self.expect(part, commands);
    }

    /// Appends the commands that write a piece of a large key. The key has the name [`UNFINISHED`] until its last piece
    /// is written.
    fn large(&mut self, part: &Part<'_>) -> Result<()> {
        let mut commands = 0;
        if part.first {
            put(&mut self.out, &[b"DEL", UNFINISHED]);
            commands += 1;
        }
        commands += put_part(&mut self.out, UNFINISHED, part);
        if !part.last {
            self.expect(part, commands);
            return Ok(());
        }
        // The key may be renamed only if the target accepted all its pieces, so this thread waits for the replies.
        let (verdict, heard) = sync_channel(1);
        self.expected.push(Expected {
            db: part.db,
            key: part.key.to_vec(),
            replies: commands,
            whole: Whole::Nothing,
            verdict: Some(verdict),
        });
        self.flush()?;
        debug_assert!(self.expected.is_empty(), "what came before is sent");
        let is_whole = heard
            .recv()
            .map_err(|_| anyhow!("the target accepts no more data"))?;
        if is_whole {
            let rename: &[u8] = match self.present {
                Present::Kept => b"RENAMENX",
                Present::None | Present::Replaced => b"RENAME",
            };
            put(&mut self.out, &[rename, UNFINISHED, part.key]);
            self.expect(part, 1);
        } else {
            self.aside(part.db, &[b"DEL", UNFINISHED]);
        }
        Ok(())
    }
}

impl Sink for Target {
    fn part(&mut self, part: &Part<'_>) -> Result<()> {
        if self.selected != Some(part.db) {
            self.tidy();
            self.selected = Some(part.db);
            let number = part.db.to_string();
            self.aside(part.db, &[b"SELECT", number.as_bytes()]);
        }
        debug_assert_eq!(self.selected, Some(part.db), "a key goes to its database");
        let is_string = matches!(part.value, Value::String(_));
        if part.first && part.last && (is_string || is_single(part.value)) {
            self.small(part);
        } else {
            self.large(part)?;
        }
        self.flush_if_full()
    }

    fn library(&mut self, code: &[u8]) -> Result<()> {
        put_library(&mut self.out, code, self.present == Present::Replaced);
        // The first line of the library has its name.
        let name = code.split(|byte| *byte == b'\n').next();
        self.expected.push(Expected {
            db: 0,
            key: name.unwrap_or_default().to_vec(),
            replies: 1,
            whole: Whole::Library {
                may_be_there: self.present == Present::Kept,
            },
            verdict: None,
        });
        self.flush_if_full()
    }
}

/// Reads the replies to all batches until the sending thread closes the channel.
fn read_replies(
    mut receiver: Receiver,
    inbox: &Inbox<Vec<Expected>>,
    hopeless: &AtomicBool,
    written: &mut Written,
) -> Result<()> {
    let mut fatal = None;
    // True if the target refused an earlier piece of the current key.
    let mut refused = false;
    for expected in inbox.iter().flatten() {
        let is_piece = expected.whole == Whole::Nothing;
        debug_assert!(
            is_piece || expected.verdict.is_none(),
            "only pieces are asked about"
        );
        let mut last = None;
        let mut error = None;
        for _ in 0..expected.replies {
            let reply = receiver.receive().context("reading the target's replies")?;
            if let Some(text) = reply.error()
                && error.is_none()
            {
                error = Some(text.to_owned());
            }
            last = Some(reply);
        }
        if let Some(text) = error {
            let kept = Whole::Library { may_be_there: true };
            if expected.whole == kept && text.ends_with("already exists") {
                written.kept += 1;
                continue;
            }
            if !refused {
                written
                    .refused
                    .add(expected.db, &expected.key, text.clone());
            }
            refused = expected.whole == Whole::Nothing;
            let hope = !FATAL.iter().any(|word| text.starts_with(word)) && expected.key != ASIDE;
            if !hope && fatal.is_none() {
                fatal = Some(text);
                hopeless.store(true, Ordering::Relaxed);
            }
            if let Some(verdict) = expected.verdict {
                refused = false;
                // The sending thread may no longer wait for the verdict.
                let _ = verdict.send(false);
            }
            continue;
        }
        if let Some(verdict) = expected.verdict {
            let _ = verdict.send(!take(&mut refused));
        }
        match expected.whole {
            Whole::Nothing => {}
            Whole::Library { .. } => written.libraries += 1,
            Whole::Key(_) if take(&mut refused) => {}
            Whole::Key(_) if was_there(last) => written.kept += 1,
            Whole::Key(kind) => *written.keys.entry(kind.to_owned()).or_default() += 1,
        }
    }
    match fatal {
        Some(text) => bail!("the target refuses: {text}"),
        None => Ok(()),
    }
}

/// Returns whether the last reply says that the key already existed: null from SET NX, or 0 from RENAMENX. Of all
/// possible last requests, only SET NX and RENAMENX get these replies.
fn was_there(last: Option<Reply>) -> bool {
    match last {
        Some(Reply::Bulk(None) | Reply::Number(0)) => true,
        Some(Reply::Array(replies)) => matches!(replies.last(), Some(Reply::Number(0))),
        _ => false,
    }
}
