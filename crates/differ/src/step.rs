//! The steps of a script.

/// The number of connections for ordinary commands, from index 0 on.
pub const TALKERS: usize = 2;
/// The connections that wait or listen in scenes.
pub const WAITERS: [usize; 2] = [2, 3];
/// The connection that acts in scenes. It always uses database 0.
pub const ACTOR: usize = 4;
/// The number of all connections.
pub const CONNECTIONS: usize = 5;

/// A command's words.
pub type Argv = Vec<Vec<u8>>;

/// One step on each server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A command and its reply.
    Call {
        /// The connection.
        conn: usize,
        /// The command.
        argv: Argv,
    },
    /// A pause of this many milliseconds.
    Sleep(u64),
    /// A whole iteration, from the cursor 0 until the cursor is 0 again.
    Scan {
        /// SCAN, HSCAN, SSCAN or ZSCAN.
        argv: Argv,
        /// The index of the cursor's word.
        cursor: usize,
    },
    /// A value, copied from our server to Redis and from Redis to our server, with DUMP and RESTORE.
    Exchange {
        /// The key of the value.
        key: Vec<u8>,
    },
    /// A command that may block. [`Step::Settle`] reads its reply.
    Block {
        /// The connection.
        conn: usize,
        /// The command.
        argv: Argv,
    },
    /// Ends the wait of a blocked client, if it still waits, and compares the replies to its command.
    Settle {
        /// The connection.
        conn: usize,
        /// True if the blocked client shall get an error. False: it gets the reply of a timeout.
        error: bool,
    },
    /// Closes a connection and opens it again.
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
    /// Our server is ended without a checkpoint and restarted.
    Restart,
    /// A comparison of the servers' data.
    Compare,
}

/// Steps, kept or removed as a whole.
pub type Unit = Vec<Step>;

/// Makes a step that sends a command of these words.
pub fn call(conn: usize, words: &[&str]) -> Step {
    let argv = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    Step::Call { conn, argv }
}

/// Makes steps that send these commands on one connection.
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
