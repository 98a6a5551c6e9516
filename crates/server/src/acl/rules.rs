//! The words that make a user: `on >secret ~cache:* +@read -keys (+set ~tmp:*)`.

use super::catalog::{Access, CATALOG, category_number};
use super::selector::{KeyPattern, Selector};
use super::user::{Hash, User, hash};

/// What is wrong with a word, in the words of Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RuleError {
    /// No such command or category.
    #[error("Unknown command or category name in ACL")]
    Unknown,
    /// No rule at all.
    #[error("Syntax error")]
    Syntax,
    /// A pattern that adds nothing.
    #[error(
        "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not \
         have any effect. Try 'resetkeys' to start with an empty list of patterns"
    )]
    AllKeys,
    /// A pattern that adds nothing.
    #[error(
        "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does \
         not have any effect. Try 'resetchannels' to start with an empty list of channels"
    )]
    AllChannels,
    /// Not a hash.
    #[error(
        "The password hash must be exactly 64 characters and contain only lowercase hexadecimal \
         characters"
    )]
    BadHash,
    /// Cannot be removed.
    #[error("The password you are trying to remove from the user does not exist")]
    NoSuchPassword,
    /// `+config|get|x`
    #[error("Allowing first-arg of a subcommand is not supported")]
    FirstWordOfSubcommand,
}

/// A word that was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RulesError {
    /// A word that is no rule.
    #[error("Error in ACL SETUSER modifier '{}': {why}", String::from_utf8_lossy(.word))]
    Word {
        /// The word.
        word: Vec<u8>,
        /// What is wrong with it.
        why: RuleError,
    },
    /// A selector that does not end.
    #[error("Unmatched parenthesis in acl selector starting at '{}'.", String::from_utf8_lossy(.0))]
    Unmatched(Vec<u8>),
}

impl User {
    /// Applies words in order. After an error the user is of no use.
    pub(crate) fn apply<'a>(
        &mut self,
        words: impl Iterator<Item = &'a [u8]>,
        all_channels: bool,
    ) -> Result<(), RulesError> {
        for word in joined(words)? {
            self.apply_word(&word, all_channels)
                .map_err(|why| RulesError::Word { word, why })?;
        }
        self.settle();
        Ok(())
    }

    fn apply_word(&mut self, word: &[u8], all_channels: bool) -> Result<(), RuleError> {
        match word.to_ascii_lowercase().as_slice() {
            b"on" => self.enabled = true,
            b"off" => self.enabled = false,
            b"nopass" => {
                self.nopass = true;
                self.passwords.clear();
            }
            b"resetpass" => {
                self.nopass = false;
                self.passwords.clear();
            }
            b"sanitize-payload" => self.sanitize = Some(true),
            b"skip-sanitize-payload" => self.sanitize = Some(false),
            b"clearselectors" => self.selectors.clear(),
            b"reset" => {
                *self = User::new(&self.name, all_channels);
                self.sanitize = Some(true);
            }
            _ => match word {
                [b'>', password @ ..] => self.add_password(hash(password)),
                [b'#', hex @ ..] => self.add_password(parse_hash(hex)?),
                [b'<', password @ ..] => self.remove_password(hash(password))?,
                [b'!', hex @ ..] => self.remove_password(parse_hash(hex)?)?,
                [b'(', inner @ .., b')'] => {
                    let mut selector = Selector::new(all_channels);
                    for word in blanks(inner) {
                        selector.apply(word)?;
                    }
                    self.selectors.push(selector);
                }
                _ => self.root.apply(word)?,
            },
        }
        Ok(())
    }

    fn add_password(&mut self, hash: Hash) {
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
        self.nopass = false;
    }

    fn remove_password(&mut self, hash: Hash) -> Result<(), RuleError> {
        let at = self.passwords.iter().position(|known| *known == hash);
        self.passwords.remove(at.ok_or(RuleError::NoSuchPassword)?);
        Ok(())
    }
}

impl Selector {
    fn apply(&mut self, word: &[u8]) -> Result<(), RuleError> {
        match word.to_ascii_lowercase().as_slice() {
            b"allkeys" | b"~*" => {
                self.all_keys = true;
                self.keys.clear();
            }
            b"resetkeys" => {
                self.all_keys = false;
                self.keys.clear();
            }
            b"allchannels" | b"&*" => {
                self.all_channels = true;
                self.channels.clear();
            }
            b"resetchannels" => {
                self.all_channels = false;
                self.channels.clear();
            }
            b"allcommands" | b"+@all" => self.change_all(true),
            b"nocommands" | b"-@all" => self.change_all(false),
            _ => match word {
                [b'~' | b'%', ..] => self.add_keys(word)?,
                [b'&', pattern @ ..] => self.add_channels(pattern)?,
                [b'+', b'@', name @ ..] => self.change_category(category(name)?, true),
                [b'-', b'@', name @ ..] => self.change_category(category(name)?, false),
                [b'+', name @ ..] => self.allow(name)?,
                [b'-', name @ ..] => {
                    self.change(CATALOG.find(name).ok_or(RuleError::Unknown)?, false);
                }
                _ => return Err(RuleError::Syntax),
            },
        }
        Ok(())
    }

    fn add_keys(&mut self, word: &[u8]) -> Result<(), RuleError> {
        if self.all_keys {
            return Err(RuleError::AllKeys);
        }
        let (access, pattern) = match word {
            [b'~', pattern @ ..] => {
                let both = Access {
                    read: true,
                    write: true,
                };
                (both, pattern)
            }
            [_, b'R' | b'r', b'~', pattern @ ..] => (one(true), pattern),
            [_, b'W' | b'w', b'~', pattern @ ..] => (one(false), pattern),
            [_, b'R' | b'r', b'W' | b'w', b'~', pattern @ ..]
            | [_, b'W' | b'w', b'R' | b'r', b'~', pattern @ ..] => {
                let both = Access {
                    read: true,
                    write: true,
                };
                (both, pattern)
            }
            _ => return Err(RuleError::Syntax),
        };
        check_pattern(pattern)?;
        match self.keys.iter_mut().find(|known| known.pattern == pattern) {
            Some(known) => {
                known.access.read |= access.read;
                known.access.write |= access.write;
            }
            None => self.keys.push(KeyPattern {
                access,
                pattern: pattern.to_vec(),
            }),
        }
        Ok(())
    }

    fn add_channels(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        if self.all_channels {
            return Err(RuleError::AllChannels);
        }
        check_pattern(pattern)?;
        if !self.channels.iter().any(|known| known == pattern) {
            self.channels.push(pattern.to_vec());
        }
        Ok(())
    }

    fn allow(&mut self, name: &[u8]) -> Result<(), RuleError> {
        let Some(bar) = name.iter().rposition(|b| *b == b'|') else {
            self.change(CATALOG.find(name).ok_or(RuleError::Unknown)?, true);
            return Ok(());
        };
        let (outer, word) = (&name[..bar], &name[bar + 1..]);
        let number = CATALOG.find(outer).ok_or(RuleError::Unknown)?;
        let entry = CATALOG.at(number);
        if entry.parent.is_some() {
            return Err(RuleError::FirstWordOfSubcommand);
        }
        if word.is_empty() {
            return Err(RuleError::Syntax);
        }
        if !entry.command.words.is_empty() {
            self.change(CATALOG.find(name).ok_or(RuleError::Unknown)?, true);
            return Ok(());
        }
        let words = self.first_words.entry(number).or_default();
        if !words.iter().any(|known| known.eq_ignore_ascii_case(word)) {
            words.push(word.to_vec());
        }
        Ok(())
    }
}

fn one(read: bool) -> Access {
    Access { read, write: !read }
}

fn category(name: &[u8]) -> Result<usize, RuleError> {
    category_number(name).ok_or(RuleError::Unknown)
}

/// A pattern stands between blanks in files.
fn check_pattern(pattern: &[u8]) -> Result<(), RuleError> {
    if pattern.iter().any(|b| is_blank(*b) || *b == 0) {
        return Err(RuleError::Syntax);
    }
    Ok(())
}

/// Whether C calls a byte a blank.
pub(crate) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Words between blanks.
pub(crate) fn blanks(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|b| is_blank(*b)).filter(|word| !word.is_empty())
}

fn parse_hash(hex: &[u8]) -> Result<Hash, RuleError> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        _ => Err(RuleError::BadHash),
    };
    let mut hash = Hash::default();
    if hex.len() != hash.len() * 2 {
        return Err(RuleError::BadHash);
    }
    for (byte, pair) in hash.iter_mut().zip(hex.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Ok(hash)
}

/// Puts the words of a selector that were given apart together again.
fn joined<'a>(words: impl Iterator<Item = &'a [u8]>) -> Result<Vec<Vec<u8>>, RulesError> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    let mut open: Option<Vec<u8>> = None;
    for word in words {
        match &mut open {
            Some(selector) => {
                selector.push(b' ');
                selector.extend_from_slice(word);
                if word.ends_with(b")") {
                    all.extend(open.take());
                }
            }
            None if word.starts_with(b"(") && !word.ends_with(b")") => open = Some(word.to_vec()),
            None => all.push(word.to_vec()),
        }
    }
    match open {
        Some(selector) => Err(RulesError::Unmatched(selector)),
        None => Ok(all),
    }
}
