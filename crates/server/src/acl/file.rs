//! The ACL file: one user on each line, `user alice on #… ~cache:* +@read`. A file with an error changes no user. ACL
//! SAVE writes a new file and renames it, so that no reader sees half of it.

use super::rules::{RulesError, blanks};
use super::user::User;
use super::{Acl, is_name};
use crate::engine::open_regular;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

/// All errors in a file that was refused.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join(" "))]
pub(crate) struct FileError(Vec<String>);

impl Acl {
    /// Replaces all users by the users of a file. If the file does not name the user `default`, that user stays as it
    /// is.
    pub(crate) fn load(&mut self, path: &Path, all_channels: bool) -> Result<(), FileError> {
        let place = path.display();
        // Only a regular file is accepted, because ACL SAVE replaces the file.
        let mut text = Vec::new();
        let file = open_regular(File::options().read(true), 0, path);
        let read = file.and_then(|mut file| file.read_to_end(&mut text));
        read.map_err(|error| {
            FileError(vec![format!(
                "Error loading ACLs, opening file '{place}': {error}"
            )])
        })?;
        let mut users = Vec::new();
        let mut names = BTreeSet::new();
        let mut wrong = Vec::new();
        for (at, line) in text.split(|b| *b == b'\n').enumerate() {
            let at = at + 1;
            let mut words = blanks(line).peekable();
            if words.peek().is_none() {
                continue;
            }
            let (first, name) = (words.next(), words.next());
            let (Some(b"user"), Some(name)) = (first, name) else {
                wrong.push(format!(
                    "{place}:{at}: line should start with user keyword followed by the username."
                ));
                continue;
            };
            if !is_name(name) {
                wrong.push(format!("{place}:{at}: the user's name has a zero byte."));
                continue;
            }
            if !names.insert(name) {
                let name = String::from_utf8_lossy(name);
                wrong.push(format!(
                    "WARNING: Duplicate user '{name}' found on line {at}."
                ));
                continue;
            }
            match user(name, words, all_channels) {
                Ok(user) => users.push(user),
                Err(RulesError::Word { why, .. }) => wrong.push(format!("{place}:{at}: {why}.")),
                Err(error @ RulesError::Unmatched(_)) => {
                    wrong.push(format!("{place}:{at}: {error}"));
                }
            }
        }
        if !wrong.is_empty() {
            return Err(FileError(wrong));
        }
        self.users.retain(|name, _| name == super::DEFAULT);
        for user in users {
            self.put(user);
        }
        Ok(())
    }

    /// Adds the users of the configuration. Each line is `name rule …`.
    pub(crate) fn configure(&mut self, lines: &[String], all_channels: bool) -> Result<(), String> {
        for line in lines {
            let mut words = blanks(line.as_bytes());
            let name = words
                .next()
                .filter(|name| is_name(name))
                .ok_or_else(|| format!("user '{line}': there is no name"))?;
            let made = user(name, words, all_channels)
                .map_err(|error| format!("user '{}': {error}", String::from_utf8_lossy(name)))?;
            self.put(made);
        }
        Ok(())
    }

    /// Returns all users as lines for [`configure`](Self::configure).
    ///
    /// # Errors
    /// If a password is still being hashed, or if the rules of a user are not UTF-8.
    pub(crate) fn lines(&self) -> Result<Vec<String>, String> {
        let line = |user: &Arc<User>| {
            let name = String::from_utf8_lossy(&user.name).into_owned();
            let line = user.describe();
            let line =
                line.ok_or_else(|| format!("a password of user '{name}' is being hashed"))?;
            String::from_utf8(line).map_err(|_| {
                format!(
                    "the rules of user '{name}' are not UTF-8, so only an ACL file can store \
                     them. Set 'aclfile' and use ACL SAVE"
                )
            })
        };
        self.users().map(line).collect()
    }

    /// Writes all users to a file.
    pub(crate) fn save(&self, path: &Path) -> io::Result<()> {
        let mut text = Vec::new();
        for user in self.users() {
            text.extend_from_slice(b"user ");
            let described = user.describe();
            let hashing = || io::Error::other("a password is still being hashed");
            text.extend_from_slice(&described.ok_or_else(hashing)?);
            text.push(b'\n');
        }
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".tmp-{}", std::process::id()));
        let beside = Path::new(&beside);
        let written = write_whole(beside, &text).and_then(|()| fs::rename(beside, path));
        if let Err(error) = written {
            // A half-written file is useless, so it is removed.
            let _ = fs::remove_file(beside);
            return Err(error);
        }
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    }
}

/// Makes a user from its rules.
fn user<'a>(
    name: &[u8],
    words: impl Iterator<Item = &'a [u8]>,
    all_channels: bool,
) -> Result<User, RulesError> {
    let mut user = User::new(name, all_channels);
    user.apply(words, all_channels)?;
    Ok(user)
}

/// Writes a file that only the owner may read, because the file holds hashes of passwords.
fn write_whole(path: &Path, text: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text)?;
    file.sync_all()
}
