//! The lines that wait for the writer. Their number and their bytes are bounded. So a stderr that accepts nothing costs
//! memory only up to these bounds, and delays no thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::LogFigures;

/// The maximum number of lines that wait.
pub(crate) const LINES_MAX: usize = 4096;
/// The maximum number of bytes that wait.
pub(crate) const BYTES_MAX: usize = 1 << 20;

/// A line, and the number of lines that were lost before it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// The text, without its line break.
    pub text: String,
    /// The number of lines dropped between this line and the line before it.
    pub lost_before: u64,
}

/// An item for the writer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A line.
    Line(Line),
    /// The number of lines dropped after the last line.
    Lost(u64),
    /// No item arrived in the time that the writer waits.
    Nothing,
}

#[derive(Default)]
struct Waiting {
    lines: VecDeque<Line>,
    bytes: usize,
    /// The number of lines dropped after the last line of `lines`.
    lost: u64,
    /// True while the writer works on an item.
    writing: bool,
}

/// The queue.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    emptied: Condvar,
    written: AtomicU64,
    lost: AtomicU64,
}

impl Queue {
    /// Appends a line, or counts it as lost if the queue is full. Never waits for the writer.
    pub(crate) fn push(&self, text: String) {
        let mut waiting = self.waiting.lock();
        let bytes = waiting.bytes.saturating_add(text.len());
        if waiting.lines.len() >= LINES_MAX || bytes > BYTES_MAX {
            waiting.lost += 1;
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let lost_before = std::mem::take(&mut waiting.lost);
        waiting.bytes = bytes;
        waiting.lines.push_back(Line { text, lost_before });
        drop(waiting);
        self.arrived.notify_one();
    }

    /// Records that the writer has finished its previous item. Then waits for the next item and returns it. The wait
    /// takes at most `patience`. If `patience` is `None`, the wait has no limit.
    pub(crate) fn next(&self, patience: Option<Duration>) -> Next {
        let deadline = patience.map(|patience| Instant::now() + patience);
        let mut waiting = self.waiting.lock();
        waiting.writing = false;
        loop {
            if let Some(line) = waiting.lines.pop_front() {
                waiting.bytes -= line.text.len();
                waiting.writing = true;
                return Next::Line(line);
            }
            if waiting.lost > 0 {
                waiting.writing = true;
                return Next::Lost(std::mem::take(&mut waiting.lost));
            }
            self.emptied.notify_all();
            match deadline {
                None => self.arrived.wait(&mut waiting),
                Some(deadline) => {
                    if self.arrived.wait_until(&mut waiting, deadline).timed_out() {
                        return Next::Nothing;
                    }
                }
            }
        }
    }

    /// Returns the texts of the lines that wait.
    pub(crate) fn texts(&self) -> Vec<String> {
        let waiting = self.waiting.lock();
        waiting.lines.iter().map(|line| line.text.clone()).collect()
    }

    /// Counts a line that the writer has written.
    pub(crate) fn count_written(&self) {
        self.written.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a line that the writer could not write.
    pub(crate) fn count_lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counts since the start.
    pub(crate) fn figures(&self) -> LogFigures {
        LogFigures {
            written: self.written.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
        }
    }

    /// Waits until the writer has written everything. Waits at most `patience`.
    pub(crate) fn flush(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
        let mut waiting = self.waiting.lock();
        while !waiting.lines.is_empty() || waiting.writing {
            if self.emptied.wait_until(&mut waiting, deadline).timed_out() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(queue: &Queue, count: usize) -> Vec<Next> {
        let none = Some(Duration::ZERO);
        (0..count).map(|_| queue.next(none)).collect()
    }

    fn line(text: &str, lost_before: u64) -> Next {
        Next::Line(Line {
            text: text.into(),
            lost_before,
        })
    }

    #[test]
    fn a_full_queue_drops_lines_counts_them_and_says_where_they_were() {
        let queue = Queue::default();
        for number in 0..LINES_MAX + 3 {
            queue.push(number.to_string());
        }
        assert_eq!(queue.figures().lost, 3);
        assert_eq!(queue.next(None), line("0", 0));
        queue.push("behind the gap".into());
        drop(texts(&queue, LINES_MAX - 1));
        assert_eq!(texts(&queue, 2), [line("behind the gap", 3), Next::Nothing]);
    }

    #[test]
    fn bytes_are_bounded_too_and_lines_lost_at_the_end_are_told() {
        let queue = Queue::default();
        for _ in 0..9 {
            queue.push("x".repeat(BYTES_MAX / 8));
        }
        assert_eq!(queue.figures().lost, 1);
        drop(texts(&queue, 8));
        assert_eq!(texts(&queue, 2), [Next::Lost(1), Next::Nothing]);
        queue.push("there is room again".into());
        assert_eq!(queue.next(None), line("there is room again", 0));
    }

    #[test]
    fn a_flush_without_a_writer_ends() {
        let queue = Queue::default();
        queue.flush(Duration::from_secs(60));
        queue.push("never written".into());
        queue.flush(Duration::from_millis(20));
        assert_eq!(queue.figures(), LogFigures::default());
    }
}
