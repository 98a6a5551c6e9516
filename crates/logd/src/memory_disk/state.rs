//! The state of a memory disk, in a file; see docs/formats/memory-disk.md.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use perdura_base::checksum::crc32c;
use perdura_base::{Error, Result, Uuid};
use rustix::fs::{FlockOperation, flock};

use crate::identity::draw_nonce;

const MAGIC: &[u8; 4] = b"PVMD";
const VERSION: u16 = 1;
/// The size of the state, bytes.
const BYTES: usize = 52;

/// The nodes and the generation that hold a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    /// True for each node that holds the disk.
    pub holders: [bool; 2],
    /// The uuid of the disk.
    pub uuid: Uuid,
    /// The highest generation that any server has used.
    pub claim: u64,
    /// The generation of the rings with the disk's records. 0: there is no ring yet.
    pub rings: u64,
    /// The number of the disk's blocks.
    pub blocks: u64,
}

impl State {
    /// Returns the state of a new disk.
    pub fn new(blocks: u64) -> Result<State> {
        if blocks == 0 {
            return Err(Error::Usage("a memory disk has at least one block".into()));
        }
        let mut uuid = Uuid([0; 16]);
        uuid.0.copy_from_slice(&draw_nonce()?[..16]);
        Ok(State {
            holders: [false; 2],
            uuid,
            claim: 0,
            rings: 0,
            blocks,
        })
    }

    /// Returns the bytes of the state.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        let [first, second] = self.holders.map(u8::from);
        bytes.extend([first | second << 1, 0]);
        bytes.extend(self.uuid.0);
        for number in [self.claim, self.rings, self.blocks] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(crc32c(&bytes).to_le_bytes());
        assert_eq!(bytes.len(), BYTES, "the format page says so");
        bytes
    }

    /// Decodes a state. Fails with the reason if the bytes are not a state.
    pub fn decode(bytes: &[u8]) -> Result<State, &'static str> {
        let Some((body, crc)) = bytes.split_last_chunk::<4>() else {
            return Err("it is too short");
        };
        if bytes.len() != BYTES || !body.starts_with(MAGIC) {
            return Err("it is no state of a memory disk");
        }
        if u32::from_le_bytes(*crc) != crc32c(body) {
            return Err("its checksum is wrong");
        }
        if body[4..6] != VERSION.to_le_bytes() {
            return Err("it is of another version");
        }
        let number = |at: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&body[at..at + 8]);
            u64::from_le_bytes(number)
        };
        let mut uuid = Uuid([0; 16]);
        uuid.0.copy_from_slice(&body[8..24]);
        let state = State {
            holders: [body[6] & 1 != 0, body[6] & 2 != 0],
            uuid,
            claim: number(24),
            rings: number(32),
            blocks: number(40),
        };
        match body[6] < 4 && body[7] == 0 && state.rings <= state.claim && state.blocks > 0 {
            true => Ok(state),
            false => Err("its fields contradict each other"),
        }
    }
}

/// The file of the state, locked.
pub(super) struct StateFile {
    dir: PathBuf,
    /// Locked until it is closed.
    _lock: File,
}

impl StateFile {
    /// Locks the state in a directory, which is made if it is not there.
    pub fn lock(dir: &Path) -> Result<StateFile> {
        let named = |op| move |error| Error::io(op, dir.display().to_string(), error);
        std::fs::create_dir_all(dir).map_err(named("make"))?;
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(dir.join("LOCK"))
            .map_err(named("lock"))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(Error::Usage(format!(
                "another process serves the memory disk of {}. Stop it first",
                dir.display()
            )));
        }
        Ok(StateFile {
            dir: dir.to_owned(),
            _lock: lock,
        })
    }

    fn path(&self) -> PathBuf {
        self.dir.join("state")
    }

    /// Reads the state. `None`: the disk is new.
    pub fn read(&self) -> Result<Option<State>> {
        let name = || self.path().display().to_string();
        let bytes = match std::fs::read(self.path()) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("read", name(), error)),
        };
        let state = State::decode(&bytes);
        let state = state.map_err(|why| {
            Error::io(
                "read",
                name(),
                std::io::Error::new(ErrorKind::InvalidData, why),
            )
        })?;
        Ok(Some(state))
    }

    /// Writes the state. When it returns, the state survives a power cut.
    pub fn write(&self, state: &State) -> Result<()> {
        let write = || {
            let new = self.dir.join("state.new");
            let mut file = File::create(&new)?;
            file.write_all(&state.encode())?;
            file.sync_all()?;
            std::fs::rename(&new, self.path())?;
            File::open(&self.dir)?.sync_all()
        };
        let name = self.path().display().to_string();
        write().map_err(|error| Error::io("write", name, error))
    }
}
