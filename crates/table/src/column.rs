//! The Rust types that a column can have: how they are encoded, read in place and ordered.

use std::fmt;

use perdura_base::PartitionId;
use perdura_base::cursor::{Reader, Writer};
use perdura_heap::Geometry;

use crate::key::{KeyBytes, Placement, float_of_order, order_of_float, put_escaped, take_escaped};
use crate::types::{Base, Type, normal};

/// A type that a column can have.
pub trait ColumnType: Sized + 'static {
    /// The type as data.
    const TYPE: Type;
    /// A borrowed form of the column's value, which readers get.
    type View<'a>: Copy + fmt::Debug;
    /// Returns a view of the value, without a copy.
    fn view(&self) -> Self::View<'_>;
    /// Returns an owned copy of a viewed value.
    fn own(view: Self::View<'_>) -> Self;
    /// Appends the column in the encoding of rows.
    fn put<W: Writer>(view: Self::View<'_>, out: &mut W);
    /// Reads exactly the column's bytes; `None` if they are malformed.
    fn read(bytes: &[u8]) -> Option<Self::View<'_>>;
}

/// A type that a key column can have.
pub trait KeyType: ColumnType {
    /// Appends the column in the encoding of keys.
    fn put_key<W: Writer>(view: Self::View<'_>, out: &mut W);
    /// Reads the next column of a key; `None` if it is malformed.
    fn take_key(r: &mut Reader<'_>) -> Option<Self>;
    /// Returns the partition of the rows with this value in the first key column.
    fn home(view: Self::View<'_>, geometry: &Geometry) -> PartitionId {
        let mut key = KeyBytes::new();
        Self::put_key(view, &mut key);
        Placement::Hash(key.as_slice()).home(geometry)
    }
}

/// A form in which a caller may pass a column's value: the value itself, or a reference to the value. For `String` and
/// `Vec<u8>`, also a slice.
pub trait AsColumn<C: ColumnType> {
    /// Returns a view of the value, without a copy.
    fn as_column(&self) -> C::View<'_>;
}

impl<C: ColumnType> AsColumn<C> for C {
    #[inline]
    fn as_column(&self) -> C::View<'_> {
        self.view()
    }
}

impl<C: ColumnType> AsColumn<C> for &C {
    #[inline]
    fn as_column(&self) -> C::View<'_> {
        (*self).view()
    }
}

impl AsColumn<String> for &str {
    #[inline]
    fn as_column(&self) -> &str {
        self
    }
}

impl AsColumn<Vec<u8>> for &[u8] {
    #[inline]
    fn as_column(&self) -> &[u8] {
        self
    }
}

macro_rules! integer {
    ($($type:ty, $base:ident, $sign:expr, $wide:ty;)*) => {$(
        impl ColumnType for $type {
            const TYPE: Type = Type::plain(Base::$base);
            type View<'a> = $type;
            #[inline]
            fn view(&self) -> $type {
                *self
            }
            #[inline]
            fn own(view: $type) -> $type {
                view
            }
            #[inline]
            fn put<W: Writer>(view: $type, out: &mut W) {
                out.put(&view.to_le_bytes());
            }
            #[inline]
            fn read(bytes: &[u8]) -> Option<$type> {
                Some(<$type>::from_le_bytes(bytes.try_into().ok()?))
            }
        }

        impl KeyType for $type {
            #[inline]
            fn put_key<W: Writer>(view: $type, out: &mut W) {
                out.put(&(view ^ $sign).to_be_bytes());
            }
            #[inline]
            fn take_key(r: &mut Reader<'_>) -> Option<$type> {
                Some(<$type>::from_be_bytes(r.array()?) ^ $sign)
            }
            #[inline]
            fn home(view: $type, geometry: &Geometry) -> PartitionId {
                let wide = <$wide>::from(view);
                Placement::Number(u64::from_le_bytes(wide.to_le_bytes())).home(geometry)
            }
        }
    )*};
}

integer! {
    u8, U8, 0, u64;
    u16, U16, 0, u64;
    u32, U32, 0, u64;
    u64, U64, 0, u64;
    i8, I8, i8::MIN, i64;
    i16, I16, i16::MIN, i64;
    i32, I32, i32::MIN, i64;
    i64, I64, i64::MIN, i64;
}

impl ColumnType for bool {
    const TYPE: Type = Type::plain(Base::Bool);
    type View<'a> = bool;
    #[inline]
    fn view(&self) -> bool {
        *self
    }
    #[inline]
    fn own(view: bool) -> bool {
        view
    }
    #[inline]
    fn put<W: Writer>(view: bool, out: &mut W) {
        out.put_u8(u8::from(view));
    }
    #[inline]
    fn read(bytes: &[u8]) -> Option<bool> {
        match bytes {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }
}

impl KeyType for bool {
    fn put_key<W: Writer>(view: bool, out: &mut W) {
        Self::put(view, out);
    }
    fn take_key(r: &mut Reader<'_>) -> Option<bool> {
        Self::read(r.bytes(1)?)
    }
    fn home(view: bool, geometry: &Geometry) -> PartitionId {
        Placement::Number(u64::from(view)).home(geometry)
    }
}

impl ColumnType for f64 {
    const TYPE: Type = Type::plain(Base::F64);
    type View<'a> = f64;
    #[inline]
    fn view(&self) -> f64 {
        *self
    }
    #[inline]
    fn own(view: f64) -> f64 {
        view
    }
    #[inline]
    fn put<W: Writer>(view: f64, out: &mut W) {
        out.put(&normal(view).to_le_bytes());
    }
    #[inline]
    fn read(bytes: &[u8]) -> Option<f64> {
        Some(f64::from_le_bytes(bytes.try_into().ok()?))
    }
}

impl KeyType for f64 {
    fn put_key<W: Writer>(view: f64, out: &mut W) {
        out.put(&order_of_float(view).to_be_bytes());
    }
    fn take_key(r: &mut Reader<'_>) -> Option<f64> {
        Some(float_of_order(u64::from_be_bytes(r.array()?)))
    }
}

impl<const N: usize> ColumnType for [u8; N] {
    const TYPE: Type = Type::plain(Base::Array(N));
    type View<'a> = &'a [u8; N];
    #[inline]
    fn view(&self) -> &[u8; N] {
        self
    }
    #[inline]
    fn own(view: &[u8; N]) -> [u8; N] {
        *view
    }
    #[inline]
    fn put<W: Writer>(view: &[u8; N], out: &mut W) {
        out.put(view);
    }
    #[inline]
    fn read(bytes: &[u8]) -> Option<&[u8; N]> {
        bytes.try_into().ok()
    }
}

impl<const N: usize> KeyType for [u8; N] {
    fn put_key<W: Writer>(view: &[u8; N], out: &mut W) {
        out.put(view);
    }
    fn take_key(r: &mut Reader<'_>) -> Option<[u8; N]> {
        r.array()
    }
}

impl ColumnType for String {
    const TYPE: Type = Type::plain(Base::String);
    type View<'a> = &'a str;
    #[inline]
    fn view(&self) -> &str {
        self
    }
    #[inline]
    fn own(view: &str) -> String {
        view.to_owned()
    }
    #[inline]
    fn put<W: Writer>(view: &str, out: &mut W) {
        out.put(view.as_bytes());
    }
    #[inline]
    fn read(bytes: &[u8]) -> Option<&str> {
        std::str::from_utf8(bytes).ok()
    }
}

impl KeyType for String {
    fn put_key<W: Writer>(view: &str, out: &mut W) {
        put_escaped(view.as_bytes(), out);
    }
    fn take_key(r: &mut Reader<'_>) -> Option<String> {
        String::from_utf8(take_escaped(r)?).ok()
    }
}

impl ColumnType for Vec<u8> {
    const TYPE: Type = Type::plain(Base::Bytes);
    type View<'a> = &'a [u8];
    #[inline]
    fn view(&self) -> &[u8] {
        self
    }
    #[inline]
    fn own(view: &[u8]) -> Vec<u8> {
        view.to_vec()
    }
    #[inline]
    fn put<W: Writer>(view: &[u8], out: &mut W) {
        out.put(view);
    }
    #[inline]
    fn read(bytes: &[u8]) -> Option<&[u8]> {
        Some(bytes)
    }
}

impl KeyType for Vec<u8> {
    fn put_key<W: Writer>(view: &[u8], out: &mut W) {
        put_escaped(view, out);
    }
    fn take_key(r: &mut Reader<'_>) -> Option<Vec<u8>> {
        take_escaped(r)
    }
}

/// A type of fixed length. Only these types can be optional.
pub trait FixedType: ColumnType {}

macro_rules! fixed {
    ($($type:ty),*) => {$(impl FixedType for $type {})*};
}

fixed!(bool, u8, u16, u32, u64, i8, i16, i32, i64, f64);
impl<const N: usize> FixedType for [u8; N] {}

impl<C: FixedType> ColumnType for Option<C> {
    const TYPE: Type = Type {
        base: C::TYPE.base,
        optional: true,
    };
    type View<'a> = Option<C::View<'a>>;
    #[inline]
    fn view(&self) -> Option<C::View<'_>> {
        self.as_ref().map(C::view)
    }
    #[inline]
    fn own(view: Option<C::View<'_>>) -> Option<C> {
        view.map(C::own)
    }
    fn put<W: Writer>(view: Option<C::View<'_>>, out: &mut W) {
        out.put_u8(u8::from(view.is_some()));
        match view {
            Some(view) => C::put(view, out),
            None => out.put_zeros(C::TYPE.width().unwrap_or(0)),
        }
    }
    fn read(bytes: &[u8]) -> Option<Option<C::View<'_>>> {
        match bytes.split_first()? {
            (1, rest) => C::read(rest).map(Some),
            (0, rest) => rest.iter().all(|byte| *byte == 0).then_some(None),
            _ => None,
        }
    }
}

/// The hidden key of a row in a table without key columns. Its low eight bits are the row's partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId(pub u64);

impl RowId {
    /// Returns the id with this number and partition; `None` if `number` is too large. The caller must use each number
    /// only once in a partition.
    #[must_use]
    pub fn new(number: u64, home: PartitionId) -> Option<RowId> {
        let shifted = number.checked_mul(1 << 8)?;
        let id = RowId(shifted | u64::from(home.0 & 0xff));
        debug_assert_eq!(id.partition(), home, "at most 256 partitions");
        Some(id)
    }

    /// Returns the partition of the row.
    #[must_use]
    pub fn partition(self) -> PartitionId {
        PartitionId(u16::from(self.0.to_le_bytes()[0]))
    }
}

impl ColumnType for RowId {
    const TYPE: Type = Type::plain(Base::U64);
    type View<'a> = RowId;
    fn view(&self) -> RowId {
        *self
    }
    fn own(view: RowId) -> RowId {
        view
    }
    fn put<W: Writer>(view: RowId, out: &mut W) {
        u64::put(view.0, out);
    }
    fn read(bytes: &[u8]) -> Option<RowId> {
        u64::read(bytes).map(RowId)
    }
}

impl KeyType for RowId {
    fn put_key<W: Writer>(view: RowId, out: &mut W) {
        u64::put_key(view.0, out);
    }
    fn take_key(r: &mut Reader<'_>) -> Option<RowId> {
        u64::take_key(r).map(RowId)
    }
    fn home(view: RowId, _geometry: &Geometry) -> PartitionId {
        view.partition()
    }
}

#[cfg(test)]
mod tests;
