//! The steps of a script on both servers, command by command.

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
        /// The index of the cursor's word.
        cursor: usize,
    },
    /// A value that is copied from each server to the other.
    Exchange {
        /// Its key.
        key: Vec<u8>,
    },
    /// A command that may block. [`Step::Settle`] reads its reply.
    Block {
        /// The connection.
        conn: usize,
        /// The command.
        argv: Argv,
    },
    /// Ends a wait, if it has not ended, and compares the ends.
    Settle {
        /// The connection.
        conn: usize,
        /// True if the waiting client gets an error.
        error: bool,
    },
    /// Connects anew.
    Fresh {
        /// The connection.
        conn: usize,
    },
    /// A command on a connection that also gets messages. All replies and messages up to a PING's reply are compared.
    Hear {
        /// The connection.
        conn: usize,
        /// The command. Empty: the client only listens.
        argv: Argv,
    },
    /// Our server ends without a checkpoint and restarts.
    Restart,
    /// Both datasets are compared.
    Compare,
}

/// Steps that are kept or removed together.
pub type Unit = Vec<Step>;

/// Makes a call of plain words.
pub fn call(conn: usize, words: &[&str]) -> Step {
    let argv = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    Step::Call { conn, argv }
}

/// Makes calls on one connection.
pub fn calls(conn: usize, commands: Vec<Argv>) -> Unit {
    let call = |argv| Step::Call { conn, argv };
    commands.into_iter().map(call).collect()
}

/// Returns a command's name in upper case.
pub fn name(argv: &[Vec<u8>]) -> String {
    argv.first().map_or(String::new(), |word| {
        String::from_utf8_lossy(word).to_ascii_uppercase()
    })
}
