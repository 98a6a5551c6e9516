//! Parses the words that define a user: `on >secret ~cache:* +@read -keys (+set ~tmp:*)`.

use super::catalog::{Access, CATALOG, category_number};
use super::secret::{Mark, PASSWORD_BYTES_MAX, Secret};
use super::selector::{KeyPattern, Selector};
use super::user::User;
use std::sync::Arc;

/// The error in a word, with Redis's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RuleError {
    /// An unknown command or category.
    #[error("Unknown command or category name in ACL")]
    Unknown,
    /// The word is not a rule.
    #[error("Syntax error")]
    Syntax,
    /// A key pattern that has no effect, because all keys are allowed already.
    #[error(
        "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not \
         have any effect. Try 'resetkeys' to start with an empty list of patterns"
    )]
    AllKeys,
    /// A channel pattern that has no effect, because all channels are allowed already.
    #[error(
        "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does \
         not have any effect. Try 'resetchannels' to start with an empty list of channels"
    )]
    AllChannels,
    /// The text is not a SHA-256 hash.
    #[error(
        "The password hash must be exactly 64 characters and contain only lowercase hexadecimal \
         characters"
    )]
    BadHash,
    /// An argon2id hash that cannot be read or asks for too much.
    #[error(
        "The argon2id hash cannot be read, or asks for more than 64 MiB of memory, 8 passes or 8 \
         lanes"
    )]
    BadArgon2,
    /// A password that is too long to be hashed.
    #[error("A password has at most 4096 bytes")]
    LongPassword,
    /// The password to be removed does not exist.
    #[error("The password you are trying to remove from the user does not exist")]
    NoSuchPassword,
    /// A rule that names a first argument of a subcommand: `+config|get|x`.
    #[error("Allowing first-arg of a subcommand is not supported")]
    FirstWordOfSubcommand,
}

/// A word that was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RulesError {
    /// A word with an error.
    #[error("Error in ACL SETUSER modifier '{}': {why}", String::from_utf8_lossy(.word))]
    Word {
        /// The word.
        word: Vec<u8>,
        /// The error in the word.
        why: RuleError,
    },
    /// A selector without its closing parenthesis.
    #[error("Unmatched parenthesis in acl selector starting at '{}'.", String::from_utf8_lossy(.0))]
    Unmatched(Vec<u8>),
}

impl User {
    /// Applies the words of rules in order. After an error the caller must discard the user.
    pub(crate) fn apply<'a>(
        &mut self,
        words: impl Iterator<Item = &'a [u8]>,
        all_channels: bool,
    ) -> Result<(), RulesError> {
        for word in joined(words)? {
            self.apply_word(&word, all_channels)
                .map_err(|why| RulesError::Word { word, why })?;
        }
        self.note_limits();
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
                [b'>', password @ ..] if password.len() > PASSWORD_BYTES_MAX => {
                    return Err(RuleError::LongPassword);
                }
                [b'>', password @ ..] => self.add_password(Secret::of(password)),
                [b'#', text @ ..] => self.add_password(Secret::parse(text)?),
                [b'<', password @ ..] => {
                    let mark = Mark::of(password);
                    self.remove_password(|secret| secret.is(&mark) == Some(true))?;
                }
                [b'!', text @ ..] => {
                    let meant = Secret::parse(text)?;
                    self.remove_password(|secret| secret.is_meant_by(&meant))?;
                }
                [b'(', inner @ .., b')'] => {
                    let mut selector = Selector::new(all_channels);
                    for word in blanks(inner) {
                        // In the ACL file, a word that ends with `)` ends the selector.
                        if word.ends_with(b")") {
                            return Err(RuleError::Syntax);
                        }
                        selector.apply(word)?;
                    }
                    self.selectors.push(selector);
                }
                _ => self.root.apply(word)?,
            },
        }
        Ok(())
    }

    fn add_password(&mut self, secret: Arc<Secret>) {
        if !self
            .passwords
            .iter()
            .any(|known| known.is_meant_by(&secret))
        {
            self.passwords.push(secret);
        }
        self.nopass = false;
    }

    /// Removes every secret that `is_meant` accepts. A password may have two secrets: one in the form
    /// SHA-256, and one in the form argon2id.
    fn remove_password(&mut self, is_meant: impl Fn(&Secret) -> bool) -> Result<(), RuleError> {
        let before = self.passwords.len();
        self.passwords.retain(|secret| !is_meant(secret));
        match self.passwords.len() < before {
            true => Ok(()),
            false => Err(RuleError::NoSuchPassword),
        }
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
        check_word(pattern)?;
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
        check_word(pattern)?;
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
        check_word(word)?;
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

/// Fails if a word contains a blank or a zero byte. Such a word cannot be written to a file and read back
/// unchanged.
fn check_word(word: &[u8]) -> Result<(), RuleError> {
    if word.iter().any(|b| is_blank(*b) || *b == 0) {
        return Err(RuleError::Syntax);
    }
    Ok(())
}

/// Returns whether C's `isspace` counts a byte as a blank.
pub(crate) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Splits a text into the words between blanks.
pub(crate) fn blanks(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|b| is_blank(*b)).filter(|word| !word.is_empty())
}

/// Joins the words of each selector, which may be given as separate arguments, into one word.
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
