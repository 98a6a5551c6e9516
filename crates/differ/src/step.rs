//! The steps of a script: what happens on both servers, command by command.

/// Connections of ordinary commands.
pub const TALKERS: usize = 2;
/// The connections that wait or listen in scenes.
pub const WAITERS: [usize; 2] = [2, 3];
/// The connection that acts in scenes, always on database 0.
pub const ACTOR: usize = 4;
/// All of them.
pub const CONNECTIONS: usize = 5;

/// A command's words.
pub type Argv = Vec<Vec<u8>>;

/// One step on both servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A command and its reply.
    Call {
        /// The connection.
        conn: usize,
        /// The command.
        argv: Argv,
    },
    /// Time passes.
    Sleep(u64),
    /// A whole iteration; the cursor is word `cursor`.
    Scan {
        /// SCAN, HSCAN, SSCAN or ZSCAN.
        argv: Argv,
        /// Where the cursor stands.
        cursor: usize,
    },
    /// A value is carried from each server to the other.
    Exchange {
        /// Its key.
        key: Vec<u8>,
    },
    /// A command that may block; its reply is read by [`Step::Settle`].
    Block {
        /// The connection.
        conn: usize,
        /// The command.
        argv: Argv,
    },
    /// Ends a wait, if it has not ended, and compares how it did.
    Settle {
        /// The connection.
        conn: usize,
        /// Whether the waiting client gets an error.
        error: bool,
    },
    /// Connects anew.
    Fresh {
        /// The connection.
        conn: usize,
    },
    /// A command on a connection that also gets messages: all that comes until a PING's reply.
    Hear {
        /// The connection.
        conn: usize,
        /// The command; none to just listen.
        argv: Argv,
    },
    /// Our server ends without a checkpoint and comes back.
    Restart,
    /// Both datasets are compared.
    Compare,
}

/// Steps that stay or go together.
pub type Unit = Vec<Step>;

/// A call of plain words.
pub fn call(conn: usize, words: &[&str]) -> Step {
    let argv = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    Step::Call { conn, argv }
}

/// Calls on one connection.
pub fn calls(conn: usize, commands: Vec<Argv>) -> Unit {
    let call = |argv| Step::Call { conn, argv };
    commands.into_iter().map(call).collect()
}

/// A command's name in upper case.
pub fn name(argv: &[Vec<u8>]) -> String {
    argv.first().map_or(String::new(), |word| {
        String::from_utf8_lossy(word).to_ascii_uppercase()
    })
}
