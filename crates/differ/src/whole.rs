//! Steps for a whole value or keyspace: a whole iteration, and values copied between the servers.

use crate::divergence::Divergence;
use crate::exceptions;
use crate::pair::Side;
use crate::reply::{Body, Reply};
use crate::step::{Argv, name};
use crate::wire::encode;
use crate::wires::Wires;
use anyhow::Result;

/// The maximum number of steps in an iteration. A longer iteration counts as endless, and the test ends it.
const SCAN_STEPS_MAX: usize = 100_000;

/// Runs a whole iteration on each server, and compares the sets of returned items.
pub(crate) fn scan(wires: &mut Wires, argv: &Argv, cursor: usize) -> Result<Option<Divergence>> {
    let mut found = Vec::new();
    for side in [Side::Ours, Side::Theirs] {
        let mut argv = argv.clone();
        let pairs = matches!(name(&argv).as_str(), "HSCAN" | "ZSCAN");
        let mut items: Vec<Vec<Reply>> = Vec::new();
        let mut steps = 0;
        let end = loop {
            let wire = wires.control(side);
            wire.send(&encode(&argv))?;
            let reply = wire.read()?;
            let [next, page] = reply.items() else {
                break Some(reply);
            };
            let group = if pairs { 2 } else { 1 };
            items.extend(page.items().chunks(group).map(<[Reply]>::to_vec));
            argv[cursor] = next.text().unwrap_or_default().to_vec();
            steps += 1;
            if argv[cursor] == b"0" || steps > SCAN_STEPS_MAX {
                break None;
            }
        };
        items.sort_unstable();
        items.dedup();
        let items = items.into_iter().flatten().collect();
        found.push(end.unwrap_or(Reply {
            kind: b'*',
            body: Body::Items(items),
        }));
    }
    let differ = found[0] != found[1] && !exceptions::allowed(argv, &found[0], &found[1]);
    Ok(differ.then(|| Divergence::new(argv, &found[0], &found[1]).at("(whole iteration)")))
}

/// Makes the two servers exchange DUMPs of a key. Each server RESTOREs the received DUMP under a new name.
pub(crate) fn exchange(wires: &mut Wires, key: &[u8]) -> Result<Option<Divergence>> {
    let dump: Argv = vec![b"DUMP".to_vec(), key.to_vec()];
    let seen = match wires.ask(dump)? {
        Ok(seen) => seen,
        Err(found) => return Ok(Some(found)),
    };
    let (Some(ours), Some(theirs)) = (seen.ours.text(), seen.theirs.text()) else {
        return Ok(None);
    };
    let restore = |payload: &[u8]| -> Argv {
        let words: [&[u8]; 5] = [b"RESTORE", b"n8", b"0", payload, b"REPLACE"];
        words.map(<[u8]>::to_vec).to_vec()
    };
    wires.control(Side::Ours).send(&encode(&restore(theirs)))?;
    wires.control(Side::Theirs).send(&encode(&restore(ours)))?;
    let (here, there) = (
        wires.control(Side::Ours).read()?,
        wires.control(Side::Theirs).read()?,
    );
    Ok(Divergence::unless_same(&restore(ours), None, &here, &there))
}
