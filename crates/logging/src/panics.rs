//! A panic hook that reports panics as events. With the standard library's hook, the thread that panics would itself
//! write to stderr.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;
use std::thread;

/// Reports panics of all threads as events from now on.
pub(crate) fn report() {
    std::panic::set_hook(Box::new(|info| {
        let thread = thread::current();
        let thread = thread.name().unwrap_or("unnamed");
        let place = info
            .location()
            .map_or_else(String::new, ToString::to_string);
        let trace = Backtrace::capture();
        match trace.status() {
            BacktraceStatus::Captured => {
                tracing::error!(target: "panic", thread, place, %trace, "{}", reason(info));
            }
            _ => tracing::error!(target: "panic", thread, place, "{}", reason(info)),
        }
    }));
}

/// Returns the text of a panic.
fn reason<'a>(info: &'a PanicHookInfo<'_>) -> &'a str {
    let payload = info.payload();
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a text")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Capture;

    #[test]
    fn a_panic_is_one_line_with_its_thread_and_place() {
        let before = std::panic::take_hook();
        report();
        let log = Capture::default();
        let crash = || std::panic::catch_unwind(|| panic!("two\nlines"));
        assert!(log.run(crash).is_err());
        std::panic::set_hook(before);
        let lines = log.lines();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].contains(" ERROR panic: two\\nlines place="),
            "{lines:?}"
        );
        assert!(lines[0].contains("panics.rs:"), "{lines:?}");
    }
}
