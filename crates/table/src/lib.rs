//! Typed tables, which transactions read and write, and deterministic procedures over typed tables.
//!
//! A table is declared with [`table!`]: a struct, its key, its indexes. The encoding of rows and keys
//! (`docs/formats/typed-row.md`) allows a reader to find a column without decoding the columns before it. The schema is
//! also available as data. The catalog holds it, and a restart builds the indexes from it, without the program.
//!
//! | module | one idea |
//! |---|---|
//! | [`types`], `column` | the types of columns, as data and in Rust |
//! | [`key`], [`prefix`] | keys whose byte order is the order of their columns; typed prefixes of keys |
//! | [`layout`] | the layout of the columns in a value |
//! | [`schema`], `derive`, `patch` | a table's schema as data; index keys and column patches made from the schema |
//! | [`declare`], `macros`, `table`, [`view`] | a table in a program; rows as structs, views and edits |
//! | [`args`], `procedure` | procedures, their arguments, the partitions that they declare |
//! | [`registry`], [`cx`], [`rows`] | the tables of an open database; the verbs; rows in order |

pub mod args;
pub mod column;
pub mod cx;
pub mod declare;
pub mod derive;
pub mod key;
pub mod layout;
mod macros;
mod patch;
pub mod prefix;
pub mod procedure;
pub mod registry;
pub mod rows;
pub mod schema;
pub mod table;
pub mod types;
pub mod view;

pub use args::{Arg, ArgList};
pub use column::{AsColumn, ColumnType, KeyType, RowId};
pub use cx::Cx;
pub use declare::{Addressing, Order};
pub use key::KeyBytes;
pub use perdura_base::{Error, PartitionId, Result};
pub use perdura_heap::Geometry;
pub use perdura_heap::ahead::AHEAD_KEYS;
pub use prefix::{Columns, Prefix, WholeKey};
pub use procedure::{Abort, Homes, Procedure};
pub use registry::Registry;
pub use rows::{Rows, Span, Views};
pub use schema::Schema;
pub use table::{Column, Index, KeyColumn, Table};
pub use view::{RowEdit, RowView};
