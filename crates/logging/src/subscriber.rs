//! The subscriber of `tracing`. Each event that passes the level becomes a line in the queue. Spans are not used.
//!
//! The crate `tracing-subscriber` would work too, but has more than this log needs: spans in a slab, values for each
//! thread, and formatters. The text of its formatters would have to be escaped again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

use crate::line::Record;
use crate::queue::Queue;
use crate::{LogFigures, LogFormat, LogLevel};

/// The prefix in the names of the crates whose events are logged. Events of external libraries are meant for the
/// libraries' developers, and are not logged.
const OURS: &str = "perdura";

/// The subscriber.
#[derive(Clone)]
pub(crate) struct Lines {
    queue: Arc<Queue>,
    level: Arc<AtomicU8>,
    format: LogFormat,
}

impl Lines {
    pub(crate) fn new(queue: Arc<Queue>, level: LogLevel, format: LogFormat) -> Self {
        Lines {
            queue,
            level: Arc::new(AtomicU8::new(number(level))),
            format,
        }
    }

    /// Changes the level. Makes `tracing` check again which events are enabled.
    pub(crate) fn set_level(&self, level: LogLevel) {
        if self.level.swap(number(level), Ordering::Relaxed) != number(level) {
            tracing::callsite::rebuild_interest_cache();
        }
    }

    fn filter(&self) -> LevelFilter {
        let number = self.level.load(Ordering::Relaxed);
        let name = LogLevel::NAMES.get(usize::from(number)).copied();
        name.and_then(LogLevel::named)
            .unwrap_or(LogLevel::Notice)
            .filter()
    }

    pub(crate) fn figures(&self) -> LogFigures {
        self.queue.figures()
    }

    pub(crate) fn flush(&self, patience: Duration) {
        self.queue.flush(patience);
    }
}

/// Returns a level's place in the list of names.
fn number(level: LogLevel) -> u8 {
    let place = LogLevel::NAMES
        .iter()
        .position(|name| *name == level.name());
    place
        .and_then(|place| u8::try_from(place).ok())
        .unwrap_or(0)
}

impl Subscriber for Lines {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        match self.enabled(metadata) {
            true => Interest::always(),
            false => Interest::never(),
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let module = metadata.module_path().unwrap_or_default();
        metadata.is_event() && *metadata.level() <= self.filter() && module.starts_with(OURS)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.filter())
    }

    fn event(&self, event: &Event<'_>) {
        self.queue.push(Record::of(event).text(self.format));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Dispatch;

    fn logged(level: LogLevel, format: LogFormat, events: impl Fn(&Lines)) -> Vec<String> {
        let lines = Lines::new(Arc::new(Queue::default()), level, format);
        let dispatch = Dispatch::new(lines.clone());
        tracing::dispatcher::with_default(&dispatch, || events(&lines));
        lines.queue.texts()
    }

    #[test]
    fn an_event_is_one_line_whatever_a_client_has_sent() {
        let name = "a\r\n2026-01-01T00:00:00Z ERROR server: forged\u{1b}[2J\u{2028}";
        for format in [LogFormat::Text, LogFormat::Json] {
            let lines = logged(LogLevel::Notice, format, |_| {
                tracing::info!(client = name, count = 7_u64, well = true, "it sent {name}");
            });
            assert_eq!(lines.len(), 1);
            let text = &lines[0];
            let harmful = |c: char| c.is_control() || c == '\u{2028}';
            assert!(!text.contains(harmful), "{text}");
            if format == LogFormat::Json {
                let json: serde_json::Value = serde_json::from_str(text).expect("JSON");
                assert_eq!(json["message"], format!("it sent {name}"));
                assert_eq!(json["level"], "INFO");
                assert_eq!(json["target"], "logging");
                assert_eq!(json["fields"]["client"], name);
                assert_eq!(json["fields"]["count"], 7);
                assert_eq!(json["fields"]["well"], true);
                let time = json["time"]
                    .as_str()
                    .and_then(perdura_base::moment::parse_moment);
                assert!(time.is_some(), "{text}");
            } else {
                let (time, rest) = text.split_once(' ').expect("a time");
                assert!(perdura_base::moment::parse_moment(time).is_some(), "{text}");
                assert!(
                    rest.starts_with("INFO logging: it sent a\\r\\n2026"),
                    "{text}"
                );
                assert!(rest.ends_with(" count=7 well=true"), "{text}");
            }
        }
    }

    #[test]
    fn the_level_can_change_and_the_events_of_other_libraries_are_left_out() {
        let lines = logged(LogLevel::Warning, LogFormat::Text, |lines| {
            for level in [LogLevel::Warning, LogLevel::Verbose] {
                lines.set_level(level);
                tracing::debug!("detail under {}", level.name());
                tracing::warn!("warning under {}", level.name());
            }
            let _span = tracing::error_span!("a span").entered();
        });
        let said = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
        assert_eq!(lines.len(), 3);
        assert_eq!((said("detail under verbose"), said("warning")), (1, 2));
    }

    #[test]
    fn a_long_text_is_cut_and_the_line_stays_whole() {
        let long = "\u{e9}\n".repeat(1 << 20);
        for format in [LogFormat::Text, LogFormat::Json] {
            let lines = logged(LogLevel::Notice, format, |_| {
                tracing::info!(long, "{long}");
            });
            assert!(lines[0].len() < 64 << 10, "{} bytes", lines[0].len());
            assert!(lines[0].contains("more bytes"));
            if format == LogFormat::Json {
                serde_json::from_str::<serde_json::Value>(&lines[0]).expect("JSON");
            }
        }
    }
}
