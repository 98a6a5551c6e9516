//! The first line of a script or a library: `#!lua name=mylib flags=no-writes,allow-oom`.

use std::fmt;

/// The flags that a script or a function declares.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Flags {
    /// The script changes nothing.
    pub no_writes: bool,
    /// The script may run when the memory is used up.
    pub allow_oom: bool,
    /// The script may run on a replica that has lost its master.
    pub allow_stale: bool,
    /// The script must not run in a cluster.
    pub no_cluster: bool,
    /// The script's keys may be in several slots.
    pub allow_cross_slot_keys: bool,
}

/// The names of the flags, in the order of FUNCTION LIST.
const NAMES: [&str; 5] = [
    "no-writes",
    "allow-oom",
    "allow-stale",
    "no-cluster",
    "allow-cross-slot-keys",
];

impl Flags {
    fn place(&mut self, name: &[u8]) -> Option<&mut bool> {
        match NAMES.iter().position(|known| known.as_bytes() == name)? {
            0 => Some(&mut self.no_writes),
            1 => Some(&mut self.allow_oom),
            2 => Some(&mut self.allow_stale),
            3 => Some(&mut self.no_cluster),
            _ => Some(&mut self.allow_cross_slot_keys),
        }
    }

    /// Sets the flag called `name`. Returns false if the name is unknown.
    pub fn set(&mut self, name: &[u8]) -> bool {
        self.place(name).map(|flag| *flag = true).is_some()
    }

    /// Returns the names of the flags that are set.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        let mut flags = *self;
        NAMES
            .into_iter()
            .filter(move |name| flags.place(name.as_bytes()).is_some_and(|set| *set))
    }
}

/// An invalid header. Contains the text of an error reply without its code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderError(pub String);

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The parts of a first line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// The name of the engine.
    pub engine: &'a [u8],
    /// The name that the line gives to the library.
    pub name: Option<&'a [u8]>,
    /// The flags. `None`: the line has none.
    pub flags: Option<Flags>,
    /// The offset of the code: the end of the first line. The code begins with that line's line break, so its lines
    /// have the same numbers as in the whole text.
    pub code: usize,
}

impl<'a> Header<'a> {
    /// Reads the first line of a script. Returns `None` if it is not a header.
    ///
    /// # Errors
    /// The line names an engine, an option or a flag that scripts do not have.
    pub fn of_script(source: &'a [u8]) -> Result<Option<Header<'a>>, HeaderError> {
        if !source.starts_with(b"#!") {
            return Ok(None);
        }
        if !source.contains(&b'\n') {
            return Err(HeaderError(String::from("Invalid script shebang")));
        }
        let header = Header::read(source, |word| {
            HeaderError(format!("Unknown lua shebang option: {}", shown(word)))
        })?;
        if header.engine != b"lua" {
            let engine = shown(header.engine);
            let text = format!("Unexpected engine in script shebang: #!{engine}");
            return Err(HeaderError(text));
        }
        match header.name {
            Some(name) => Err(HeaderError(format!(
                "Unknown lua shebang option: name={}",
                shown(name)
            ))),
            None => Ok(Some(header)),
        }
    }

    /// Reads the first line of a library.
    ///
    /// # Errors
    /// The line is missing, names no library, or has an option that libraries do not have.
    pub fn of_library(source: &'a [u8]) -> Result<Header<'a>, HeaderError> {
        let wrong = |text: &str| HeaderError(String::from(text));
        if !source.starts_with(b"#!") {
            return Err(wrong("Missing library metadata"));
        }
        if !source.contains(&b'\n') {
            return Err(wrong("Invalid library metadata"));
        }
        let invalid =
            |word: &[u8]| HeaderError(format!("Invalid metadata value given: {}", shown(word)));
        let header = Header::read(source, invalid)?;
        if !header.engine.eq_ignore_ascii_case(b"lua") {
            return Err(HeaderError(format!(
                "Engine '{}' not found",
                shown(header.engine)
            )));
        }
        if header.flags.is_some() {
            let line = &source[..header.code];
            let words = line.split(u8::is_ascii_whitespace);
            let mut flags = words.filter(|word| word.starts_with(b"flags="));
            return Err(invalid(flags.next().unwrap_or(b"flags")));
        }
        match header.name {
            None => Err(wrong("Library name was not given")),
            Some(name) if !is_name(name) => Err(wrong(BAD_NAME)),
            Some(_) => Ok(header),
        }
    }

    fn read(
        source: &'a [u8],
        unknown: impl Fn(&[u8]) -> HeaderError,
    ) -> Result<Header<'a>, HeaderError> {
        let code = memchr::memchr(b'\n', source).unwrap_or(source.len());
        let mut words = source[2..code.max(2)]
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty());
        let mut header = Header {
            engine: words.next().unwrap_or(b""),
            name: None,
            flags: None,
            code,
        };
        for word in words {
            if let Some(name) = word.strip_prefix(b"name=") {
                if header.name.replace(name).is_some() {
                    return Err(HeaderError(String::from(
                        "Invalid metadata value, name argument was given multiple times",
                    )));
                }
            } else if let Some(list) = word.strip_prefix(b"flags=") {
                let mut flags = Flags::default();
                for flag in list.split(|b| *b == b',').filter(|flag| !flag.is_empty()) {
                    if !flags.set(flag) {
                        let text = format!("Unexpected flag in script shebang: {}", shown(flag));
                        return Err(HeaderError(text));
                    }
                }
                header.flags = Some(flags);
            } else {
                return Err(unknown(word));
            }
        }
        Ok(header)
    }
}

/// The error for an invalid name of a library or a function, in the words of Redis.
pub(crate) const BAD_NAME: &str = "Library names can only contain letters, numbers, or underscores(_) and must be at \
                                   least one character long";

/// Returns whether a library or a function may have this name.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_')
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(128)]).into_owned()
}
