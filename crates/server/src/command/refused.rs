//! Commands of Redis that this server does not have but knows by name. So a client reads the reason
//! instead of "unknown command", and access rules may name them.

use super::spec::{Command, flag::APART, plain};
use super::{Cx, Keys};
use crate::resp::parse::Args;

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] =
    &[plain("migrate", -6, APART, migrate).keyed(Keys::Migrate)];

fn refuse(cx: &mut Cx<'_>, args: &Args<'_>, why: &str) {
    let name = String::from_utf8_lossy(args.at(0)).to_ascii_uppercase();
    cx.out.error(&format!("ERR {name} is not supported: {why}"));
}

/// Refuses a command that loads a module.
pub(crate) fn modules(cx: &mut Cx<'_>, args: &Args<'_>) {
    refuse(cx, args, "the server does not load code");
}

fn migrate(cx: &mut Cx<'_>, args: &Args<'_>) {
    let why = "the server connects to no other server. Move keys with DUMP and RESTORE, or with \
               `perdura export`";
    refuse(cx, args, why);
}
