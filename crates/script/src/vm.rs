//! The virtual machine: Luau after the prelude has closed the sandbox.

use crate::bridge::Bridge;
use crate::libraries;
use crate::limits::Stop;
use crate::long::LongRun;
use crate::random::Random;
use crate::run::Registered;
use crate::watchdog::Flag;
use mlua::chunk::{Chunk, ChunkMode, Compiler};
use mlua::{Function, Lua, LuaOptions, StdLib, Table, Value};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// The prelude: Luau source with the functions that scripts have.
const PRELUDE: &str = include_str!("prelude.luau");
/// The version of Redis that the server claims to be.
const REDIS_VERSION: &str = "7.0.15";
const REDIS_VERSION_NUMBER: u32 = 0x0007_000F;
/// The maximum number of compiled scripts that a virtual machine keeps. At this number, all of them are dropped before
/// the next script is added.
const COMPILED_MAX: usize = 4096;
/// Functions that Luau's compiler would call directly. The prelude replaces or removes these functions.
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
/// The memory, in bytes, that runs may leave in use before garbage is collected.
const LEFT_BYTES_MAX: usize = 896 << 10;
/// The maximum number of collections of garbage after a run. A long stack takes several collections, because each
/// one only halves it.
const COLLECTIONS_MAX: usize = 8;
/// The least memory, in bytes, that must be left before the limit for a run to collect garbage again.
const COLLECTED_LEAST: usize = 2 << 20;

/// The state that a run shares with the native functions.
pub(crate) struct Shared {
    /// The watchdog's flag.
    flag: Flag,
    /// The sequence number of the current run.
    pub(crate) run: Cell<u64>,
    /// The reason why the run must end, or [`Stop::No`].
    stop: Cell<Stop>,
    /// True if the run has called `redis.setresp(3)`.
    pub(crate) resp3: Cell<bool>,
    /// The time of the run.
    pub(crate) long: LongRun,
    /// The random numbers of the run.
    pub(crate) random: Random,
    /// True while a library is being loaded.
    pub(crate) loads: Cell<bool>,
    /// The functions that the library has registered.
    pub(crate) registered: RefCell<Vec<(Registered, Function)>>,
    /// The memory in use, in bytes, at which all garbage is collected.
    collect_at: Cell<usize>,
    /// The maximum memory that may be in use, bytes.
    end_bytes: Cell<usize>,
    /// The maximum number of bytes that a function of a library may build as one result.
    pub(crate) build_bytes_max: usize,
}

impl Shared {
    /// Sets the reason why the run must end, unless an earlier reason is set. Returns the error that the caller must
    /// raise.
    pub(crate) fn stop(&self, why: Stop) -> mlua::Error {
        if self.stop.get() == Stop::No {
            self.stop.set(why);
        }
        mlua::Error::runtime("the script was ended")
    }

    /// Returns the reason why the run must end, or [`Stop::No`]. The watchdog's flag gives the reason [`Stop::Time`].
    pub(crate) fn stopped(&self) -> Stop {
        if self.stop.get() == Stop::No && self.flag.is_up(self.run.get()) {
            self.stop.set(Stop::Time);
        }
        self.stop.get()
    }

    /// Fails if the run must end. Every loop of a native library must call this.
    pub(crate) fn check(&self) -> mlua::Result<()> {
        match self.stopped() {
            Stop::No => Ok(()),
            why => Err(self.stop(why)),
        }
    }

    /// Fails if the run must end. Also fails if a library has built more than `build_bytes_max` bytes.
    pub(crate) fn check_built(&self, bytes: usize) -> mlua::Result<()> {
        if bytes > self.build_bytes_max {
            return Err(self.stop(Stop::Memory));
        }
        self.check()
    }

    /// Returns whether all garbage must be collected when `used_bytes` are in use. Luau's own collector takes steps of
    /// a fixed size, which is too slow for long strings. The allocator does not collect garbage: it only fails at the
    /// limit.
    pub(crate) fn collects_at(&self, used_bytes: usize) -> bool {
        used_bytes >= self.collect_at.get()
    }

    /// Computes when to collect garbage next. The caller has just collected all garbage, and `used_bytes` are still in
    /// use.
    pub(crate) fn collected(&self, used_bytes: usize) {
        let left = self.end_bytes.get().saturating_sub(used_bytes);
        // The next collection is due when half of the remaining memory is used. Near the limit, collections would
        // follow each other too closely.
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

/// The results of the prelude: the runner of scripts, the runner of library functions, and the two runners'
/// environments.
type Closed = (Function, Function, Table, Table);

/// The functions of a library, by name.
pub(crate) type Library = HashMap<String, Function>;

/// A virtual machine.
pub(crate) struct Vm {
    pub(crate) lua: Lua,
    pub(crate) shared: Rc<Shared>,
    /// The prelude's function that runs a script and reports the line of a failure.
    pub(crate) run_script: Function,
    /// The prelude's function that runs a library function and reports the line of a failure.
    pub(crate) run_library: Function,
    /// The table of native functions that the prelude reads.
    pub(crate) host: Table,
    script_environment: Table,
    library_environment: Table,
    /// Scripts by their SHA-1.
    scripts: HashMap<String, Function>,
    /// Libraries by the SHA-1 of their code.
    pub(crate) libraries: HashMap<String, Library>,
    /// The memory, in bytes, that was in use after the last collection, plus that of the code compiled since then.
    kept_bytes: Cell<usize>,
    /// The bridge. The virtual machine has the bridge's address, so `lua` is dropped before this field.
    pub(crate) bridge: Rc<Bridge>,
}

impl Vm {
    /// Makes a virtual machine.
    pub(crate) fn new(flag: Flag, build_bytes_max: usize) -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::BIT | StdLib::DEBUG;
        // With this option Luau's `pcall` does not catch panics of Rust functions. No script may catch a panic, because
        // it is a fault of the server.
        let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(false))?;
        let shared = Rc::new(Shared {
            flag,
            run: Cell::new(0),
            stop: Cell::new(Stop::No),
            resp3: Cell::new(false),
            long: LongRun::new(),
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
        // Without this, calls of these functions would bypass the prelude's replacements and removals.
        let compiler = Compiler::new().set_disabled_builtins(REPLACED);
        lua.set_compiler(compiler);
        // This makes the prelude's own calls of Luau's functions fast, too.
        lua.globals().set_safeenv(true);
        let host = lua.create_table()?;
        let bridge = Bridge::new(&lua, &shared, &host)?;
        let prelude = lua.load(PRELUDE).set_name("=prelude").into_function()?;
        let (run_script, run_library, script_environment, library_environment): Closed =
            prelude.call((native, host.clone()))?;
        // Names are resolved when a chunk is compiled, because their values never change. The exception is the name
        // `redis` in libraries. It is hidden while a library is compiled, so that each use looks it up.
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

    /// Returns a script's function, which takes KEYS and ARGV. Compiles the script if it is not known yet.
    pub(crate) fn script(&mut self, sha: &str, code: &[u8]) -> Result<Function, String> {
        if let Some(known) = self.scripts.get(sha) {
            return Ok(known.clone());
        }
        // The declaration is put before the first line's text, so that the numbers of the lines do not change.
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
        // A chunk uses the globals that are set when it is loaded.
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
