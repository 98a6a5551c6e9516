//! A user's password, at rest and in memory.
//!
//! At rest a password is an argon2id hash in the usual text form (`$argon2id$v=19$m=19456,t=2,p=1$salt$hash`). A thief
//! of the file needs 19 MiB and tens of milliseconds for each guess. Redis's form, SHA-256 in hexadecimal digits, is
//! accepted too and is not converted.
//!
//! In memory, each password that was set in this process, or was right once, has a *mark*: the password's SHA-256,
//! hashed again with a key that is random per process. If a secret has a mark, a password is checked by comparing
//! marks, which takes microseconds. If the secret has no mark, argon2id must try the password. [`super::prove`] lets a
//! separate thread do that.

use super::rules::RuleError;
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Algorithm, Argon2, Params, Version};
use sha2::{Digest, Sha256};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use subtle::ConstantTimeEq;

/// The greatest length of a password, bytes.
pub(crate) const PASSWORD_BYTES_MAX: usize = 4096;
/// The memory, in KiB, for each argon2id hash that this server makes. OWASP recommends this value for two passes.
const MEMORY_KIB: u32 = 19 * 1024;
/// The number of passes of each argon2id hash that this server makes.
const PASSES: u32 = 2;
/// The maximum memory, in KiB, that a hash from a file may ask for.
const MEMORY_KIB_MAX: u32 = 64 * 1024;
/// The maximum number of passes that a hash from a file may ask for.
const PASSES_MAX: u32 = 8;
/// The maximum number of lanes that a hash from a file may ask for.
const LANES_MAX: u32 = 8;
/// Bytes of a salt.
const SALT_BYTES: usize = 16;

/// The form of a secret at rest.
#[derive(PartialEq, Eq)]
enum Stored {
    /// Redis's form.
    Sha256([u8; 32]),
    /// The text of an argon2id hash.
    Argon2(Box<str>),
}

/// A password's keyed hash. The key is random per process, so the hash is useless outside the process.
#[derive(Clone, Copy)]
pub(crate) struct Mark([u8; 32]);

impl Mark {
    /// Returns the mark of a password.
    pub(crate) fn of(password: &[u8]) -> Mark {
        Mark::of_sha256(&Sha256::digest(password).into())
    }

    fn of_sha256(hash: &[u8; 32]) -> Mark {
        static KEY: OnceLock<[u8; 32]> = OnceLock::new();
        let mut keyed = Sha256::new();
        keyed.update(KEY.get_or_init(random));
        keyed.update(hash);
        Mark(keyed.finalize().into())
    }

    /// Returns whether the two marks belong to one password. The comparison takes constant time, wherever the marks
    /// differ.
    pub(crate) fn is(&self, other: &Mark) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// One password of a user.
pub(crate) struct Secret {
    /// The secret's id, unique in this process.
    pub id: u64,
    mark: OnceLock<Mark>,
    stored: OnceLock<Stored>,
    /// The password in plain text, until it has its form at rest.
    plain: Mutex<Option<Box<[u8]>>>,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        let stored = self.stored.get();
        self.id == other.id || (stored.is_some() && stored == other.stored.get())
    }
}

impl Eq for Secret {}

impl Secret {
    fn new(mark: Option<Mark>, stored: Option<Stored>, plain: Option<&[u8]>) -> Arc<Secret> {
        static IDS: AtomicU64 = AtomicU64::new(0);
        Arc::new(Secret {
            id: IDS.fetch_add(1, Ordering::Relaxed),
            mark: mark.map_or_else(OnceLock::new, OnceLock::from),
            stored: stored.map_or_else(OnceLock::new, OnceLock::from),
            plain: Mutex::new(plain.map(Box::from)),
        })
    }

    /// Makes the secret of a password. The secret has no form at rest until [`hash`](Self::hash) is called.
    pub(crate) fn of(password: &[u8]) -> Arc<Secret> {
        Secret::new(Some(Mark::of(password)), None, Some(password))
    }

    /// Parses the text that [`text`](Self::text) returns.
    pub(crate) fn parse(text: &[u8]) -> Result<Arc<Secret>, RuleError> {
        if text.starts_with(b"$") {
            let text = std::str::from_utf8(text).map_err(|_| RuleError::BadArgon2)?;
            check_argon2(text).ok_or(RuleError::BadArgon2)?;
            return Ok(Secret::new(None, Some(Stored::Argon2(text.into())), None));
        }
        let hash = parse_sha256(text).ok_or(RuleError::BadHash)?;
        let mark = Mark::of_sha256(&hash);
        Ok(Secret::new(Some(mark), Some(Stored::Sha256(hash)), None))
    }

    /// Returns whether the password with this mark is right, or `None` while the secret has no mark.
    pub(crate) fn is(&self, mark: &Mark) -> Option<bool> {
        self.mark.get().map(|known| known.is(mark))
    }

    /// Returns whether `self` and `rule` are the same password. `rule` comes from a rule that gives the password's form
    /// at rest. If that form is SHA-256, a marked argon2id secret of the password matches it, too.
    pub(crate) fn is_meant_by(&self, rule: &Secret) -> bool {
        self == rule
            || rule
                .mark
                .get()
                .is_some_and(|mark| self.is(mark) == Some(true))
    }

    /// Returns the form at rest, or `None` while the password is not hashed yet.
    pub(crate) fn text(&self) -> Option<String> {
        Some(match self.stored.get()? {
            Stored::Sha256(hash) => super::hex(hash),
            Stored::Argon2(text) => String::from(&**text),
        })
    }

    /// Returns whether the password has its form at rest.
    pub(crate) fn is_stored(&self) -> bool {
        self.stored.get().is_some()
    }

    /// Gives the secret this mark. The caller has found that the password with the mark is right.
    pub(crate) fn learn(&self, mark: Mark) {
        // If the secret already has a mark, another check has set the same mark.
        let _ = self.mark.set(mark);
    }

    /// Hashes the password for its form at rest. That takes tens of milliseconds, and
    /// [`memory_bytes`](Self::memory_bytes) of memory.
    pub(crate) fn hash(&self) {
        let plain = self
            .plain
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(plain) = plain else { return };
        let salt = SaltString::encode_b64(&random::<SALT_BYTES>());
        let params = Params::new(MEMORY_KIB, PASSES, 1, None);
        let hashed = salt.ok().zip(params.ok()).and_then(|(salt, params)| {
            let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
            let hash = argon2.hash_password(&plain, &salt).ok()?;
            Some(hash.to_string())
        });
        // The parameters are constants that the argon2 crate accepts. If it ever refused them, the password would be
        // stored in Redis's form.
        let stored = match hashed {
            Some(text) => Stored::Argon2(text.into()),
            None => Stored::Sha256(Sha256::digest(&plain).into()),
        };
        let _ = self.stored.set(stored);
    }

    /// Returns whether a password is right. Hashes the password, which is slow, if the form at rest is argon2id.
    pub(crate) fn verify(&self, password: &[u8]) -> bool {
        match self.stored.get() {
            Some(Stored::Argon2(text)) => PasswordHash::new(text)
                .is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok()),
            Some(Stored::Sha256(_)) | None => self.is(&Mark::of(password)) == Some(true),
        }
    }

    /// Returns the memory that [`hash`](Self::hash) and [`verify`](Self::verify) take, bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let kib = match self.stored.get() {
            Some(Stored::Argon2(text)) => check_argon2(text).unwrap_or(MEMORY_KIB_MAX),
            Some(Stored::Sha256(_)) | None => MEMORY_KIB,
        };
        u64::from(kib) * 1024
    }
}

/// Returns the memory that an argon2id text asks for, KiB. Returns `None` if the text is malformed or exceeds one of
/// the maxima above.
fn check_argon2(text: &str) -> Option<u32> {
    let hash = PasswordHash::new(text).ok()?;
    let params = Params::try_from(&hash).ok()?;
    let sound = hash.algorithm == argon2::ARGON2ID_IDENT
        && hash.version.is_none_or(|version| version == 19)
        && hash.salt.is_some()
        && hash.hash.is_some()
        && params.m_cost() <= MEMORY_KIB_MAX
        && params.t_cost() <= PASSES_MAX
        && params.p_cost() <= LANES_MAX;
    sound.then(|| params.m_cost())
}

fn parse_sha256(hex: &[u8]) -> Option<[u8; 32]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut hash = [0; 32];
    if hex.len() != hash.len() * 2 {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(hex.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(hash)
}

/// Returns random bytes from the system. If the system fails to give them, takes them from the standard library's
/// [`RandomState`]. On Linux, the system does not fail after it has started.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let system = rustls::crypto::ring::default_provider().secure_random;
    if system.fill(&mut bytes).is_err() {
        for chunk in bytes.chunks_mut(8) {
            let word = RandomState::new().build_hasher().finish().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_stored_as_argon2id_and_read_again() {
        let secret = Secret::of(b"pass");
        assert_eq!((secret.text(), secret.is_stored()), (None, false));
        secret.hash();
        let text = secret.text().expect("it is stored");
        assert!(
            text.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"),
            "{text}"
        );
        assert!(secret.plain.lock().expect("a lock").is_none());
        let read = Secret::parse(text.as_bytes()).expect("our own text");
        assert_eq!(read.text(), Some(text));
        assert_eq!(read.is(&Mark::of(b"pass")), None, "nobody has given it yet");
        assert!(read.verify(b"pass") && !read.verify(b"pasS"));
        read.learn(Mark::of(b"pass"));
        assert_eq!(read.is(&Mark::of(b"pass")), Some(true));
        assert_eq!(read.is(&Mark::of(b"pasS")), Some(false));
        assert_eq!(read.memory_bytes(), 19 << 20);
        let other = Secret::of(b"pass");
        other.hash();
        assert_ne!(other.text(), read.text(), "each has a salt of its own");
    }

    #[test]
    fn the_hash_of_redis_is_read_and_known_at_once() {
        let text = "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8";
        let secret = Secret::parse(text.as_bytes()).expect("a hash");
        assert_eq!(secret.text().as_deref(), Some(text));
        assert_eq!(secret.is(&Mark::of(b"password")), Some(true));
        assert_eq!(secret.is(&Mark::of(b"Password")), Some(false));
        assert!(secret.is_meant_by(&Secret::of(b"password")));
        assert!(Secret::of(b"password").is_meant_by(&secret));
    }

    #[test]
    fn hashes_that_are_none_or_cost_too_much_are_refused() {
        let made = |params: &str| {
            format!(
                "$argon2id$v=19${params}$c2FsdHNhbHRzYWx0$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
            )
        };
        assert!(Secret::parse(made("m=65536,t=8,p=8").as_bytes()).is_ok());
        for wrong in [
            made("m=65537,t=2,p=1"),
            made("m=19456,t=9,p=1"),
            made("m=19456,t=2,p=9"),
            made("m=1,t=1,p=1"),
            made("m=19456,t=2,p=1").replace("argon2id", "argon2i"),
            made("m=19456,t=2,p=1").replace("v=19", "v=16"),
            String::from("$argon2id$v=19$m=19456,t=2,p=1"),
            String::from("$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHRzYWx0"),
            String::from("$"),
            String::from("$scrypt$a$b"),
        ] {
            let error = Secret::parse(wrong.as_bytes()).expect_err(&wrong);
            assert_eq!(error, RuleError::BadArgon2, "{wrong}");
        }
        let upper = "5E884898DA28047151D0E56F8DC6292773603D0D6AABBDD62A11EF721D1542D8";
        for wrong in [upper, "", "00"] {
            assert_eq!(
                Secret::parse(wrong.as_bytes()).err(),
                Some(RuleError::BadHash)
            );
        }
    }
}
