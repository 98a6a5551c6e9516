//! Runs scripts and functions, one at a time.

use crate::from_lua::Unsent;
use crate::host::Host;
use crate::limits::{Failure, Limits, Stop};
use crate::shebang::Flags;
use crate::vm::{Library, Vm};
use crate::watchdog::{Alarm, Watchdog};
use mlua::{Function, Value};
use perdura_base::flaw::{Flaw, armed};
use std::fmt;
use std::time::{Duration, Instant};

/// The maximum length, in bytes, of the text of an uncaught error. Longer texts are truncated.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// The text of a script or a library, and its name.
#[derive(Debug, Clone, Copy)]
pub struct Code<'a> {
    /// The SHA-1 of the whole text, 40 hexadecimal digits.
    pub sha: &'a str,
    /// The text without its header; see [`Header::code`](crate::Header::code).
    pub text: &'a [u8],
}

/// The input of a run.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// KEYS.
    pub keys: &'a [&'a [u8]],
    /// ARGV.
    pub args: &'a [&'a [u8]],
    /// The seed of `math.random`.
    pub seed: u64,
    /// True if the client speaks RESP3.
    pub resp3: bool,
    /// The processor time that earlier attempts at this run took. This attempt may use only the rest of the limit.
    pub spent: Duration,
}

/// A function that a library has registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// Its name.
    pub name: String,
    /// Its flags.
    pub flags: Flags,
    /// The description that the library gave, if any.
    pub description: Option<Vec<u8>>,
}

/// A virtual machine that runs scripts, with its watchdog. Both are made when they are first needed.
pub struct Runtime {
    limits: Limits,
    vm: Option<Vm>,
    watchdog: Option<Watchdog>,
    spent: Duration,
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("limits", &self.limits)
            .field("vm", &self.vm.is_some())
            .finish()
    }
}

impl Runtime {
    /// Makes a runtime. The virtual machine and the watchdog start with the first run.
    pub fn new(limits: Limits) -> Self {
        Runtime {
            limits,
            vm: None,
            watchdog: None,
            spent: Duration::ZERO,
        }
    }

    /// Makes a runtime that does not limit the time of runs. Instead, the returned alarm ends a run as if its time were
    /// used up. This is for a simulator with a simulated clock.
    pub fn with_alarm(limits: Limits) -> (Self, Alarm) {
        let (watchdog, alarm) = Watchdog::by_hand();
        let runtime = Runtime {
            limits,
            vm: None,
            watchdog: Some(watchdog),
            spent: Duration::ZERO,
        };
        (runtime, alarm)
    }

    /// Returns the limits of each run.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the processor time that the newest run took.
    pub fn spent(&self) -> Duration {
        self.spent
    }

    /// Returns the memory that the virtual machine uses, bytes; 0 if there is no virtual machine.
    pub fn memory_bytes(&self) -> usize {
        self.vm.as_ref().map_or(0, |vm| vm.lua.used_memory())
    }

    /// Drops the virtual machine and everything that was compiled.
    pub fn forget(&mut self) {
        self.vm = None;
    }

    /// Compiles a script and keeps the result for later runs of the script.
    ///
    /// # Errors
    /// The script is too long, or does not compile. The [`Failure`] contains the text of an error reply.
    pub fn check_script(&mut self, code: &Code<'_>) -> Result<(), Failure> {
        self.check_length(code)?;
        self.ready()?;
        let Some(vm) = &mut self.vm else {
            return Err(self.limits.failure(Stop::Engine));
        };
        compiled(vm, code).map(|_| ())
    }

    /// Runs a script and appends its reply to `out`.
    ///
    /// # Errors
    /// See [`Failure`]. On failure, `out` is unchanged.
    pub fn run_script(
        &mut self,
        code: &Code<'_>,
        input: Input<'_>,
        host: &mut dyn Host,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        self.check_length(code)?;
        self.guarded(input.seed, input.spent, |vm, limits| {
            let function = compiled(vm, code)?;
            let what = Called {
                name: code.sha,
                source: "user_script",
                runner: &vm.run_script,
            };
            call(vm, limits, &function, &input, &what, (host, out))
        })
    }

    /// Runs a function of a library and appends its reply to `out`. Loads the library first if it is not loaded.
    ///
    /// # Errors
    /// See [`Failure`]. On failure, `out` is unchanged.
    pub fn run_function(
        &mut self,
        library: &Code<'_>,
        name: &str,
        input: Input<'_>,
        host: &mut dyn Host,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let known = self
            .vm
            .as_ref()
            .is_some_and(|vm| vm.libraries.contains_key(library.sha));
        if !known {
            self.load_library(library, host)?;
        }
        self.guarded(input.seed, input.spent, |vm, limits| {
            let functions = vm.libraries.get(library.sha);
            let Some(function) = functions.and_then(|known| known.get(name)).cloned() else {
                return Err(Failure::Script(String::from("ERR Function not found")));
            };
            let what = Called {
                name,
                source: "user_function",
                runner: &vm.run_library,
            };
            call(vm, limits, &function, &input, &what, (host, out))
        })
    }

    /// Loads a library and keeps its functions. Returns the functions that it registers.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn load_library(
        &mut self,
        library: &Code<'_>,
        host: &mut dyn Host,
    ) -> Result<Vec<Registered>, Failure> {
        self.check_length(library)?;
        self.guarded(0, Duration::ZERO, |vm, limits| {
            vm.shared.registered.borrow_mut().clear();
            vm.host.raw_set("loads", true).map_err(engine)?;
            vm.shared.loads.set(true);
            let main = vm.library(library.text);
            let main = main
                .map_err(|error| Failure::Script(format!("ERR Error compiling function: {error}")));
            let ran =
                main.and_then(|main| vm.bridge.with_host(host, || invoke(&vm.run_library, &main)));
            vm.shared.loads.set(false);
            let unset = vm.host.raw_set("loads", Value::Nil).map_err(engine);
            let registered = vm.shared.registered.take();
            stopped(vm, limits)?;
            if let Err((text, _)) = ran.and_then(|done| unset.map(|()| done))? {
                return Err(Failure::Script(format!(
                    "ERR Error registering functions: {text}"
                )));
            }
            if registered.is_empty() {
                return Err(Failure::Script(String::from("ERR No functions registered")));
            }
            let known: Library = registered
                .iter()
                .map(|(what, function)| (what.name.clone(), function.clone()))
                .collect();
            vm.libraries.insert(String::from(library.sha), known);
            Ok(registered.into_iter().map(|(what, _)| what).collect())
        })
    }

    /// Drops the functions of a library.
    pub fn drop_library(&mut self, sha: &str) {
        if let Some(vm) = &mut self.vm {
            vm.libraries.remove(sha);
        }
    }

    fn check_length(&self, code: &Code<'_>) -> Result<(), Failure> {
        let max = self.limits.source_bytes;
        match code.text.len() {
            bytes if bytes > max => Err(Failure::Script(format!(
                "ERR the script has {bytes} bytes; the most is {max}"
            ))),
            _ => Ok(()),
        }
    }

    /// Makes the virtual machine and the watchdog if they do not exist.
    fn ready(&mut self) -> Result<(), Failure> {
        let watchdog = self.watchdog.get_or_insert_with(Watchdog::start);
        if self.vm.is_none() {
            self.vm = Some(Vm::new(watchdog.flag(), self.limits.memory_bytes).map_err(engine)?);
        }
        Ok(())
    }

    /// Calls `run` within the limits. Then collects the garbage of the run. If the run exceeded a limit or the engine
    /// failed, drops the virtual machine instead.
    fn guarded<R>(
        &mut self,
        seed: u64,
        spent: Duration,
        run: impl FnOnce(&mut Vm, &Limits) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.spent = Duration::ZERO;
        self.ready()?;
        let (Some(vm), Some(watchdog)) = (&mut self.vm, &mut self.watchdog) else {
            return Err(self.limits.failure(Stop::Engine));
        };
        let allowed = self.limits.time.saturating_sub(spent);
        let Some(number) = watchdog.begin(allowed) else {
            let text = "ERR scripts cannot run: the thread that watches them could not be started";
            return Err(Failure::Limit(String::from(text)));
        };
        let used = vm.lua.used_memory();
        let limited = used + self.limits.memory_bytes;
        let seed = if armed(Flaw::RerunWithOtherSeed) {
            seed ^ number
        } else {
            seed
        };
        let begin = Instant::now();
        vm.shared.begin(number, seed, used, limited);
        vm.shared.long.begin(begin);
        let ran = match vm.lua.set_memory_limit(limited) {
            Ok(_) => run(vm, &self.limits),
            Err(error) => Err(engine(error)),
        };
        self.spent = watchdog.end(begin.elapsed());
        let stopped = vm.shared.stopped();
        let ran = match ran {
            // A run that was stopped counts as failed, even if it returned a result.
            Ok(_) if stopped != Stop::No => Err(self.limits.failure(stopped)),
            Err(Failure::Limit(text)) if armed(Flaw::LimitKeepsHalf) => Err(Failure::Script(text)),
            Err(Failure::Halted) if armed(Flaw::HaltKeepsHalf) => {
                Err(Failure::Script(String::from("ERR the script was ended")))
            }
            other => other,
        };
        let clean = matches!(ran, Ok(_) | Err(Failure::Script(_) | Failure::Halted));
        let stays = clean && stopped != Stop::Memory;
        if !stays || vm.give_back().is_err() {
            self.vm = None;
        }
        ran
    }
}

/// Returns the function of a script, compiled at its first use.
fn compiled(vm: &mut Vm, code: &Code<'_>) -> Result<Function, Failure> {
    let compiled = vm.script(code.sha, code.text);
    compiled.map_err(|error| {
        Failure::Script(format!(
            "ERR Error compiling script (new function): {error}"
        ))
    })
}

/// A script or a library's function that is being run. The text of an uncaught error contains `name` and `source`.
struct Called<'a> {
    name: &'a str,
    source: &'a str,
    /// The prelude's runner: [`Vm::run_script`] for a script, [`Vm::run_library`] for a library's function.
    runner: &'a Function,
}

/// Calls `function` with KEYS and ARGV, and appends its reply to the caller's buffer.
fn call(
    vm: &Vm,
    limits: &Limits,
    function: &Function,
    input: &Input<'_>,
    what: &Called<'_>,
    (host, out): (&mut dyn Host, &mut Vec<u8>),
) -> Result<(), Failure> {
    vm.bridge
        .give(input, limits.reply_bytes, std::mem::take(out));
    let ran = vm.bridge.with_host(host, || invoke(what.runner, function));
    let (reply, unsent) = vm.bridge.take();
    *out = reply;
    stopped(vm, limits)?;
    if let Err((text, line)) = ran? {
        let at = line.map_or(String::new(), |line| {
            format!(", on @{}:{line}.", what.source)
        });
        return Err(Failure::Script(format!("{text} script: {}{at}", what.name)));
    }
    match unsent {
        None => Ok(()),
        Some(Unsent::TooLong) => Err(limits.long_reply()),
        Some(Unsent::Ended) => Err(limits.failure(Stop::Engine)),
    }
}

/// Fails if the run was stopped.
fn stopped(vm: &Vm, limits: &Limits) -> Result<(), Failure> {
    match vm.shared.stopped() {
        Stop::No => Ok(()),
        why => Err(limits.failure(why)),
    }
}

/// Returns the failure for an error that no script caused: a fault of the engine, or a lack of memory.
fn engine(error: mlua::Error) -> Failure {
    match error {
        mlua::Error::MemoryError(_) => Limits::default().failure(Stop::Memory),
        other => Failure::Limit(format!("ERR the script engine has failed: {other}")),
    }
}

/// The outcome of a called function: success, or the text of an error and the line where it occurred.
type Ended = Result<(), (String, Option<u64>)>;

/// Calls `function` through the prelude's `runner`, which reports the line of a failure.
fn invoke(runner: &Function, function: &Function) -> Result<Ended, Failure> {
    match runner.call::<(Value, Value)>(function) {
        Ok((Value::Nil, _)) => Ok(Ok(())),
        Ok((Value::String(text), line)) => {
            let text = text.as_bytes();
            let shown = &text[..text.len().min(ERROR_BYTES_MAX)];
            let shown = String::from_utf8_lossy(shown).into_owned();
            Ok(Err((shown, line.as_u64())))
        }
        Ok((Value::Error(error), _)) => Err(engine(*error)),
        Ok(_) => Ok(Err((String::from("ERR the script has failed"), None))),
        Err(error) => Err(engine(error)),
    }
}
