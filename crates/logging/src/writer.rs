//! The thread that writes lines to stderr. It is the only thread that stderr can delay.

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use tracing::Level;

use crate::LogFormat;
use crate::line::Record;
use crate::queue::{Next, Queue};

/// The time that the writer waits for the next log line before it tries again to report lost lines.
const AGAIN: Duration = Duration::from_millis(500);

/// The writer.
pub(crate) struct Writer<W> {
    queue: Arc<Queue>,
    out: W,
    format: LogFormat,
    /// The number of lost lines that no line has reported yet.
    owed: u64,
    /// True if the last line was written in part.
    torn: bool,
}

impl<W: Write + Send + 'static> Writer<W> {
    pub(crate) fn new(queue: Arc<Queue>, out: W, format: LogFormat) -> Self {
        Writer {
            queue,
            out,
            format,
            owed: 0,
            torn: false,
        }
    }

    /// Starts a thread that writes until the process ends.
    ///
    /// # Errors
    /// Returns the system's error if the thread cannot be started.
    pub(crate) fn spawn(mut self) -> io::Result<()> {
        let thread = thread::Builder::new().name("log".into());
        thread.spawn(move || {
            loop {
                self.step();
            }
        })?;
        Ok(())
    }

    /// Waits for the next line and writes it. A line that stderr does not accept counts as lost.
    fn step(&mut self) {
        let patience = (self.owed > 0).then_some(AGAIN);
        match self.queue.next(patience) {
            Next::Line(line) => {
                self.owed += line.lost_before;
                if self.report_lost() && self.put(&line.text).is_ok() {
                    self.queue.count_written();
                } else {
                    self.queue.count_lost();
                    self.owed += 1;
                }
            }
            Next::Lost(count) => {
                self.owed += count;
                self.report_lost();
            }
            Next::Nothing => {
                self.report_lost();
            }
        }
    }

    /// Reports the number of lost lines, if any. Returns whether every lost line has been reported.
    fn report_lost(&mut self) -> bool {
        if self.owed == 0 {
            return true;
        }
        let message = match self.owed {
            1 => "1 line of this log was lost: stderr did not accept it".into(),
            count => format!("{count} lines of this log were lost: stderr did not accept them"),
        };
        let record = Record::new(Level::WARN, "logging", message);
        let written = self.put(&record.text(self.format)).is_ok();
        if written {
            self.owed = 0;
            self.queue.count_written();
        }
        written
    }

    /// Writes a line and its line break.
    fn put(&mut self, text: &str) -> io::Result<()> {
        let start = if self.torn { "\n" } else { "" };
        let bytes = [start, text, "\n"].concat().into_bytes();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match self.out.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    rest = rest.get(count..).unwrap_or_default();
                    self.torn = !rest.is_empty();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The process's stderr, without the lock that macros of the standard library take.
#[derive(Debug)]
pub(crate) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let stderr = rustix::stdio::stderr();
        loop {
            match rustix::io::write(stderr, bytes) {
                // Another process that shares stderr may have made it non-blocking.
                Err(rustix::io::Errno::AGAIN) => {
                    poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], None)?;
                }
                written => return Ok(written?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    /// A sink that accepts a given number of bytes. Later writes fail as on a full disk.
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<(Vec<u8>, usize)>>);

    impl Disk {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().0.clone()).expect("text")
        }
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut disk = self.0.lock();
            let count = bytes.len().min(disk.1);
            if count == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            disk.1 -= count;
            disk.0.extend(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_costs_lines_which_are_counted_and_reported_once_it_has_room() {
        let (queue, disk) = (Arc::new(Queue::default()), Disk::default());
        let mut writer = Writer::new(Arc::clone(&queue), disk.clone(), LogFormat::Text);
        disk.0.lock().1 = 9;
        for line in ["first", "second", "third"] {
            queue.push(line.into());
            writer.step();
        }
        assert_eq!((queue.figures().written, queue.figures().lost), (1, 2));
        disk.0.lock().1 = 1000;
        writer.step();
        queue.push("fourth".into());
        writer.step();
        let text = disk.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines[0], lines[1], lines[3]), ("first", "sec", "fourth"));
        assert!(
            lines[2].contains("WARN logging: 2 lines of this log were lost"),
            "{text}"
        );
        assert_eq!((lines.len(), queue.figures().lost), (4, 2));
    }
}
