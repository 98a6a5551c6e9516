//! Requests that run as scripts and functions. Each script or function runs a list of requests in one transaction and
//! returns all replies.

use crate::model::{Bytes, Words};

/// The Lua code that scripts and functions share. `keys` and `args` come from the caller.
const RUN: &str = "
    local replies, at = {}, 1
    while at <= #args do
        local words = tonumber(args[at])
        replies[#replies + 1] = redis.pcall(unpack(args, at + 1, at + words))
        at = at + words + 1
    end
    return replies";

/// The database number under which the model keeps the libraries of clients. The server does not have this database.
pub const LIBRARIES: u8 = 2;

/// Returns the request that runs all requests in `all`. If `call` is true, the function of [`runner`] runs them.
/// Otherwise a script runs them. Only the first `declared` keys are declared.
pub fn request(all: &[Words], call: bool, declared: usize) -> Words {
    let mut words: Words = match call {
        true => vec![b"FCALL".to_vec(), b"run".to_vec()],
        false => {
            let body = format!("local keys, args = KEYS, ARGV {RUN}");
            vec![b"EVAL".to_vec(), body.into_bytes()]
        }
    };
    let declared = declared.min(all.len());
    words.push(declared.to_string().into_bytes());
    words.extend(all[..declared].iter().map(|words| words[1].clone()));
    for part in all {
        words.push(part.len().to_string().into_bytes());
        words.extend_from_slice(part);
    }
    words
}

/// Returns the code of the library with the function `run`.
pub fn runner() -> String {
    format!("#!lua name=runner\nredis.register_function('run', function(keys, args) {RUN}\n end)")
}

/// Returns the key under which the model keeps a client's library.
pub fn library_key(client: usize) -> Bytes {
    format!("{client}:f").into_bytes()
}

/// Returns a client's number as text. `key` is the key of the client's library.
fn client_of(key: &[u8]) -> String {
    String::from_utf8_lossy(&key[..key.len() - 2]).into_owned()
}

pub fn library_name(key: &[u8]) -> String {
    format!("lib{}", client_of(key))
}

/// Returns the request that loads this version of a client's library. `None`: the request deletes the library.
pub fn manage_library(key: &[u8], version: Option<&Bytes>) -> Words {
    let (name, client) = (library_name(key), client_of(key));
    let words = match version {
        None => vec!["FUNCTION".to_owned(), "DELETE".to_owned(), name],
        Some(version) => {
            let version = String::from_utf8_lossy(version);
            let code = format!(
                "#!lua name={name}\nredis.register_function('version{client}', function() return '{version}' end)"
            );
            ["FUNCTION", "LOAD", "REPLACE", &code]
                .map(str::to_owned)
                .to_vec()
        }
    };
    words.into_iter().map(String::into_bytes).collect()
}

/// Returns the request that asks a client's library for its version.
pub fn ask_version(client: usize) -> Words {
    let words = [
        "FCALL".to_owned(),
        format!("version{client}"),
        "0".to_owned(),
    ];
    words.map(String::into_bytes).to_vec()
}
