//! Iterators over rows in order, from one partition or merged from all.

mod merge;
mod span;

use std::marker::PhantomData;

use perdura_base::{Error, Result};
use perdura_heap::RowRef;

pub(crate) use merge::merged;
pub use span::{Span, Stretch};

use crate::table::Table;
use crate::view::RowView;

type Source<'s> = Box<dyn DoubleEndedIterator<Item = RowRef<'s>> + 's>;

/// An iterator over rows in encoded form. A caller can advance it from the front and from the back.
///
/// If the rows cannot be read, the only item is the error.
pub struct Views<'s, T> {
    source: Option<Source<'s>>,
    error: Option<Error>,
    reversed: bool,
    of: PhantomData<fn() -> T>,
}

impl<'s, T: Table> Views<'s, T> {
    /// Returns the rows in reversed order.
    #[must_use]
    pub fn rev(self) -> Views<'s, T> {
        Views {
            reversed: !self.reversed,
            ..self
        }
    }

    /// Returns the first row; `None` if there is no row.
    ///
    /// # Errors
    /// The reason why the rows cannot be read.
    pub fn first(mut self) -> Result<Option<RowView<'s, T>>> {
        self.next().transpose()
    }

    /// Returns the number of rows.
    ///
    /// # Errors
    /// The reason why the rows cannot be read.
    pub fn count(self) -> Result<usize> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.source.map_or(0, Iterator::count)),
        }
    }

    fn take(&mut self, front: bool) -> Option<Result<RowView<'s, T>>> {
        if let Some(error) = self.error.take() {
            return Some(Err(error));
        }
        let source = self.source.as_mut()?;
        let row = if front != self.reversed {
            source.next()?
        } else {
            source.next_back()?
        };
        Some(Ok(RowView::new(row.key(), row.value())))
    }
}

impl<'s, T: Table> Iterator for Views<'s, T> {
    type Item = Result<RowView<'s, T>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.take(true)
    }
}

impl<T: Table> DoubleEndedIterator for Views<'_, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.take(false)
    }
}

/// An iterator over decoded rows. A caller can advance it from the front and from the back.
///
/// Each item is a row or an error. An error says that the row is damaged, or why no rows can be read. The methods
/// `collect`, `count` and `rev` replace those of [`Iterator`]. `collect` and `count` return one result for all rows.
pub struct Rows<'s, T>(Views<'s, T>);

impl<'s, T: Table> Rows<'s, T> {
    pub(crate) fn new(source: impl DoubleEndedIterator<Item = RowRef<'s>> + 's) -> Rows<'s, T> {
        Rows::of(Some(Box::new(source)), None)
    }

    pub(crate) fn none() -> Rows<'s, T> {
        Rows::of(None, None)
    }

    pub(crate) fn failed(error: Error) -> Rows<'s, T> {
        Rows::of(None, Some(error))
    }

    fn of(source: Option<Source<'s>>, error: Option<Error>) -> Rows<'s, T> {
        debug_assert!(source.is_none() || error.is_none(), "rows or an error");
        Rows(Views {
            source,
            error,
            reversed: false,
            of: PhantomData,
        })
    }

    /// Returns the rows in encoded form.
    #[must_use]
    pub fn views(self) -> Views<'s, T> {
        self.0
    }

    /// Returns the rows in reversed order.
    #[must_use]
    pub fn rev(self) -> Rows<'s, T> {
        Rows(self.0.rev())
    }

    /// Collects all rows.
    ///
    /// # Errors
    /// The reason why the rows cannot be read, or the error of the first damaged row.
    pub fn collect<B: FromIterator<T>>(self) -> Result<B> {
        Iterator::collect(self)
    }

    /// Returns the number of rows.
    ///
    /// # Errors
    /// The reason why the rows cannot be read.
    pub fn count(self) -> Result<usize> {
        self.0.count()
    }

    /// Returns the first row; `None` if there is no row.
    ///
    /// # Errors
    /// The reason why the rows cannot be read.
    pub fn first(mut self) -> Result<Option<T>> {
        self.next().transpose()
    }
}

impl<T: Table> Iterator for Rows<'_, T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.0.next()?;
        Some(row.and_then(|row| row.decode()))
    }
}

impl<T: Table> DoubleEndedIterator for Rows<'_, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let row = self.0.next_back()?;
        Some(row.and_then(|row| row.decode()))
    }
}
