//! FCALL and FCALL_RO.

use super::eval::{May, Scope, WRITES, carry_out, count_keys};
use super::functions::Functions;
use crate::command::{Data, Done, Stop};
use crate::resp::parse::Args;
use crate::resp::reply::Out;

/// `FCALL function numkeys [key …] [arg …]`
pub(super) fn fcall(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    call(data, args, out, false)
}

/// `FCALL_RO function numkeys [key …] [arg …]`
pub(super) fn fcall_ro(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    call(data, args, out, true)
}

/// Returns all functions. Every reply shows whether a function exists, so the reply depends on the newest
/// change of the functions.
fn known<'a>(data: &mut Data<'a, '_>) -> &'a Functions {
    let functions = &data.state().scripts.functions;
    let ran = data.ran();
    ran.rests_on = ran.rests_on.max(functions.changed);
    functions
}

fn call(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>, reads: bool) -> Done {
    let functions = known(data);
    let name = String::from_utf8_lossy(args.at(1));
    let (library, function) = functions.find(&name).ok_or("ERR Function not found")?;
    let keys = count_keys(args).map_err(|stop| match stop {
        // Redis's text for FCALL differs from its text for EVAL.
        Stop::Error(text) if text == crate::command::NOT_INTEGER => {
            Stop::from("ERR Bad number of keys provided")
        }
        other => other,
    })?;
    if reads && !function.flags.no_writes {
        return Err(Stop::from(WRITES));
    }
    let scope = Scope {
        name: &function.name,
        keys,
        may: May::of(Some(function.flags), reads),
    };
    carry_out(data, args, out, scope, &|runtime, input, host, out| {
        runtime.run_function(&library.code(), &function.name, input, host, out)
    })
}
