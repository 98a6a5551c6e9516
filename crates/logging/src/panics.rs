//! Panics as events: the standard library's own report would write to stderr in the thread that panics.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;
use std::thread;

/// Has panics of all threads reported as events.
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
