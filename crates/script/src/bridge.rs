//! The native functions that every script uses to run commands, to receive KEYS and ARGV, and to return its reply.
//!
//! These functions work directly on the stack ([`Stack`]) of the virtual machine, which is called *machine* below. All
//! other native functions are called through mlua.
//!
//! # Errors that end a run
//! An error that no script may catch is raised as a light userdata: the address of the bridge. The prelude's `pcall`
//! can distinguish this value from all values that scripts can have. [`Shared`] holds the reason for the end of the
//! run. A panic of the host must not unwind through the machine. So the bridge catches and stores the panic, ends the
//! run, and resumes the panic when the machine has returned.
//!
//! # Unsafe code
//! The functions find their bridge through a pointer. A native function has the pointer in an upvalue, and the
//! interrupt has it in the data of the thread. [`Vm`](crate::vm::Vm) owns the bridge and drops it after the machine's
//! state. [`Bridge::with_host`] ensures that the host is borrowed for one run only.
#![allow(unsafe_code)]

use crate::from_lua::{Encoder, Protocol, Unsent};
use crate::host::{Ask, Host, Words};
use crate::libraries::number;
use crate::limits::Stop;
use crate::run::Input;
use crate::stack::{Item, Stack};
use crate::to_lua;
use crate::vm::Shared;
use mlua::{Function, Lua, Table, ffi};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::rc::Rc;

/// The maximum capacity, in bytes, of a reply buffer that the bridge keeps after a command. A larger buffer is freed.
const KEPT_BYTES_MAX: usize = 64 << 10;

const UNASKED: &[u8] = b"ERR Please specify at least one argument for this redis lib call";
const NOT_WORDS: &[u8] = b"ERR Lua redis lib command arguments must be strings or integers";

/// The end of a native function.
enum End {
    /// The function returns this many values, which are above its arguments on the stack.
    Values(c_int),
    /// The function raises the last value on the stack as an error.
    Error,
    /// The function ends the run.
    Run,
}

/// The input and the output of a run.
#[derive(Default)]
struct Run {
    /// The words of KEYS, then the words of ARGV.
    words: Words,
    /// The number of KEYS among the words. `None`: the run has no input and no reply.
    keys: Option<usize>,
    resp3: bool,
    /// The caller's buffer. The reply is appended to it.
    out: Vec<u8>,
    reply_bytes_max: usize,
    unsent: Option<Unsent>,
}

/// The state of the native functions.
pub(crate) struct Bridge {
    shared: Rc<Shared>,
    host: Cell<Option<NonNull<dyn Host>>>,
    /// A caught panic of the host, to be resumed after the run.
    panic: Cell<Option<Box<dyn Any + Send>>>,
    run: RefCell<Run>,
    /// The words of the script's current command, and the reply to this command.
    buffers: RefCell<(Words, Vec<u8>)>,
}

impl Bridge {
    /// Makes the bridge, and adds the bridge's native functions to `table` for the prelude.
    pub(crate) fn new(lua: &Lua, shared: &Rc<Shared>, table: &Table) -> mlua::Result<Rc<Self>> {
        let bridge = Rc::new(Bridge {
            shared: Rc::clone(shared),
            host: Cell::new(None),
            panic: Cell::new(None),
            run: RefCell::default(),
            buffers: RefCell::default(),
        });
        let address = Rc::as_ptr(&bridge).cast_mut().cast();
        let functions: [(&CStr, ffi::lua_CFunction); 6] = [
            (c"call", call),
            (c"pcall", pcall),
            (c"may_run", may_run),
            (c"log", log),
            (c"given", given),
            (c"done", done),
        ];
        for (name, function) in functions {
            // SAFETY: pushes a pointer and a closure over it, and mlua has made room for both. The name is static.
            // The functions expect the address of a bridge in their upvalue.
            let made: Function = unsafe {
                lua.exec_raw((), |state| {
                    ffi::lua_pushlightuserdata(state, address);
                    ffi::lua_pushcclosured(state, function, name.as_ptr(), 1);
                })?
            };
            table.raw_set(name.to_str().unwrap_or_default(), made)?;
        }
        Ok(bridge)
    }

    /// Sets the machine's interrupt function to [`interrupt`], which ends runs.
    pub(crate) fn interrupt(&self, lua: &Lua) -> mlua::Result<()> {
        let address: *const Bridge = self;
        // SAFETY: mlua uses neither the interrupt nor the data of the thread. The machine has no other thread.
        unsafe {
            lua.exec_raw((), |state| {
                ffi::lua_setthreaddata(state, address.cast_mut().cast());
                (*ffi::lua_callbacks(state)).interrupt = Some(interrupt);
            })
        }
    }

    /// Sets the KEYS and ARGV of the next run, and the buffer for its reply.
    pub(crate) fn give(&self, input: &Input<'_>, reply_bytes_max: usize, out: Vec<u8>) {
        let mut run = self.run.borrow_mut();
        run.words.clear();
        for word in input.keys.iter().chain(input.args) {
            run.words.push(word);
        }
        run.keys = Some(input.keys.len());
        run.resp3 = input.resp3;
        run.out = out;
        run.reply_bytes_max = reply_bytes_max;
        run.unsent = None;
    }

    /// Returns the buffer from [`give`](Self::give), with the reply appended. If there is no reply, also returns the
    /// reason.
    pub(crate) fn take(&self) -> (Vec<u8>, Option<Unsent>) {
        let mut run = self.run.borrow_mut();
        run.keys = None;
        (std::mem::take(&mut run.out), run.unsent.take())
    }

    /// Calls `run`. During the call, `redis.call` and similar functions send their requests to `host`.
    pub(crate) fn with_host<R>(&self, host: &mut dyn Host, run: impl FnOnce() -> R) -> R {
        struct Lent<'b>(&'b Bridge);
        impl Drop for Lent<'_> {
            fn drop(&mut self) {
                self.0.host.set(None);
            }
        }
        let lent = Lent(self);
        let host: NonNull<dyn Host + '_> = NonNull::from(host);
        // SAFETY: only the lifetime is extended. `lent` removes the pointer before the borrow ends, even if `run`
        // panics.
        let host: NonNull<dyn Host> = unsafe { std::mem::transmute(host) };
        self.host.set(Some(host));
        let ran = run();
        drop(lent);
        if let Some(panic) = self.panic.take() {
            resume_unwind(panic);
        }
        ran
    }

    /// Ends the run. Stores `why` as the reason, unless an earlier reason is stored.
    fn stop(&self, why: Stop) -> End {
        self.shared.stop(why);
        End::Run
    }

    /// Sends the native function's arguments to the host as a request, and pushes the reply. An error reply is pushed
    /// as a table, and the function returns true.
    fn ask(&self, stack: &mut Stack<'_>, ask: Ask) -> Result<bool, End> {
        if self.shared.check().is_err() {
            return Err(End::Run);
        }
        let mut buffers = self.buffers.borrow_mut();
        let (words, reply) = &mut *buffers;
        words.clear();
        reply.clear();
        if stack.len() == 0 {
            to_lua::push_named(stack, c"err", UNASKED);
            return Ok(true);
        }
        for at in 1..=stack.len() {
            let fits = match stack.item(at) {
                Item::Text(text) => {
                    words.bytes().saturating_add(text.len()) <= self.shared.build_bytes_max && {
                        words.push(text);
                        true
                    }
                }
                Item::Number(n) => {
                    words.push_with(|to| push_number(to, n));
                    words.bytes() <= self.shared.build_bytes_max
                }
                _ => {
                    to_lua::push_named(stack, c"err", NOT_WORDS);
                    return Ok(true);
                }
            };
            if !fits {
                return Err(self.stop(Stop::Memory));
            }
        }
        let answered = self.use_host(|host| host.call(ask, words, reply))?;
        if answered.is_err() {
            return Err(self.stop(Stop::Host));
        }
        let resp3 = matches!(ask, Ask::Command { resp3: true });
        let pushed = to_lua::push(stack, reply, resp3);
        let is_error = reply.first() == Some(&b'-');
        if reply.capacity() > KEPT_BYTES_MAX {
            *reply = Vec::new();
        }
        match pushed {
            Some(()) => Ok(is_error),
            None => Err(self.stop(Stop::Engine)),
        }
    }

    /// Returns whether the run has a host.
    fn has_host(&self) -> bool {
        self.host.get().is_some()
    }

    /// Calls `serve` with the host. Fails if there is no host, or if `serve` panics.
    fn use_host<R>(&self, serve: impl FnOnce(&mut dyn Host) -> R) -> Result<R, End> {
        // The pointer is taken out, so no other call can reach the host while it serves this request.
        let Some(mut host) = self.host.take() else {
            return Err(self.stop(Stop::Engine));
        };
        let served = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: `with_host` has the only borrow of the host and waits for this call. The pointer exists only
            // during that time, and no other call can have it now.
            serve(unsafe { host.as_mut() })
        }));
        self.host.set(Some(host));
        served.map_err(|panic| {
            self.panic.set(Some(panic));
            self.stop(Stop::Engine)
        })
    }

    fn command(&self) -> Ask {
        Ask::Command {
            resp3: self.shared.resp3.get(),
        }
    }

    /// Pushes the tables of KEYS and ARGV.
    fn push_given(&self, stack: &mut Stack<'_>) -> End {
        let run = self.run.borrow();
        let Some(keys) = run.keys else {
            return End::Values(0);
        };
        let begin = stack.len();
        stack.push_table(keys, 0);
        stack.push_table(run.words.len() - keys, 0);
        for (at, word) in run.words.iter().enumerate() {
            stack.push_text(word);
            match at.checked_sub(keys) {
                None => stack.set_index(begin + 1, at + 1),
                Some(arg) => stack.set_index(begin + 2, arg + 1),
            }
        }
        End::Values(2)
    }

    /// Converts the native function's argument to the reply of the run.
    fn reply(&self, stack: &mut Stack<'_>) -> End {
        let mut run = self.run.borrow_mut();
        let run = &mut *run;
        if run.keys.is_some() {
            let protocol = Protocol {
                client_resp3: run.resp3,
                script_resp3: self.shared.resp3.get(),
            };
            let start = run.out.len();
            let encoded = Encoder::new(
                stack,
                &self.shared,
                &mut run.out,
                protocol,
                run.reply_bytes_max,
            )
            .push(1);
            if let Err(why) = encoded {
                run.out.truncate(start);
                run.out.shrink_to(start + KEPT_BYTES_MAX);
                run.unsent = Some(why);
            }
        }
        End::Values(0)
    }
}

/// Appends a number to `to`, as C's `%.17g` writes it.
fn push_number(to: &mut Vec<u8>, n: f64) {
    match number::whole(n) {
        // Below 1e16, `%.17g` writes all digits of an integer. `push_general` writes zero, because zero may have a
        // sign.
        Some(whole) if whole != 0 && n.abs() < 1e16 => number::push_integer(to, whole),
        _ => number::push_general(to, n, 17),
    }
}

/// Runs a native function that the machine has called.
///
/// # Safety
/// The machine calls one of the functions below with `state`. The function's first upvalue is the address of a live
/// bridge.
unsafe fn enter(
    state: *mut ffi::lua_State,
    run: impl FnOnce(&Bridge, &mut Stack<'_>) -> End,
) -> c_int {
    // SAFETY: the caller guarantees both. The machine waits until this function returns.
    let (bridge, mut stack) = unsafe {
        let address = ffi::lua_tolightuserdata(state, ffi::lua_upvalueindex(1));
        (&*address.cast::<Bridge>(), Stack::new(state))
    };
    match run(bridge, &mut stack) {
        End::Values(count) => count,
        // SAFETY: raises the last value. No value of this function has to be dropped.
        End::Error => unsafe { ffi::lua_error(state) },
        // SAFETY: as above.
        End::Run => unsafe { end_run(state, bridge) },
    }
}

/// Raises an error that no script may catch.
///
/// # Safety
/// The machine has called a native function or its interrupt with `state`.
unsafe fn end_run(state: *mut ffi::lua_State, bridge: &Bridge) -> ! {
    let address: *const Bridge = bridge;
    // SAFETY: makes room and raises the value that it pushes. Nothing dereferences the address.
    unsafe {
        ffi::lua_rawcheckstack(state, 1);
        ffi::lua_pushlightuserdata(state, address.cast_mut().cast());
        ffi::lua_error(state)
    }
}

/// Converts the result of [`Bridge::ask`]. The native function raises an error reply and returns any other reply.
fn raised(is_error: Result<bool, End>) -> End {
    match is_error {
        Ok(true) => End::Error,
        Ok(false) => End::Values(1),
        Err(end) => end,
    }
}

unsafe extern "C-unwind" fn call(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: the machine calls this with the upvalue that `Bridge::new` gave it.
    unsafe {
        enter(state, |bridge, stack| {
            raised(bridge.ask(stack, bridge.command()))
        })
    }
}

unsafe extern "C-unwind" fn pcall(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: as above.
    unsafe {
        enter(state, |bridge, stack| {
            match bridge.ask(stack, bridge.command()) {
                Ok(_) => End::Values(1),
                Err(end) => end,
            }
        })
    }
}

unsafe extern "C-unwind" fn may_run(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: as above.
    unsafe {
        enter(state, |bridge, stack| {
            raised(bridge.ask(stack, Ask::MayRun))
        })
    }
}

unsafe extern "C-unwind" fn log(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: as above.
    unsafe { enter(state, |bridge, stack| raised(bridge.ask(stack, Ask::Log))) }
}

unsafe extern "C-unwind" fn given(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: as above.
    unsafe { enter(state, Bridge::push_given) }
}

unsafe extern "C-unwind" fn done(state: *mut ffi::lua_State) -> c_int {
    // SAFETY: as above.
    unsafe { enter(state, Bridge::reply) }
}

/// Ends the run if there is a reason to end it. Otherwise informs the host of a long run, and collects garbage if
/// necessary. The machine calls this
/// function at each function call and at the end of each iteration of a loop.
unsafe extern "C-unwind" fn interrupt(state: *mut ffi::lua_State, collecting: c_int) {
    // No error may be raised while the machine collects garbage.
    if collecting >= 0 {
        return;
    }
    // SAFETY: the data of the thread is the address of the bridge, or nothing yet.
    let bridge = unsafe { ffi::lua_getthreaddata(state).cast::<Bridge>().as_ref() };
    let Some(bridge) = bridge else { return };
    let is_long = bridge.shared.long.is_reached();
    // A library that is being compiled has no host.
    let informs = is_long && bridge.has_host();
    let fails = informs && bridge.use_host(|host| host.note_long()).is_err();
    if fails || bridge.shared.stopped() != Stop::No {
        // SAFETY: the machine has called its interrupt.
        unsafe { end_run(state, bridge) }
    }
    // SAFETY: as above.
    let mut stack = unsafe { Stack::new(state) };
    if bridge.shared.collects_at(stack.memory_bytes()) {
        stack.collect_garbage();
        bridge.shared.collected(stack.memory_bytes());
    }
}
