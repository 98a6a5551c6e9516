//! A dump file: header, opcodes, keys, the checksum at the end.

use std::io::Read;

use crate::VERSION_MAX;
use crate::error::{Error, Result};
use crate::skip;
use crate::source::{BUFFER_BYTES, Source};
use crate::value::{self, Found, Value};

/// A key with its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The database's number.
    pub db: u64,
    /// The key.
    pub key: Vec<u8>,
    /// The key's expiry time, milliseconds since 1970. The time may have passed. `None`: the key never expires.
    pub expires_at_ms: Option<i64>,
    /// The value.
    pub value: Value,
    /// The number of fields of a hash that have their own deadlines (Redis 7.4). The deadlines are not read.
    pub fields_with_deadline: u64,
}

/// The kinds of data that the reader steps over, because no [`Value`] can hold them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A value of a module's type.
    Module,
    /// Data that a module keeps beside the keys. It has no key.
    ModuleAux,
}

/// An item of a dump file.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// A key.
    Key(Entry),
    /// The code of a library of functions.
    Library(Vec<u8>),
    /// Something that an import leaves out.
    Skipped {
        /// Its kind.
        what: What,
        /// The database's number.
        db: u64,
        /// The key. Empty for data without a key.
        key: Vec<u8>,
    },
    /// The number of keys in a database, stated in the dump before these keys.
    Size {
        /// The database's number.
        db: u64,
        /// The number of its keys.
        keys: u64,
    },
    /// A remark such as `redis-ver`.
    Remark {
        /// Its name.
        name: Vec<u8>,
        /// Its text.
        text: Vec<u8>,
    },
}

mod opcode {
    pub const SLOT_INFO: u8 = 244;
    pub const FUNCTION: u8 = 245;
    pub const MODULE_AUX: u8 = 247;
    pub const IDLE: u8 = 248;
    pub const FREQUENCY: u8 = 249;
    pub const REMARK: u8 = 250;
    pub const SIZE: u8 = 251;
    pub const EXPIRES_MS: u8 = 252;
    pub const EXPIRES_S: u8 = 253;
    pub const SELECT: u8 = 254;
    pub const END: u8 = 255;
}

/// The first format version with a checksum at the end of dumps.
const CHECKSUM_SINCE: u32 = 5;

/// A dump file, read from beginning to end.
pub struct File<R> {
    source: Source<R>,
    version: u32,
    db: u64,
    ended: bool,
}

impl<R: Read> File<R> {
    /// Reads the header. The input need not be buffered.
    ///
    /// # Errors
    /// Returns [`Error::Foreign`] or [`Error::Version`], or [`Error::Io`] if the input cannot be read.
    pub fn open(input: R) -> Result<Self> {
        let mut source = Source::new(input, BUFFER_BYTES);
        let magic: [u8; 9] = source.array().map_err(|error| match error {
            Error::Truncated { .. } => Error::Foreign,
            other => other,
        })?;
        let digits = magic.strip_prefix(b"REDIS").ok_or(Error::Foreign)?;
        let version = std::str::from_utf8(digits)
            .ok()
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))
            .and_then(|digits| digits.parse().ok())
            .ok_or(Error::Foreign)?;
        if !(1..=VERSION_MAX).contains(&version) {
            return Err(Error::Version {
                found: version,
                newest: VERSION_MAX,
            });
        }
        Ok(File {
            source,
            version,
            db: 0,
            ended: false,
        })
    }

    /// Returns the version of the format.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Returns the number of bytes read so far.
    pub fn position(&self) -> u64 {
        self.source.position()
    }

    /// Returns the next item. `None`: the dump has ended, and its checksum was right.
    ///
    /// # Errors
    /// Returns an error for damage of any kind. After an error, all further calls return `None`.
    pub fn next_item(&mut self) -> Result<Option<Item>> {
        if self.ended {
            return Ok(None);
        }
        let begin = self.position();
        let item = self.read_item();
        debug_assert!(self.position() >= begin, "a file is read forwards");
        self.ended = !matches!(item, Ok(Some(_)));
        item
    }

    fn read_item(&mut self) -> Result<Option<Item>> {
        let mut expires_at_ms = None;
        loop {
            let source = &mut self.source;
            match source.byte()? {
                opcode::END => {
                    self.check_sum()?;
                    return Ok(None);
                }
                opcode::SELECT => self.db = source.length()?,
                opcode::SIZE => {
                    let keys = source.length()?;
                    source.length()?;
                    return Ok(Some(Item::Size { db: self.db, keys }));
                }
                opcode::REMARK => {
                    let (name, text) = (source.string()?, source.string()?);
                    return Ok(Some(Item::Remark { name, text }));
                }
                opcode::EXPIRES_S => {
                    let seconds = i32::from_le_bytes(source.array()?);
                    expires_at_ms = Some(i64::from(seconds) * 1000);
                }
                opcode::EXPIRES_MS => expires_at_ms = Some(i64::from_le_bytes(source.array()?)),
                opcode::IDLE => source.length().map(|_| ())?,
                opcode::FREQUENCY => source.skip(1)?,
                opcode::SLOT_INFO => {
                    for _ in 0..3 {
                        source.length()?;
                    }
                }
                opcode::FUNCTION => return Ok(Some(Item::Library(source.string()?))),
                opcode::MODULE_AUX => {
                    skip::module_aux(source)?;
                    return Ok(Some(self.skipped(What::ModuleAux, Vec::new())));
                }
                kind => return self.read_key(kind, expires_at_ms).map(Some),
            }
        }
    }

    fn read_key(&mut self, kind: u8, expires_at_ms: Option<i64>) -> Result<Item> {
        let key = self.source.string()?;
        let at = self.source.position();
        let found = value::read(&mut self.source, kind).map_err(|error| error.of_key(&key, at))?;
        Ok(match found {
            Found::Value(value, fields_with_deadline) => Item::Key(Entry {
                db: self.db,
                key,
                expires_at_ms,
                value,
                fields_with_deadline,
            }),
            Found::Module => self.skipped(What::Module, key),
        })
    }

    fn skipped(&self, what: What, key: Vec<u8>) -> Item {
        Item::Skipped {
            what,
            db: self.db,
            key,
        }
    }

    /// Compares the dump's checksum with the checksum of the bytes up to the end opcode. A zero in the dump means that
    /// the dump's writer computed no checksum.
    fn check_sum(&mut self) -> Result<()> {
        if self.version < CHECKSUM_SINCE {
            return Ok(());
        }
        let computed = self.source.checksum();
        let found = u64::from_le_bytes(self.source.array()?);
        if found != 0 && found != computed {
            return Err(Error::Checksum { found, computed });
        }
        Ok(())
    }
}
