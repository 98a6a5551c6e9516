//! The functions that the prelude takes from Rust.
//!
//! Each function returns the text of an error, or nil and then its results. The prelude raises the error, so that the
//! error names the script's line. Only errors that end the run are raised here, through [`Shared::stop`].

mod json_decode;
mod json_encode;
mod msgpack;
mod msgpack_read;
pub(crate) mod number;
mod structs;

use crate::limits::Stop;
use crate::run::Registered;
use crate::shebang::{BAD_NAME, Flags, is_name};
use crate::vm::Shared;
use mlua::{Function, IntoLuaMulti, Lua, LuaString, MultiValue, Table, Value};
use std::rc::Rc;

/// The reason why a function of a library has no result.
#[derive(Debug)]
pub(crate) enum Fault {
    /// An error with this text, which is raised at the script's line.
    Text(String),
    /// An error that ends the run.
    End(mlua::Error),
}

impl From<mlua::Error> for Fault {
    fn from(error: mlua::Error) -> Self {
        Fault::End(error)
    }
}

impl From<&str> for Fault {
    fn from(text: &str) -> Self {
        Fault::Text(String::from(text))
    }
}

/// The result of a library's function.
pub(crate) type Outcome<T> = Result<T, Fault>;

/// Converts a result into the values that the prelude expects: the text of an error, or nil and then the results.
fn lower(lua: &Lua, outcome: Outcome<impl IntoLuaMulti>) -> mlua::Result<MultiValue> {
    match outcome {
        Ok(results) => {
            let mut results = results.into_lua_multi(lua)?;
            results.push_front(Value::Nil);
            Ok(results)
        }
        Err(Fault::Text(text)) => Ok(MultiValue::from_iter([Value::String(
            lua.create_string(text)?,
        )])),
        Err(Fault::End(error)) => Err(error),
    }
}

/// Returns the error for a wrong argument, with the text of Lua's library.
pub(crate) fn bad_argument(at: usize, name: &str, wanted: &str, got: Option<&Value>) -> Fault {
    let got = got.map_or("no value", Value::type_name);
    Fault::Text(format!(
        "bad argument #{at} to '{name}' ({wanted} expected, got {got})"
    ))
}

/// Returns argument `at` as a number. Arguments are counted from 1.
pub(crate) fn number_arg(args: &MultiValue, at: usize, name: &str) -> Outcome<f64> {
    let arg = args.get(at - 1);
    let number = match arg {
        Some(Value::Integer(n)) => Some(crate::to_lua::as_double(*n)),
        Some(Value::Number(n)) => Some(*n),
        Some(Value::String(text)) => std::str::from_utf8(&text.as_bytes())
            .ok()
            .and_then(|text| text.trim().parse().ok()),
        _ => None,
    };
    number.ok_or_else(|| bad_argument(at, name, "number", arg))
}

/// Returns argument `at` as a string. Arguments are counted from 1.
pub(crate) fn string_arg(
    lua: &Lua,
    args: &MultiValue,
    at: usize,
    name: &str,
) -> Outcome<LuaString> {
    let arg = args.get(at - 1);
    match arg {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Integer(_) | Value::Number(_)) => {
            let mut text = Vec::new();
            number::push_general(&mut text, number_arg(args, at, name)?, 14);
            Ok(lua.create_string(text)?)
        }
        _ => Err(bad_argument(at, name, "string", arg)),
    }
}

/// Returns a table of all native functions, with the names that the prelude uses.
pub(crate) fn native(lua: &Lua, shared: &Rc<Shared>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let add = |name: &str, run: fn(&Lua, &Shared, MultiValue) -> mlua::Result<MultiValue>| {
        let shared = Rc::clone(shared);
        let function = lua.create_function(move |lua, args| run(lua, &shared, args))?;
        table.raw_set(name, function)
    };
    add("json_encode", |lua, shared, args| {
        lower(lua, json_encode::encode(lua, shared, &args))
    })?;
    add("json_decode", |lua, shared, args| {
        lower(lua, json_decode::decode(lua, shared, &args))
    })?;
    add("msgpack_pack", |lua, shared, args| {
        lower(lua, msgpack::pack(lua, shared, &args))
    })?;
    add("msgpack_unpack", |lua, shared, args| {
        lower(lua, msgpack_read::unpack(lua, shared, &args))
    })?;
    add("msgpack_unpack_one", |lua, shared, args| {
        lower(lua, msgpack_read::unpack_some(lua, shared, &args, false))
    })?;
    add("msgpack_unpack_limit", |lua, shared, args| {
        lower(lua, msgpack_read::unpack_some(lua, shared, &args, true))
    })?;
    add("struct_pack", |lua, shared, args| {
        lower(lua, structs::pack(lua, shared, &args))
    })?;
    add("struct_unpack", |lua, shared, args| {
        lower(lua, structs::unpack(lua, shared, &args))
    })?;
    add("struct_size", |lua, _, args| {
        lower(lua, structs::size(lua, &args))
    })?;
    add("sha1hex", |lua, _, args| lower(lua, sha1hex(lua, &args)))?;
    add("find", |lua, _, args| lower(lua, find(lua, &args)))?;
    add("random", |lua, shared, args| {
        lower(lua, random(shared, &args))
    })?;
    add("randomseed", |lua, shared, args| {
        lower(lua, randomseed(shared, &args))
    })?;
    add("setresp", |lua, shared, args| {
        shared
            .resp3
            .set(number_arg(&args, 1, "setresp").is_ok_and(|version| version > 2.5));
        lower(lua, Ok(()))
    })?;
    add("exhausted", |_, shared, args| exhausted(shared, &args))?;
    add("register", |lua, shared, args| {
        lower(lua, register(lua, shared, &args))
    })?;
    add("is_flag", |lua, _, args| {
        let flag = string_arg(lua, &args, 1, "is_flag");
        let known = flag.is_ok_and(|flag| Flags::default().set(&flag.as_bytes()));
        Ok(MultiValue::from_iter([Value::Boolean(known)]))
    })?;
    Ok(table)
}

fn sha1hex(lua: &Lua, args: &MultiValue) -> Outcome<String> {
    let text = string_arg(lua, args, 1, "sha1hex")?;
    Ok(crate::sha1_hex(&text.as_bytes()))
}

/// Finds a string in a text, from a given position. The string is not a pattern. The search takes linear time.
fn find(lua: &Lua, args: &MultiValue) -> Outcome<(Option<usize>, Option<usize>)> {
    let text = string_arg(lua, args, 1, "find")?;
    let wanted = string_arg(lua, args, 2, "find")?;
    let from = number::truncate(number_arg(args, 3, "find")?);
    let (text, wanted) = (text.as_bytes(), wanted.as_bytes());
    let len = text.len();
    let from = match usize::try_from(from.unsigned_abs()).unwrap_or(usize::MAX) {
        back if from < 0 => len.saturating_sub(back),
        ahead => ahead.saturating_sub(1),
    };
    let Some(rest) = text.get(from..) else {
        return Ok((None, None));
    };
    let found = memchr::memmem::find(rest, &wanted);
    Ok(found
        .map(|at| (from + at + 1, from + at + wanted.len()))
        .unzip())
}

fn random(shared: &Shared, args: &MultiValue) -> Outcome<f64> {
    let drawn = shared.random.next();
    let bound = |at| number_arg(args, at, "random").map(f64::trunc);
    let within = |low: f64, high: f64| {
        if low <= high {
            Ok((drawn * (high - low + 1.0)).floor() + low)
        } else {
            let at = args.len();
            Err(Fault::Text(format!(
                "bad argument #{at} to 'random' (interval is empty)"
            )))
        }
    };
    match args.len() {
        0 => Ok(drawn),
        1 => within(1.0, bound(1)?),
        2 => within(bound(1)?, bound(2)?),
        _ => Err(Fault::from("wrong number of arguments")),
    }
}

fn randomseed(shared: &Shared, args: &MultiValue) -> Outcome<()> {
    let seed = number::truncate(number_arg(args, 1, "randomseed")?);
    shared.random.seed(u64::from_le_bytes(seed.to_le_bytes()));
    Ok(())
}

/// Ends the run. The prelude calls this when it has caught an error that must not reach the script.
fn exhausted(shared: &Shared, args: &MultiValue) -> mlua::Result<MultiValue> {
    fn is_memory(error: &mlua::Error) -> bool {
        match error {
            mlua::Error::MemoryError(_) => true,
            mlua::Error::CallbackError { cause, .. } | mlua::Error::WithContext { cause, .. } => {
                is_memory(cause)
            }
            _ => false,
        }
    }
    let why = match args.front() {
        Some(Value::String(_)) => Stop::Memory,
        Some(Value::Error(error)) if is_memory(error) => Stop::Memory,
        _ => Stop::Engine,
    };
    // If the run already ends for an earlier reason, that reason stays.
    if shared.stopped() == Stop::No {
        shared.stop(why);
    }
    Ok(MultiValue::new())
}

fn register(lua: &Lua, shared: &Shared, args: &MultiValue) -> Outcome<()> {
    if !shared.loads.get() {
        return Err(Fault::from(
            "ERR redis.register_function can only be called on FUNCTION LOAD command",
        ));
    }
    let name = string_arg(lua, args, 1, "register_function")?;
    if !is_name(&name.as_bytes()) {
        return Err(Fault::Text(format!("ERR {BAD_NAME}")));
    }
    let name = String::from_utf8_lossy(&name.as_bytes()).into_owned();
    let (Some(Value::Function(callback)), Some(Value::Table(listed))) = (args.get(1), args.get(2))
    else {
        return Err(Fault::from(
            "ERR redis.register_function must get a callback argument",
        ));
    };
    let mut flags = Flags::default();
    for flag in listed.sequence_values::<LuaString>() {
        flags.set(&flag?.as_bytes());
    }
    let description = match args.get(3) {
        Some(Value::String(text)) => Some(text.as_bytes().to_vec()),
        _ => None,
    };
    let mut registered = shared.registered.borrow_mut();
    if registered.iter().any(|(known, _)| known.name == name) {
        return Err(Fault::from("ERR Function already exists in the library"));
    }
    let what = Registered {
        name,
        flags,
        description,
    };
    let callback: Function = callback.clone();
    registered.push((what, callback));
    Ok(())
}
