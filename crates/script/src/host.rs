//! What a script asks of the server.

/// The kinds of what a script asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Runs a command. Its reply is in RESP3 if `resp3`, else in RESP2.
    Command {
        /// What `redis.setresp` has chosen.
        resp3: bool,
    },
    /// Says whether the caller may run the command: `:1`, `:0`, or an error.
    MayRun,
    /// Writes the second word to the server's log; the first is the level, one digit. The reply is ignored.
    Log,
}

/// The script must end at once, and what it has done is undone: the host knows why.
#[derive(Debug)]
pub struct Halt;

/// The server, as a script sees it.
pub trait Host {
    /// Does what is asked and appends one reply in RESP to `reply`. An error of a command is a reply, too.
    ///
    /// # Errors
    /// [`Halt`] ends the script; no `pcall` catches it.
    fn call(&mut self, ask: Ask, words: &Words, reply: &mut Vec<u8>) -> Result<(), Halt>;
}

/// The words of what is asked, in one buffer.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Words {
    bytes: Vec<u8>,
    /// Where each word ends.
    ends: Vec<usize>,
}

impl Words {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The word at `index`, if there is one.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let begin = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.bytes[begin..end])
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Bytes of all words together.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Removes all words.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Appends a word.
    pub fn push(&mut self, word: &[u8]) {
        self.push_with(|bytes| bytes.extend_from_slice(word));
    }

    /// Appends a word that a function writes behind the words before it.
    pub(crate) fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }
}
