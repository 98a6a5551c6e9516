//! Elements in rows of their own.

use std::convert::Infallible;
use std::marker::PhantomData;

use perdura_base::{Error, TableId};
use perdura_txn::{Abort, End, Home, RowRef, Shape, Tx};

/// The elements of a collection.
pub struct Elements<'a>(Infallible, PhantomData<RowRef<'a>>);

#[allow(missing_docs)]
impl<'a> Elements<'a> {
    pub fn len(&self) -> u64 {
        match self.0 {}
    }
    pub fn get(&self, _: &[u8]) -> Option<RowRef<'a>> {
        match self.0 {}
    }
    pub fn iter(&self) -> std::iter::Empty<RowRef<'a>> {
        match self.0 {}
    }
    pub fn scan(&self, _: u64, _: usize) -> (Vec<RowRef<'a>>, u64) {
        match self.0 {}
    }
    pub fn random(&self, _: u64) -> Option<RowRef<'a>> {
        match self.0 {}
    }
}

/// What a transaction does with rows of elements.
#[allow(missing_docs)]
pub trait Rows {
    fn elements(&self, _: TableId, _: Home) -> Result<Elements<'_>, Abort> {
        Err(not_yet())
    }
    fn create(&mut self, _: TableId, _: &[u8], _: Shape, _: Option<u64>) -> Result<Home, Abort> {
        Err(not_yet())
    }
    fn element_put(&mut self, _: TableId, _: Home, _: &[u8], _: &[u8]) -> Result<bool, Abort> {
        Err(not_yet())
    }
    fn element_delete(&mut self, _: TableId, _: Home, _: &[u8]) -> Result<bool, Abort> {
        Err(not_yet())
    }
    fn list_push(&mut self, _: TableId, _: Home, _: End, _: &[u8]) -> Result<(), Abort> {
        Err(not_yet())
    }
}

impl Rows for Tx<'_> {}

fn not_yet() -> Abort {
    Abort::Error(Error::Usage(
        "a collection this large is not there yet".into(),
    ))
}
