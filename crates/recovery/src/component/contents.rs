//! A key as a client reads it, in the lists of [`Data::contents`](super::Data::contents).

use std::borrow::Cow;

use perdura_heap::Shape;

/// A key with an expiry time and a value.
pub struct KeyContent<'a> {
    /// The key.
    pub key: Cow<'a, [u8]>,
    /// The key's expiry time, milliseconds since 1970. `None`: never.
    pub expiry_ms: Option<u64>,
    /// Its value. `None`: the row does not parse, or it is the head of a collection that does not exist.
    pub value: Option<Value<'a>>,
}

/// A value.
pub enum Value<'a> {
    /// A string.
    String(Cow<'a, [u8]>),
    /// A collection in one row. The layer above the component defines the packed form.
    Packed(Shape, Cow<'a, [u8]>),
    /// A row of a tree.
    Row(&'a [u8]),
    /// A collection with a row for each element.
    Elements(Elements<'a>),
}

/// A collection's elements.
pub struct Elements<'a> {
    /// The collection's shape.
    pub shape: Shape,
    /// The number of its elements.
    pub count: u64,
    /// The elements. Elements of a list come in the list's order, elements of other collections in any order.
    pub each: Box<dyn Iterator<Item = Element<'a>> + 'a>,
}

/// An element.
pub struct Element<'a> {
    /// The field of a hash, the item of a list, or the member of a set or sorted set.
    pub name: Cow<'a, [u8]>,
    /// The value of a hash's field; empty otherwise.
    pub value: Cow<'a, [u8]>,
    /// The score of a member of a sorted set; 0 otherwise.
    pub score: f64,
}
