//! The interface through which a script makes requests to the server.

/// The kinds of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Runs a command. The reply is in RESP3 if `resp3` is true, otherwise in RESP2.
    Command {
        /// True if the script has chosen RESP3 with `redis.setresp`.
        resp3: bool,
    },
    /// Asks whether the caller may run the command. The reply is `:1`, `:0`, or an error.
    MayRun,
    /// Writes the second word to the server's log. The first word is the level, as one digit. The reply is ignored.
    Log,
}

/// The host's request to end the script at once. The host keeps the reason. The script's changes must be undone.
#[derive(Debug)]
pub struct Halt;

/// The server, as a script sees it.
pub trait Host {
    /// Serves a request and appends one reply in RESP to `reply`. A failed command replies with its error.
    ///
    /// # Errors
    /// [`Halt`] ends the script, and no `pcall` catches it.
    fn call(&mut self, ask: Ask, words: &Words, reply: &mut Vec<u8>) -> Result<(), Halt>;

    /// Notes that the run has taken [`LONG_RUN`](crate::LONG_RUN) and continues. The machine calls this once for each
    /// run. While the run makes requests, the call may come later, so a host with a clock can notice it before.
    fn note_long(&mut self) {}
}

/// The words of a request, stored in one buffer.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Words {
    bytes: Vec<u8>,
    /// The end offset of each word in the buffer.
    ends: Vec<usize>,
}

impl Words {
    /// Returns the number of words.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there are no words.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the word at `index`, or `None` if there are fewer words.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let begin = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.bytes[begin..end])
    }

    /// Returns all words.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Returns the size of all words together, bytes.
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

    /// Appends a word. `write` gets the buffer and appends the bytes of the word.
    pub(crate) fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }
}
