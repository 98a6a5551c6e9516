//! A test of a command that writes two keys and declares only one.

use super::{ask, ready};
use crate::acl::User;
use crate::command::spec::{Command, ONE, data};
use crate::command::{Data, Done};
use crate::engine::UNDECLARED_KEY;
use crate::resp::parse::{Args, OwnedArgs};
use crate::resp::reply::Out;
use crate::testbed::Testbed;

/// Writes two keys: the first argument, which the command declares, and the second, which it does not declare.
fn overwrite(data: &mut Data<'_, '_>, args: &Args<'_>, out: &mut Out<'_>) -> Done {
    data.tx.put(data.table, args.at(1), b"new", None)?;
    data.tx.put(data.table, args.at(2), b"new", None)?;
    out.ok();
    Ok(())
}

#[test]
fn a_command_that_uses_a_key_it_does_not_declare_changes_nothing() {
    let command: Command = data("overwrite", 3, 0, ONE, overwrite);
    let dir = tempfile::tempdir().expect("a directory");
    let around = Testbed::new();
    let mut state = ready(&around, dir.path());
    ask(&mut state, 0, &["MSET", "a", "old", "b", "old"]);
    let db = state.db().expect("a database").clone();
    let owned = OwnedArgs::of([&b"overwrite"[..], b"a", b"b"].into_iter());
    let mut user = User::new(b"u", false);
    let rules = [&b"+@all"[..], b"~a"];
    user.apply(rules.into_iter(), false).expect("rules");
    let run = |user: &User| {
        let ran = db.transact(&db.all_partitions(), |tx| {
            let mut data = Data::new(&state, &db, tx, 0);
            data.run_for(user);
            let mut reply = Vec::new();
            data.run(&command, &owned.args(), &mut Out::new(&mut reply, false))
        });
        ran.map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(run(&user), Err(UNDECLARED_KEY.to_owned()));
    assert_eq!(
        ask(&mut state, 0, &["MGET", "a", "b"]),
        "*2\r\n$3\r\nold\r\n$3\r\nold\r\n"
    );
}
