//! The libraries of functions. In the database, the map `redis/functions` has the text of each library under
//! the library's name (docs/formats/catalog.md). From its start, the server also keeps all libraries in memory.

use crate::engine::{Attempt, Db, Epoch, Error, PartitionSet, Ticket, Tx};
use perdura_base::flaw::{Flaw, armed};
use perdura_script::{
    Ask, Code, Failure, Halt, Header, Host, Registered, Runtime, Words, sha1_hex,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The map that holds the libraries.
const MAP: &str = "redis/functions";

/// A library.
#[derive(Debug, Clone)]
pub(super) struct Library {
    /// The library's whole text.
    pub text: Arc<[u8]>,
    /// The SHA-1 of the text.
    pub sha: String,
    /// The start offset of the library's code in the text.
    pub code: usize,
    /// The functions that the library has registered, sorted by name.
    pub functions: Vec<Registered>,
}

impl Library {
    /// Returns the library's code, without the header.
    pub(super) fn code(&self) -> Code<'_> {
        Code {
            sha: &self.sha,
            text: &self.text[self.code..],
        }
    }

    /// Runs the code of a library's text. Returns the library's name and the library. The error is
    /// a reply.
    pub(super) fn load(
        runtime: &mut Runtime,
        text: &[u8],
        host: &mut Quiet,
    ) -> Result<(String, Library), String> {
        let header = Header::of_library(text).map_err(|error| format!("ERR {error}"))?;
        let name = String::from_utf8_lossy(header.name.unwrap_or_default()).into_owned();
        let mut library = Library {
            text: Arc::from(text),
            sha: sha1_hex(text),
            code: header.code,
            functions: Vec::new(),
        };
        let mut functions = runtime
            .load_library(&library.code(), host)
            .map_err(|failure| match failure {
                Failure::Script(text) | Failure::Limit(text) => text,
                Failure::Halted => String::from("ERR the library was ended"),
            })?;
        functions.sort_by(|a, b| a.name.cmp(&b.name));
        library.functions = functions;
        Ok((name, library))
    }
}

/// The server as a library sees it while it is loaded: the library may only write lines to the log.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    /// The lines that libraries have written.
    pub lines: Vec<String>,
}

impl Quiet {
    /// Writes the lines to the server's log.
    pub(super) fn log(&self) {
        for line in &self.lines {
            tracing::info!("{line}");
        }
    }
}

impl Host for Quiet {
    fn call(&mut self, ask: Ask, words: &Words, reply: &mut Vec<u8>) -> Result<(), Halt> {
        match ask {
            Ask::Log => {
                let text = String::from_utf8_lossy(words.get(1).unwrap_or_default());
                self.lines.push(format!("A library says: {text}"));
                reply.extend_from_slice(b"+OK\r\n");
            }
            Ask::Command { .. } | Ask::MayRun => {
                reply.extend_from_slice(b"-ERR no command runs while a library is loaded\r\n");
            }
        }
        Ok(())
    }
}

/// All libraries.
#[derive(Debug)]
pub(super) struct Functions {
    libraries: BTreeMap<String, Library>,
    /// The name of each function's library.
    owners: HashMap<String, String>,
    /// The epoch of the newest change of a library. The replies of functions depend on this epoch.
    pub changed: Epoch,
}

impl Default for Functions {
    fn default() -> Self {
        Functions {
            libraries: BTreeMap::new(),
            owners: HashMap::new(),
            changed: Epoch(0),
        }
    }
}

/// A change of the libraries: it removes some and then adds others.
#[derive(Debug, Default)]
pub(super) struct Change {
    /// The names of the libraries that are removed.
    pub gone: Vec<String>,
    /// The libraries that are added, each with its name.
    pub come: Vec<(String, Library)>,
}

impl Functions {
    /// Returns the libraries by name.
    pub(super) fn libraries(&self) -> impl ExactSizeIterator<Item = (&String, &Library)> {
        self.libraries.iter()
    }

    /// Returns whether there is a library with this name.
    pub(super) fn has(&self, library: &str) -> bool {
        self.libraries.contains_key(library)
    }

    /// Returns the number of functions.
    pub(super) fn count(&self) -> usize {
        self.owners.len()
    }

    /// Returns the function with this name, and its library.
    pub(super) fn find(&self, name: &str) -> Option<(&Library, &Registered)> {
        let library = self.libraries.get(self.owners.get(name)?)?;
        let function = library
            .functions
            .iter()
            .find(|function| function.name == name)?;
        Some((library, function))
    }

    /// Fails if, after the change, one name would belong to two libraries or to two functions. The error is a reply.
    pub(super) fn check(&self, change: &Change) -> Result<(), String> {
        let mut owners: HashMap<&str, &str> = HashMap::new();
        for (name, library) in &change.come {
            let goes = change.gone.contains(name);
            let twice = change
                .come
                .iter()
                .filter(|(other, _)| other == name)
                .count()
                > 1;
            if twice || (self.has(name) && !goes) {
                return Err(format!("ERR Library {name} already exists"));
            }
            for function in &library.functions {
                let owner = self.owners.get(&function.name);
                let taken = owner.is_some_and(|owner| !change.gone.contains(owner));
                if taken || owners.insert(&function.name, name).is_some() {
                    return Err(format!("ERR Function {} already exists", function.name));
                }
            }
        }
        Ok(())
    }

    /// Writes a change into the database, in one transaction. If the log has no room, the call waits if `waits` is
    /// true. Otherwise it returns [`Attempt::Behind`], and the caller must try again later.
    pub(super) fn write(
        db: &Db,
        change: &Change,
        now_ms: u64,
        waits: bool,
    ) -> Result<Attempt<()>, Error> {
        let (map, made) = match db.try_map_later(MAP)? {
            Attempt::Committed(map, made) => (map, made),
            Attempt::Behind { .. } if waits => db.map_later(MAP)?,
            Attempt::Behind { bytes } => return Ok(Attempt::Behind { bytes }),
        };
        let mut partitions = PartitionSet::empty();
        let coming = change.come.iter().map(|(name, _)| name);
        for name in change.gone.iter().chain(coming) {
            partitions.insert(db.partition_of(name.as_bytes()));
        }
        let table = map.table();
        let put = |tx: &mut Tx<'_>| {
            for name in &change.gone {
                tx.delete(table, name.as_bytes())?;
            }
            if armed(Flaw::LibraryNotWritten) {
                return Ok(());
            }
            for (name, library) in &change.come {
                tx.put(table, name.as_bytes(), &library.text, None)?;
            }
            Ok::<_, Error>(())
        };
        let done = match waits {
            true => db
                .transact_at(&partitions, now_ms, put)
                .map(|((), ticket)| Attempt::Committed((), ticket)),
            false => db.try_transact_at(&partitions, now_ms, put),
        };
        Ok(match done? {
            Attempt::Committed((), ticket) => {
                let epoch = ticket.epoch.max(made.epoch);
                Attempt::Committed((), Ticket { epoch })
            }
            behind @ Attempt::Behind { .. } => behind,
        })
    }

    /// Applies a written change. Returns the SHA-1s of the removed libraries.
    pub(super) fn apply(&mut self, change: Change, epoch: Epoch) -> Vec<String> {
        let mut gone = Vec::new();
        for name in change.gone {
            if let Some(library) = self.libraries.remove(&name) {
                gone.push(library.sha);
            }
        }
        for (name, library) in change.come {
            self.libraries.insert(name, library);
        }
        self.owners = HashMap::new();
        for (name, library) in &self.libraries {
            let names = library
                .functions
                .iter()
                .map(|function| function.name.clone());
            self.owners
                .extend(names.map(|function| (function, name.clone())));
        }
        self.changed = self.changed.max(epoch);
        gone.retain(|sha| !self.libraries.values().any(|library| library.sha == *sha));
        gone
    }

    /// Takes over the libraries of another loop. Returns the SHA-1s of the libraries that are gone.
    pub(super) fn adopt(&mut self, from: &Functions) -> Vec<String> {
        let kept = |library: &Library| from.libraries.values().any(|one| one.sha == library.sha);
        let gone = self.libraries.values().filter(|library| !kept(library));
        let gone = gone.map(|library| library.sha.clone()).collect();
        self.libraries.clone_from(&from.libraries);
        self.owners.clone_from(&from.owners);
        self.changed = from.changed;
        gone
    }

    /// Reads all libraries of a database that was opened. A library that does not load stays in the database,
    /// and the server's log names the library.
    pub(super) fn read(db: &Db, runtime: &mut Runtime) -> Result<Self, Error> {
        let mut functions = Functions::default();
        let Some(map) = db.find_map(MAP) else {
            return Ok(functions);
        };
        let mut change = Change::default();
        for entry in map.prefix(b"") {
            let (name, text) = entry?;
            let mut quiet = Quiet::default();
            match Library::load(runtime, &text, &mut quiet) {
                Ok((name, library)) => change.come.push((name, library)),
                Err(error) => tracing::error!(
                    "The library of functions {} cannot be loaded. It stays in the database, but \
                     cannot be called: {error}",
                    String::from_utf8_lossy(&name)
                ),
            }
            quiet.log();
        }
        let _none_gone = functions.apply(change, Epoch(0));
        Ok(functions)
    }
}
