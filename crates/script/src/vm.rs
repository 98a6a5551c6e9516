//! The virtual machine: Luau in which the prelude has run, and whose sandbox is closed.

use crate::bridge::Bridge;
use crate::libraries;
use crate::limits::Stop;
use crate::random::Random;
use crate::run::Registered;
use crate::watchdog::Flag;
use mlua::chunk::{Chunk, ChunkMode, Compiler};
use mlua::{Function, Lua, LuaOptions, StdLib, Table, Value};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// The source of the functions that scripts have, in Luau.
const PRELUDE: &str = include_str!("prelude.luau");
/// The version of Redis that the server claims to be.
const REDIS_VERSION: &str = "7.0.15";
const REDIS_VERSION_NUMBER: u32 = 0x0007_000F;
/// The number of compiled scripts that a virtual machine keeps. When it is reached, all of them are dropped.
const COMPILED_MAX: usize = 4096;
/// Functions that the compiler would call directly, but that the prelude replaces or scripts do not have.
const REPLACED: [&str; 26] = [
    "tostring",
    "typeof",
    "rawlen",
    "math.clamp",
    "math.sign",
    "math.round",
    "math.lerp",
    "math.isnan",
    "math.isinf",
    "math.isfinite",
    "table.unpack",
    "bit32.arshift",
    "bit32.band",
    "bit32.bnot",
    "bit32.bor",
    "bit32.btest",
    "bit32.bxor",
    "bit32.byteswap",
    "bit32.countlz",
    "bit32.countrz",
    "bit32.extract",
    "bit32.lrotate",
    "bit32.lshift",
    "bit32.replace",
    "bit32.rrotate",
    "vector.create",
];
/// A run may leave this much memory in use before garbage is collected, bytes.
const LEFT_BYTES_MAX: usize = 896 << 10;
/// The most collections of garbage after a run. Each collection halves the stack if the stack is long.
const COLLECTIONS_MAX: usize = 8;
/// If less memory than this is left, garbage is not collected any more, bytes.
const COLLECTED_LEAST: usize = 2 << 20;

/// The state that a run shares with the native functions.
pub(crate) struct Shared {
    /// The watchdog's flag.
    flag: Flag,
    /// The number of the present run.
    pub(crate) run: Cell<u64>,
    /// The reason for which the run must end.
    stop: Cell<Stop>,
    /// True if `redis.setresp(3)` has been called.
    pub(crate) resp3: Cell<bool>,
    /// Its random numbers.
    pub(crate) random: Random,
    /// True while a library is being loaded.
    pub(crate) loads: Cell<bool>,
    /// The functions that the library has registered.
    pub(crate) registered: RefCell<Vec<(Registered, Function)>>,
    /// The memory in use at which all garbage is collected, bytes.
    collect_at: Cell<usize>,
    /// The most memory that may be in use, bytes.
    end_bytes: Cell<usize>,
    /// The most bytes that a library may build at once.
    pub(crate) build_bytes_max: usize,
}

impl Shared {
    /// Stops the run for this reason. An earlier reason takes precedence.
    pub(crate) fn stop(&self, why: Stop) -> mlua::Error {
        if self.stop.get() == Stop::No {
            self.stop.set(why);
        }
        mlua::Error::runtime("the script was ended")
    }

    /// Returns the reason for which the run must end. Also reads the flag of the watchdog.
    pub(crate) fn stopped(&self) -> Stop {
        if self.stop.get() == Stop::No && self.flag.is_up(self.run.get()) {
            self.stop.set(Stop::Time);
        }
        self.stop.get()
    }

    /// Fails if the run must end. Every loop of a library must call it.
    pub(crate) fn check(&self) -> mlua::Result<()> {
        match self.stopped() {
            Stop::No => Ok(()),
            why => Err(self.stop(why)),
        }
    }

    /// Fails if a library has built more bytes than a run may hold, or if the run must end.
    pub(crate) fn check_built(&self, bytes: usize) -> mlua::Result<()> {
        if bytes > self.build_bytes_max {
            return Err(self.stop(Stop::Memory));
        }
        self.check()
    }

    /// Returns whether all garbage must be collected when this much memory is in use. Luau's own collector takes
    /// steps of a fixed size, which is too slow for long strings. The allocator does not collect: it only fails at
    /// the limit.
    pub(crate) fn collects_at(&self, used_bytes: usize) -> bool {
        used_bytes >= self.collect_at.get()
    }

    /// Notes that all garbage has been collected and `used_bytes` are still in use. Computes when to collect next.
    pub(crate) fn collected(&self, used_bytes: usize) {
        let left = self.end_bytes.get().saturating_sub(used_bytes);
        // The next collection is due when half of the remaining memory is used. Near the limit a collection gains
        // nothing.
        let next = if left < COLLECTED_LEAST {
            usize::MAX
        } else {
            used_bytes + left / 2
        };
        self.collect_at.set(next);
    }

    /// Begins a run, during which up to `end_bytes` of memory may be in use.
    pub(crate) fn begin(&self, run: u64, seed: u64, used_bytes: usize, end_bytes: usize) {
        self.end_bytes.set(end_bytes);
        self.collect_at
            .set(used_bytes + end_bytes.saturating_sub(used_bytes) / 2);
        self.run.set(run);
        self.stop.set(Stop::No);
        self.resp3.set(false);
        self.random.seed(seed);
    }
}

/// The results of the prelude: the functions that run scripts and library functions, and the environments of both.
type Closed = (Function, Function, Table, Table);

/// The functions of a library, by name.
pub(crate) type Library = HashMap<String, Function>;

/// A virtual machine.
pub(crate) struct Vm {
    pub(crate) lua: Lua,
    pub(crate) shared: Rc<Shared>,
    /// Runs a function of a script and reports the line of a failure.
    pub(crate) run_script: Function,
    /// Runs a function of a library and reports the line of a failure.
    pub(crate) run_library: Function,
    /// The table of native functions that the prelude reads.
    pub(crate) host: Table,
    script_environment: Table,
    library_environment: Table,
    /// Scripts by their SHA-1.
    scripts: HashMap<String, Function>,
    /// Libraries by the SHA-1 of their code.
    pub(crate) libraries: HashMap<String, Library>,
    /// The memory in use after the last collection, plus the memory of code compiled since, bytes.
    kept_bytes: Cell<usize>,
    /// The bridge. The machine has its address, so the bridge is dropped after the machine.
    pub(crate) bridge: Rc<Bridge>,
}

impl Vm {
    /// Makes a virtual machine.
    pub(crate) fn new(flag: Flag, build_bytes_max: usize) -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::BIT | StdLib::DEBUG;
        // The `pcall` of Luau does not catch panics of Rust functions. No script may catch one: it is a fault of the
        // server.
        let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(false))?;
        let shared = Rc::new(Shared {
            flag,
            run: Cell::new(0),
            stop: Cell::new(Stop::No),
            resp3: Cell::new(false),
            random: Random::default(),
            loads: Cell::new(false),
            registered: RefCell::default(),
            collect_at: Cell::new(usize::MAX),
            end_bytes: Cell::new(usize::MAX),
            build_bytes_max,
        });
        let native = libraries::native(&lua, &shared)?;
        native.raw_set("null", Value::NULL)?;
        native.raw_set("version", REDIS_VERSION)?;
        native.raw_set("version_number", REDIS_VERSION_NUMBER)?;
        // Otherwise calls of these functions would bypass the replacements and removals of the prelude.
        let compiler = Compiler::new().set_disabled_builtins(REPLACED);
        lua.set_compiler(compiler);
        // This makes the prelude's own calls of the language's functions fast, too.
        lua.globals().set_safeenv(true);
        let host = lua.create_table()?;
        let bridge = Bridge::new(&lua, &shared, &host)?;
        let prelude = lua.load(PRELUDE).set_name("=prelude").into_function()?;
        let (run_script, run_library, script_environment, library_environment): Closed =
            prelude.call((native, host.clone()))?;
        // Names are resolved when a chunk is compiled, because the values that scripts find never change. The
        // exception is `redis` in libraries. It is hidden while a library is compiled, so that each use looks it up.
        library_environment.set_safeenv(true);
        script_environment.set_safeenv(true);
        bridge.interrupt(&lua)?;
        lua.gc_collect()?;
        let kept_bytes = Cell::new(lua.used_memory());
        Ok(Vm {
            lua,
            shared,
            run_script,
            run_library,
            host,
            script_environment,
            library_environment,
            scripts: HashMap::new(),
            libraries: HashMap::new(),
            kept_bytes,
            bridge,
        })
    }

    /// Returns a script's function, compiled at its first use. Its arguments are KEYS and ARGV.
    pub(crate) fn script(&mut self, sha: &str, code: &[u8]) -> Result<Function, String> {
        if let Some(known) = self.scripts.get(sha) {
            return Ok(known.clone());
        }
        // The declaration is put on the first line, so that the numbers of the lines do not change.
        let text = [b"local KEYS, ARGV = ...; ", code].concat();
        let chunk = self.lua.load(&text[..]).set_name("=user_script");
        let before = self.lua.used_memory();
        let compiled = self.compile(chunk, &self.script_environment)?;
        let grown = self.lua.used_memory().saturating_sub(before);
        self.kept_bytes.set(self.kept_bytes.get() + grown);
        if self.scripts.len() >= COMPILED_MAX {
            self.scripts.clear();
        }
        self.scripts.insert(String::from(sha), compiled.clone());
        Ok(compiled)
    }

    /// Returns the main function of a library.
    pub(crate) fn library(&self, code: &[u8]) -> Result<Function, String> {
        let hide = |hidden: bool| {
            self.host
                .raw_set("hidden", hidden)
                .map_err(|e| e.to_string())
        };
        hide(true)?;
        let chunk = self.lua.load(code).set_name("=user_function");
        let compiled = self.compile(chunk, &self.library_environment);
        hide(false)?;
        compiled
    }

    fn compile(&self, chunk: Chunk<'_>, environment: &Table) -> Result<Function, String> {
        // A chunk looks its names up in the globals at the time it is loaded.
        let compiled = self.lua.set_globals(environment.clone());
        let compiled = compiled.and_then(|()| chunk.set_mode(ChunkMode::Text).into_function());
        compiled.map_err(|error| match error {
            mlua::Error::SyntaxError { message, .. } => message,
            other => other.to_string(),
        })
    }

    /// Collects the garbage of a run if there is much of it.
    pub(crate) fn give_back(&self) -> mlua::Result<()> {
        let mut used = self.lua.used_memory();
        let kept = self.kept_bytes.get();
        for _ in 0..COLLECTIONS_MAX {
            if used <= kept.saturating_add(LEFT_BYTES_MAX) {
                return Ok(());
            }
            self.lua.gc_collect()?;
            let left = self.lua.used_memory();
            let (before, gained) = (used, used.saturating_sub(left));
            used = left;
            if gained < before / 16 {
                break;
            }
        }
        self.kept_bytes.set(used);
        Ok(())
    }
}
