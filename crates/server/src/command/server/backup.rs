//! BACKUP: makes backups of the database in the archive. Redis does not have this command.

use crate::command::Cx;
use crate::command::flag::{ADMIN, APART};
use crate::command::run::failed;
use crate::command::spec::{Command, family};
use crate::resp::parse::Args;

const WORDS: &[(&str, i8)] = &[("create", 2), ("help", 2), ("list", 2), ("status", 2)];

/// The commands of this module.
pub(crate) static COMMANDS: &[Command] = &[family("backup", -2, ADMIN | APART, WORDS, backup)];

/// `BACKUP CREATE|LIST|STATUS`
fn backup(cx: &mut Cx<'_>, args: &Args<'_>) {
    let Some(db) = cx.state.db().cloned() else {
        return cx.out.error("ERR the database is not open");
    };
    match args.at(1).to_ascii_lowercase().as_slice() {
        // The reply is the backup's number. Clients compare it with `ended` in the reply of BACKUP STATUS.
        b"create" => match db.begin_backup() {
            Ok(number) => cx.out.integer(i64::try_from(number).unwrap_or(i64::MAX)),
            Err(error) => failed(cx.state, &error, &mut cx.out),
        },
        b"list" => match serde_json::to_string(&db.backups()) {
            Ok(list) => cx.out.text(&list),
            Err(error) => cx.out.error(&format!("ERR {error}")),
        },
        b"status" => match serde_json::to_string(&db.backup_state()) {
            Ok(state) => cx.out.text(&state),
            Err(error) => cx.out.error(&format!("ERR {error}")),
        },
        _ => cx.out.help(&[
            "BACKUP <subcommand>. Subcommands are:",
            "CREATE: has a backup made in the archive; its number, and it is not waited for.",
            "LIST: the backups of the archive, as JSON.",
            "STATUS: how far a backup is, and what became of the last one, as JSON.",
        ]),
    }
}
