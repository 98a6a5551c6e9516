//! The virtual machine: Luau with the prelude run and the sandbox closed.

use crate::host::Words;
use crate::libraries;
use crate::limits::Stop;
use crate::random::Random;
use crate::run::Registered;
use crate::watchdog::Flag;
use mlua::chunk::{Chunk, ChunkMode, Compiler};
use mlua::{Function, Lua, LuaOptions, StdLib, Table, Value, VmState};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// The functions that scripts find, in Luau.
const PRELUDE: &str = include_str!("prelude.luau");
/// The version of Redis whose answers the server gives.
const REDIS_VERSION: &str = "7.0.15";
const REDIS_VERSION_NUMBER: u32 = 0x0007_000F;
/// A virtual machine keeps so many compiled scripts; then it forgets all of them.
const COMPILED_MAX: usize = 4096;
/// Functions that the compiler knows and that scripts do not have, or have another one of.
const REPLACED: [&str; 17] = [
    "tostring",
    "typeof",
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
/// With less memory left than this garbage is not collected any more, bytes.
const COLLECTED_LEAST: usize = 2 << 20;

/// What a run shares with the functions that its script calls.
pub(crate) struct Shared {
    /// Raised by the watchdog.
    flag: Flag,
    /// The number of the run that is on.
    pub(crate) run: Cell<u64>,
    /// What has stopped it.
    stop: Cell<Stop>,
    /// Whether `redis.setresp(3)` has been called.
    pub(crate) resp3: Cell<bool>,
    /// Its random numbers.
    pub(crate) random: Random,
    /// Whether a library is being loaded.
    pub(crate) loads: Cell<bool>,
    /// What it has registered.
    pub(crate) registered: RefCell<Vec<(Registered, Function)>>,
    /// From so much memory in use on, bytes, all garbage is collected.
    collect_at: Cell<usize>,
    /// So much memory may be in use, bytes.
    end_bytes: Cell<usize>,
    /// The most bytes that a library may build at once.
    pub(crate) build_bytes_max: usize,
}

impl Shared {
    /// Stops the run. The first reason stands.
    pub(crate) fn stop(&self, why: Stop) -> mlua::Error {
        if self.stop.get() == Stop::No {
            self.stop.set(why);
        }
        mlua::Error::runtime("the script was ended")
    }

    /// What has stopped the run, the watchdog included.
    pub(crate) fn stopped(&self) -> Stop {
        if self.stop.get() == Stop::No && self.flag.is_up(self.run.get()) {
            self.stop.set(Stop::Time);
        }
        self.stop.get()
    }

    /// Fails once the run must end: to be asked by every loop of a library.
    pub(crate) fn check(&self) -> mlua::Result<()> {
        match self.stopped() {
            Stop::No => Ok(()),
            why => Err(self.stop(why)),
        }
    }

    /// Fails if a library has built more than a run may hold, or once the run must end.
    pub(crate) fn check_built(&self, bytes: usize) -> mlua::Result<()> {
        if bytes > self.build_bytes_max {
            return Err(self.stop(Stop::Memory));
        }
        self.check()
    }

    /// Collects all garbage once much of the memory is used: Luau's own collector takes steps of one size, which long
    /// strings outrun, and the allocator only fails.
    fn collect_garbage(&self, lua: &Lua) -> mlua::Result<()> {
        if lua.used_memory() < self.collect_at.get() {
            return Ok(());
        }
        lua.gc_collect()?;
        let used = lua.used_memory();
        let left = self.end_bytes.get().saturating_sub(used);
        // Each time half of what is left; near the end there is nothing to be gained.
        let next = if left < COLLECTED_LEAST {
            usize::MAX
        } else {
            used + left / 2
        };
        self.collect_at.set(next);
        Ok(())
    }

    /// A run begins, which may use memory up to `end_bytes`.
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

/// The compiled functions of a library by name.
pub(crate) type Library = HashMap<String, Function>;

/// A virtual machine.
pub(crate) struct Vm {
    pub(crate) lua: Lua,
    pub(crate) shared: Rc<Shared>,
    /// Runs a function and says where it failed.
    pub(crate) run: Function,
    /// Where the functions of the run are put that end with it.
    pub(crate) host: Table,
    script_environment: Table,
    library_environment: Table,
    /// Scripts by their SHA-1.
    scripts: HashMap<String, Function>,
    /// Libraries by the SHA-1 of their code.
    pub(crate) libraries: HashMap<String, Library>,
    /// Memory in use when it was new, bytes.
    pub(crate) base_bytes: usize,
    /// The words of the command that a script runs now, and its reply.
    pub(crate) buffers: RefCell<(Words, Vec<u8>)>,
}

impl Vm {
    /// Makes one.
    pub(crate) fn new(flag: Flag, build_bytes_max: usize) -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::BIT | StdLib::DEBUG;
        // Luau's own pcall: a panic of a Rust function is a fault of the server, which no script may catch.
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
        // Calls of these would not reach what the prelude has in their place, or has not.
        let compiler = Compiler::new().set_disabled_builtins(REPLACED);
        lua.set_compiler(compiler);
        // The prelude's own calls of the language's functions are fast, too.
        lua.globals().set_safeenv(true);
        let host = lua.create_table()?;
        let prelude = lua.load(PRELUDE).set_name("=prelude").into_function()?;
        let (run, script_environment, library_environment): (Function, Table, Table) =
            prelude.call((native, host.clone()))?;
        // Names are resolved when a chunk is compiled, for nothing that scripts find ever changes. In libraries `redis` does:
        // it is hidden from the compiler, and so looked up at each use.
        library_environment.set_safeenv(true);
        script_environment.set_safeenv(true);
        let seen = Rc::clone(&shared);
        lua.set_interrupt(move |lua| {
            seen.check()?;
            seen.collect_garbage(lua)?;
            Ok(VmState::Continue)
        });
        lua.gc_collect()?;
        let base_bytes = lua.used_memory();
        Ok(Vm {
            lua,
            shared,
            run,
            host,
            script_environment,
            library_environment,
            scripts: HashMap::new(),
            libraries: HashMap::new(),
            base_bytes,
            buffers: RefCell::default(),
        })
    }

    /// A script's function, compiled at its first use. Its arguments are KEYS and ARGV.
    pub(crate) fn script(&mut self, sha: &str, code: &[u8]) -> Result<Function, String> {
        if let Some(known) = self.scripts.get(sha) {
            return Ok(known.clone());
        }
        // In front of the first line, so that no line changes its number.
        let text = [b"local KEYS, ARGV = ...; ", code].concat();
        let chunk = self.lua.load(&text[..]).set_name("=user_script");
        let compiled = self.compile(chunk, &self.script_environment)?;
        if self.scripts.len() >= COMPILED_MAX {
            self.scripts.clear();
        }
        self.scripts.insert(String::from(sha), compiled.clone());
        Ok(compiled)
    }

    /// The main function of a library.
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
        // A chunk's names are looked up in the globals when it is loaded.
        let compiled = self.lua.set_globals(environment.clone());
        let compiled = compiled.and_then(|()| chunk.set_mode(ChunkMode::Text).into_function());
        compiled.map_err(|error| match error {
            mlua::Error::SyntaxError { message, .. } => message,
            other => other.to_string(),
        })
    }

    /// Bytes in use beyond those of a new virtual machine.
    pub(crate) fn extra_bytes(&self) -> usize {
        self.lua.used_memory().saturating_sub(self.base_bytes)
    }
}
