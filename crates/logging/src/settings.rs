//! Settings of the log: level and format.

use tracing::level_filters::LevelFilter;

/// The least severe level of the events that are written. The levels have the same names as in Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// Everything.
    Debug,
    /// Everything down to details that matter to developers (`DEBUG`).
    Verbose,
    /// Warnings, errors and normal changes of state (`INFO`).
    Notice,
    /// Warnings and errors only (`WARN`, `ERROR`).
    Warning,
}

impl LogLevel {
    /// The names of all levels, from the most detailed to the least detailed. Redis uses the same names.
    pub const NAMES: &'static [&'static str] = &["debug", "verbose", "notice", "warning"];

    /// Returns the name of the level.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LogLevel::Debug => "debug",
            LogLevel::Verbose => "verbose",
            LogLevel::Notice => "notice",
            LogLevel::Warning => "warning",
        }
    }

    /// Returns the level that has this name.
    #[must_use]
    pub fn named(name: &str) -> Option<LogLevel> {
        let all = [
            LogLevel::Debug,
            LogLevel::Verbose,
            LogLevel::Notice,
            LogLevel::Warning,
        ];
        all.into_iter().find(|level| level.name() == name)
    }

    /// Returns the most detailed level of `tracing` that is written.
    pub(crate) fn filter(self) -> LevelFilter {
        match self {
            LogLevel::Debug => LevelFilter::TRACE,
            LogLevel::Verbose => LevelFilter::DEBUG,
            LogLevel::Notice => LevelFilter::INFO,
            LogLevel::Warning => LevelFilter::WARN,
        }
    }
}

/// The form of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Time, level, target and message, for people.
    Text,
    /// One JSON object.
    Json,
}

impl LogFormat {
    /// The names of all formats.
    pub const NAMES: &'static [&'static str] = &["text", "json"];

    /// Returns the name of the format.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        }
    }

    /// Returns the format that has this name.
    #[must_use]
    pub fn named(name: &str) -> Option<LogFormat> {
        let all = [LogFormat::Text, LogFormat::Json];
        all.into_iter().find(|format| format.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_stands_for_a_value_with_that_name() {
        for name in LogLevel::NAMES {
            assert_eq!(LogLevel::named(name).map(LogLevel::name), Some(*name));
        }
        for name in LogFormat::NAMES {
            assert_eq!(LogFormat::named(name).map(LogFormat::name), Some(*name));
        }
        assert_eq!(LogLevel::named("loud"), None);
        assert_eq!(LogFormat::named("xml"), None);
    }
}
