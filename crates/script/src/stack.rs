//! The stack of the virtual machine, for native functions that a script has called.
//!
//! The functions of mlua make a protected call into the virtual machine (*machine* below) for each string and each
//! field, because the machine has a memory limit. They also keep a handle for each value. A native function already
//! runs within the script's protected call, so neither protected calls nor handles are needed. With mlua's functions,
//! scripts of five commands take 40 % longer.
//!
//! # Unsafe code
//! A [`Stack`] exists only while the machine waits for a native function or its interrupt, so the state is alive and
//! belongs to this thread. Its methods may be called with any index and any value. Positions count from 1, and the
//! machine returns nil for positions beyond the top. Each method checks that a value is a table before it uses the
//! value as a table, and makes room before it pushes. A method that allocates may raise the machine's error for a lack
//! of memory. That error is a C++ exception. It unwinds through Rust's frames as a panic would (`C-unwind`), so that
//! values of Rust are dropped. No frame between the method and the protected call catches it.
#![allow(unsafe_code)]

use mlua::ffi;
use std::ffi::{CStr, c_int};
use std::marker::PhantomData;

/// A position on the stack; the first is 1.
pub(crate) type At = c_int;

/// The value at a position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Item<'s> {
    /// Nil, or a value of a type that cannot be a reply.
    Nothing,
    /// A truth value.
    Boolean(bool),
    /// A number.
    Number(f64),
    /// A string.
    Text(&'s [u8]),
    /// A table.
    Table,
}

/// The stack of one call of a native function.
#[derive(Debug)]
pub(crate) struct Stack<'s> {
    state: *mut ffi::lua_State,
    call: PhantomData<&'s mut ()>,
}

impl Stack<'_> {
    /// Wraps the stack of the call that `state` is executing.
    ///
    /// # Safety
    /// The machine must have called a C function or the interrupt with `state`. The stack must be dropped before that
    /// call returns to the machine.
    pub(crate) unsafe fn new(state: *mut ffi::lua_State) -> Self {
        Stack {
            state,
            call: PhantomData,
        }
    }

    /// Returns the number of values, which is also the position of the last value.
    pub(crate) fn len(&self) -> At {
        // SAFETY: see the module.
        unsafe { ffi::lua_gettop(self.state) }
    }

    /// Returns the value at a position.
    pub(crate) fn item(&self, at: At) -> Item<'_> {
        debug_assert!(at > 0);
        // SAFETY: positions beyond the top are nil. The machine does not move or free a string while it is on the
        // stack, and only a mutable borrow of the stack could remove it.
        unsafe {
            match ffi::lua_type(self.state, at) {
                ffi::LUA_TBOOLEAN => Item::Boolean(ffi::lua_toboolean(self.state, at) != 0),
                ffi::LUA_TNUMBER => Item::Number(ffi::lua_tonumber(self.state, at)),
                ffi::LUA_TSTRING => {
                    let mut len = 0;
                    let bytes = ffi::lua_tolstring(self.state, at, &raw mut len);
                    Item::Text(std::slice::from_raw_parts(bytes.cast::<u8>(), len))
                }
                ffi::LUA_TTABLE => Item::Table,
                _ => Item::Nothing,
            }
        }
    }

    /// Returns whether the value at a position is nil.
    pub(crate) fn is_nil(&self, at: At) -> bool {
        debug_assert!(at > 0);
        // SAFETY: positions beyond the top are nil.
        unsafe { ffi::lua_type(self.state, at) <= ffi::LUA_TNIL }
    }

    /// Removes the values above the position `len`.
    pub(crate) fn cut(&mut self, len: At) {
        if (0..self.len()).contains(&len) {
            // SAFETY: the stack becomes shorter, never longer.
            unsafe { ffi::lua_settop(self.state, len) }
        }
    }

    fn room(&mut self) {
        // SAFETY: if the stack cannot grow, the call raises an error of the machine. The text is static. There must be
        // two slots: one for the value that a method pushes, and one for a key.
        unsafe { ffi::luaL_checkstack_(self.state, 2, c"a reply is too deep".as_ptr()) }
    }

    /// Pushes nil.
    pub(crate) fn push_nil(&mut self) {
        self.room();
        // SAFETY: there is room.
        unsafe { ffi::lua_pushnil(self.state) }
    }

    /// Pushes a truth value.
    pub(crate) fn push_boolean(&mut self, yes: bool) {
        self.room();
        // SAFETY: there is room.
        unsafe { ffi::lua_pushboolean(self.state, c_int::from(yes)) }
    }

    /// Pushes a number.
    pub(crate) fn push_number(&mut self, n: f64) {
        self.room();
        // SAFETY: there is room.
        unsafe { ffi::lua_pushnumber(self.state, n) }
    }

    /// Pushes a string.
    pub(crate) fn push_text(&mut self, text: &[u8]) {
        self.room();
        // SAFETY: there is room, and the machine copies the bytes.
        unsafe { ffi::lua_pushlstring_(self.state, text.as_ptr().cast(), text.len()) }
    }

    /// Pushes an empty table with room for `items` items and `fields` fields.
    pub(crate) fn push_table(&mut self, items: usize, fields: usize) {
        let count = |n| c_int::try_from(n).unwrap_or(c_int::MAX);
        self.room();
        // SAFETY: there is room. A table that is too large is an error of the machine.
        unsafe { ffi::lua_createtable(self.state, count(items), count(fields)) }
    }

    fn is_table(&self, at: At) -> bool {
        // SAFETY: positions beyond the top are nil.
        at > 0 && unsafe { ffi::lua_type(self.state, at) == ffi::LUA_TTABLE }
    }

    /// Removes the last value from the stack and stores it in a table, at the index `index`.
    pub(crate) fn set_index(&mut self, table: At, index: usize) {
        let index = c_int::try_from(index).unwrap_or(c_int::MAX);
        assert!(
            self.is_table(table) && self.len() > table,
            "a table below a value"
        );
        // SAFETY: there is a table, and a value above it.
        unsafe { ffi::lua_rawseti_(self.state, table, index) }
    }

    /// Removes the last value from the stack and stores it in a table, in the field `name`.
    pub(crate) fn set_field(&mut self, table: At, name: &CStr) {
        assert!(
            self.is_table(table) && self.len() > table,
            "a table below a value"
        );
        // SAFETY: there is a table, and a value above it.
        unsafe { ffi::lua_rawsetfield(self.state, table, name.as_ptr()) }
    }

    /// Removes the last two values from the stack, a key and its value, and stores the pair in a table.
    pub(crate) fn set_pair(&mut self, table: At) {
        assert!(
            self.is_table(table) && self.len() > table + 1,
            "a table below a pair"
        );
        // SAFETY: there is a table, and two values above it. An invalid key is an error of the machine.
        unsafe { ffi::lua_rawset(self.state, table) }
    }

    /// Pushes the value at an index of a table.
    pub(crate) fn get_index(&mut self, table: At, index: usize) {
        let index = c_int::try_from(index).unwrap_or(c_int::MAX);
        self.room();
        assert!(self.is_table(table), "a table");
        // SAFETY: there is a table, and room for a value.
        unsafe { ffi::lua_rawgeti_(self.state, table, index) };
    }

    /// Pushes the value of a field of a table.
    pub(crate) fn get_field(&mut self, table: At, name: &CStr) {
        self.room();
        assert!(self.is_table(table), "a table");
        // SAFETY: there is a table, and room for a value.
        unsafe { ffi::lua_rawgetfield(self.state, table, name.as_ptr()) };
    }

    /// Pushes the key and the value of the next pair of a table. The search for the pair begins at the place `from`.
    /// The table's first place is 0. Returns the `from` for the next call, or `None` if the table has no more pairs.
    pub(crate) fn next_pair(&mut self, table: At, from: At) -> Option<At> {
        self.room();
        assert!(self.is_table(table) && from >= 0, "a table");
        // SAFETY: there is a table, and room for two values. The machine accepts any place from 0 on, even beyond the
        // end.
        let next = unsafe { ffi::lua_rawiter(self.state, table, from) };
        (next >= 0).then_some(next)
    }

    /// Returns the memory that all values use, bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        // SAFETY: reads a counter. A negative category selects the sum of all.
        unsafe { ffi::lua_totalbytes(self.state, -1) }
    }

    /// Collects all garbage.
    pub(crate) fn collect_garbage(&mut self) {
        // SAFETY: the machine may collect garbage in a call or in its interrupt. It is now in a call or in its
        // interrupt.
        unsafe { ffi::lua_gc(self.state, ffi::LUA_GCCOLLECT, 0) };
    }
}
