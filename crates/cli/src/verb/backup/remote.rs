//! Backups that a running server makes and lists.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::output;
use crate::transfer::address::Address;
use crate::transfer::client::{Connection, Reply};

/// The pause between two requests for the server's progress.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// The displayed fields of a reply to `BACKUP STATUS`.
#[derive(Debug, Deserialize, serde::Serialize)]
struct State {
    running: bool,
    pages_done: u64,
    pages: u64,
    ended: u64,
    last: Option<String>,
    last_end_epoch: u64,
    last_bytes: u64,
    error: Option<String>,
}

/// A backup in the reply to `BACKUP LIST`.
#[derive(Debug, Deserialize, serde::Serialize)]
struct Listed {
    name: String,
    kind: String,
    end_epoch: u64,
    checkpoint: u64,
    bytes: u64,
}

fn ask<T: for<'a> Deserialize<'a>>(server: &mut Connection, word: &[u8]) -> Result<T> {
    match server.ask(&[b"BACKUP", word])? {
        Reply::Bulk(Some(text)) => serde_json::from_slice(&text)
            .context("the server's reply is not the status of a backup"),
        other => bail!("the server answered {other:?} to BACKUP"),
    }
}

/// Makes the server take a backup, and waits until it is done.
pub fn create(address: &Address, json: bool) -> Result<()> {
    let address = address.clone().or_password_of_environment();
    let mut server = Connection::open(&address)?;
    let number = server.ask(&[b"BACKUP", b"CREATE"])?.number();
    let number = number.and_then(|number| u64::try_from(number).ok());
    let number = number.context("the server did not begin a backup")?;
    let shows = output::has_terminal();
    let state = loop {
        let state: State = ask(&mut server, b"STATUS")?;
        if state.ended >= number {
            break state;
        }
        if shows && state.pages > 0 {
            output::progress(&format!(
                "{} of {} pages    ",
                state.pages_done, state.pages
            ));
        }
        std::thread::sleep(ASK_EVERY);
    };
    if shows {
        output::progress("                                        \r");
    }
    if let Some(error) = &state.error {
        bail!("{address}: {error}");
    }
    if json {
        return output::json(&state);
    }
    output::text(&format!(
        "backup    {}: up to epoch {}, {} pages in {} bytes\n",
        state.last.unwrap_or_default(),
        state.last_end_epoch,
        state.pages,
        state.last_bytes
    ))
}

/// Lists the backups in the archive of a server.
pub fn list(address: &Address, json: bool) -> Result<()> {
    let address = address.clone().or_password_of_environment();
    let mut server = Connection::open(&address)?;
    let listed: Vec<Listed> = ask(&mut server, b"LIST")?;
    if json {
        return output::json(&listed);
    }
    let line = |one: &Listed| {
        format!(
            "backup    {}: {} of checkpoint {}, up to epoch {}, {} bytes\n",
            one.name, one.kind, one.checkpoint, one.end_epoch, one.bytes
        )
    };
    output::text(&listed.iter().map(line).collect::<String>())
}
