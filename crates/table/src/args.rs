//! Argument lists of procedures. A command's record holds the procedure's number and an encoded
//! argument list.
//!
//! Integers of more than a byte are encoded as varints, so that small numbers take few bytes. Signed integers are
//! zigzag-encoded first. The types are not encoded, because the procedure's catalog entry has them.

use perdura_base::cursor::{Reader, Writer};
use perdura_base::num::to_u64;
use perdura_base::{Error, Result};

/// A type that an argument can have.
pub trait Arg: Clone + 'static {
    /// Appends the type's Rust name, without spaces.
    fn name(out: &mut String);
    /// Appends the argument.
    fn put(&self, out: &mut Vec<u8>);
    /// Reads an argument; `None` if the bytes are malformed.
    fn take(r: &mut Reader<'_>) -> Option<Self>;
    /// Appends several arguments.
    fn put_all(all: &[Self], out: &mut Vec<u8>) {
        for item in all {
            item.put(out);
        }
    }
    /// Reads `count` arguments; `None` if the bytes are malformed.
    fn take_all(count: usize, r: &mut Reader<'_>) -> Option<Vec<Self>> {
        // Each argument takes at least a byte. This check prevents an allocation for more arguments than
        // `r` can hold, if a damaged count asks for it.
        if count > r.remaining() {
            return None;
        }
        (0..count).map(|_| Self::take(r)).collect()
    }
}

/// The arguments of a procedure: a tuple of at most eight values.
pub trait ArgList: Clone + 'static {
    /// Returns the arguments' types as text, such as `(u64,u64,i64)`.
    fn types() -> String;
    /// Appends all arguments.
    fn encode(&self, out: &mut Vec<u8>);
    /// Reads all arguments. Fails if bytes remain after the last argument.
    ///
    /// # Errors
    /// [`Error::Corrupt`] with the position of the argument that is wrong.
    fn decode(bytes: &[u8]) -> Result<Self>;
}

macro_rules! unsigned {
    ($($type:ident)*) => {$(
        impl Arg for $type {
            fn name(out: &mut String) {
                out.push_str(stringify!($type));
            }
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                out.put_varint(u64::from(*self));
            }
            #[inline]
            fn take(r: &mut Reader<'_>) -> Option<$type> {
                $type::try_from(r.varint()?).ok()
            }
        }
    )*};
}

macro_rules! signed {
    ($($type:ident)*) => {$(
        impl Arg for $type {
            fn name(out: &mut String) {
                out.push_str(stringify!($type));
            }
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                out.put_varint(zigzag(i64::from(*self)));
            }
            #[inline]
            fn take(r: &mut Reader<'_>) -> Option<$type> {
                $type::try_from(unzigzag(r.varint()?)).ok()
            }
        }
    )*};
}

unsigned!(u16 u32 u64);
signed!(i16 i32 i64);

fn zigzag(n: i64) -> u64 {
    let sign = if n < 0 { u64::MAX } else { 0 };
    (u64::from_le_bytes(n.to_le_bytes()) << 1) ^ sign
}

fn unzigzag(n: u64) -> i64 {
    let sign = if n & 1 == 1 { u64::MAX } else { 0 };
    let value = i64::from_le_bytes(((n >> 1) ^ sign).to_le_bytes());
    debug_assert_eq!(zigzag(value), n, "the two codings are inverse");
    value
}

impl Arg for u8 {
    fn name(out: &mut String) {
        out.push_str("u8");
    }
    fn put(&self, out: &mut Vec<u8>) {
        out.put_u8(*self);
    }
    fn take(r: &mut Reader<'_>) -> Option<u8> {
        r.u8()
    }
    fn put_all(all: &[u8], out: &mut Vec<u8>) {
        out.put(all);
    }
    fn take_all(count: usize, r: &mut Reader<'_>) -> Option<Vec<u8>> {
        r.bytes(count).map(<[u8]>::to_vec)
    }
}

impl Arg for i8 {
    fn name(out: &mut String) {
        out.push_str("i8");
    }
    fn put(&self, out: &mut Vec<u8>) {
        out.put(&self.to_le_bytes());
    }
    fn take(r: &mut Reader<'_>) -> Option<i8> {
        r.array().map(i8::from_le_bytes)
    }
}

impl Arg for bool {
    fn name(out: &mut String) {
        out.push_str("bool");
    }
    fn put(&self, out: &mut Vec<u8>) {
        out.put_u8(u8::from(*self));
    }
    fn take(r: &mut Reader<'_>) -> Option<bool> {
        match r.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Arg for f64 {
    fn name(out: &mut String) {
        out.push_str("f64");
    }
    fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.to_bits());
    }
    fn take(r: &mut Reader<'_>) -> Option<f64> {
        r.u64().map(f64::from_bits)
    }
}

impl Arg for String {
    fn name(out: &mut String) {
        out.push_str("String");
    }
    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(to_u64(self.len()));
        out.put(self.as_bytes());
    }
    fn take(r: &mut Reader<'_>) -> Option<String> {
        let len = r.varint_usize()?;
        String::from_utf8(r.bytes(len)?.to_vec()).ok()
    }
}

impl<A: Arg> Arg for Vec<A> {
    fn name(out: &mut String) {
        out.push_str("Vec<");
        A::name(out);
        out.push('>');
    }
    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(to_u64(self.len()));
        A::put_all(self, out);
    }
    fn take(r: &mut Reader<'_>) -> Option<Vec<A>> {
        let count = r.varint_usize()?;
        A::take_all(count, r)
    }
}

impl<A: Arg, const N: usize> Arg for [A; N] {
    fn name(out: &mut String) {
        out.push('[');
        A::name(out);
        out.push_str(&format!(";{N}]"));
    }
    fn put(&self, out: &mut Vec<u8>) {
        const { assert!(N > 0, "an argument takes a byte at least") };
        A::put_all(self, out);
    }
    fn take(r: &mut Reader<'_>) -> Option<[A; N]> {
        A::take_all(N, r)?.try_into().ok()
    }
}

impl<A: Arg> Arg for Option<A> {
    fn name(out: &mut String) {
        out.push_str("Option<");
        A::name(out);
        out.push('>');
    }
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(item) = self {
            item.put(out);
        }
    }
    fn take(r: &mut Reader<'_>) -> Option<Option<A>> {
        if bool::take(r)? {
            A::take(r).map(Some)
        } else {
            Some(None)
        }
    }
}

macro_rules! tuple {
    ($($a:ident $n:tt),*) => {
        impl<$($a: Arg),*> Arg for ($($a,)*) {
            fn name(out: &mut String) {
                out.push_str(&<($($a,)*) as ArgList>::types());
            }
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$n.put(out);)*
            }
            #[inline]
            fn take(r: &mut Reader<'_>) -> Option<Self> {
                Some(($($a::take(r)?,)*))
            }
        }
        list!($($a $n),*);
    };
}

macro_rules! list {
    ($($a:ident $n:tt),*) => {
        impl<$($a: Arg),*> ArgList for ($($a,)*) {
            fn types() -> String {
                let names: [fn(&mut String); [$(stringify!($a)),*].len()] = [$($a::name),*];
                let mut out = String::from("(");
                for (at, name) in names.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    name(&mut out);
                }
                out.push(')');
                out
            }
            fn encode(&self, out: &mut Vec<u8>) {
                $(self.$n.put(out);)*
            }
            fn decode(bytes: &[u8]) -> Result<Self> {
                let mut r = Reader::new(bytes);
                let list = ($(
                    $a::take(&mut r).ok_or_else(|| malformed::<Self>(Some($n), &r, bytes))?,
                )*);
                if r.remaining() > 0 {
                    return Err(malformed::<Self>(None, &r, bytes));
                }
                Ok(list)
            }
        }
    };
}

impl ArgList for () {
    fn types() -> String {
        "()".to_owned()
    }
    fn encode(&self, _out: &mut Vec<u8>) {}
    fn decode(bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            Ok(())
        } else {
            Err(malformed::<()>(None, &Reader::new(bytes), bytes))
        }
    }
}

tuple!(A0 0);
tuple!(A0 0, A1 1);
tuple!(A0 0, A1 1, A2 2);
tuple!(A0 0, A1 1, A2 2, A3 3);
tuple!(A0 0, A1 1, A2 2, A3 3, A4 4);
tuple!(A0 0, A1 1, A2 2, A3 3, A4 4, A5 5);
tuple!(A0 0, A1 1, A2 2, A3 3, A4 4, A5 5, A6 6);
tuple!(A0 0, A1 1, A2 2, A3 3, A4 4, A5 5, A6 6, A7 7);

#[cold]
fn malformed<L: ArgList>(position: Option<usize>, r: &Reader<'_>, bytes: &[u8]) -> Error {
    let types = L::types();
    let expected = match position {
        Some(at) => format!("argument {} of {types}", at + 1),
        None => format!("the end of the arguments {types}"),
    };
    Error::corrupt(
        "the arguments of a command",
        to_u64(r.at()),
        expected,
        format!("{bytes:02x?}"),
        "The command cannot run; the procedure that wrote it may have had other arguments",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<L: ArgList + PartialEq + std::fmt::Debug>(list: &L, types: &str) -> usize {
        assert_eq!(L::types(), types);
        let mut bytes = Vec::new();
        list.encode(&mut bytes);
        assert_eq!(&L::decode(&bytes).unwrap(), list);
        for cut in 0..bytes.len() {
            let error = L::decode(&bytes[..cut]).unwrap_err().to_string();
            assert!(error.contains("argument "), "{error}");
        }
        let len = bytes.len();
        bytes.push(0);
        let error = L::decode(&bytes).unwrap_err().to_string();
        assert!(error.contains("the end of the arguments"), "{error}");
        len
    }

    #[test]
    fn arguments_come_back() {
        check(&(1u64, 2u64, -50i64), "(u64,u64,i64)");
        check(&(), "()");
        check(&(i64::MIN, i64::MAX, u64::MAX, 0u16), "(i64,i64,u64,u16)");
        check(
            &("text".to_owned(), vec![1u8, 2], true),
            "(String,Vec<u8>,bool)",
        );
        check(&(Some(3u32), None::<i32>), "(Option<u32>,Option<i32>)");
        check(&([7u8; 4], 0.5f64, -1i8), "([u8;4],f64,i8)");
        check(
            &(1u8, 2i16, 3u32, 4i32, 5u64, 6i64, 7u8, 8u8),
            "(u8,i16,u32,i32,u64,i64,u8,u8)",
        );
        check(&(vec![(1u32, -1i8)],), "(Vec<(u32,i8)>)");
    }

    #[test]
    fn a_new_order_takes_few_bytes() {
        let lines: Vec<(u32, u16, u8)> = (0..10).map(|n| (99_990 + n, 3, 7)).collect();
        let len = check(
            &(3u16, 9u8, 2999u32, lines),
            "(u16,u8,u32,Vec<(u32,u16,u8)>)",
        );
        assert!(len <= 56, "{len}");
    }

    #[test]
    fn a_damaged_argument_is_named_by_its_position() {
        let error = <(u64, bool)>::decode(&[1, 2]).unwrap_err().to_string();
        assert!(error.contains("argument 2 of (u64,bool)"), "{error}");
        let huge = [0xff, 0xff, 0xff, 0xff, 0x7f];
        assert!(
            <(Vec<u64>,)>::decode(&huge).is_err(),
            "no room is made for it"
        );
        assert!(<(Vec<u8>,)>::decode(&huge).is_err());
    }
}
