//! The errors that report damage in a page.

use perdura_base::{Error, PageId};
use perdura_page::layout::PAGE_BYTES;

use crate::pages::Pages;

/// Returns the error for damage in a local page, or in a slot of that page if `slot` is given.
pub(crate) fn damaged(
    pages: &Pages,
    local: u32,
    slot: Option<usize>,
    expected: &str,
    found: &str,
) -> Error {
    damage_in(pages.page_id(local), slot, expected, found)
}

/// Returns the error for damage in a page, or in a slot of that page if `slot` is given.
pub(crate) fn damage_in(page: PageId, slot: Option<usize>, expected: &str, found: &str) -> Error {
    let place = slot.map_or(format!("page {page}"), |slot| {
        format!("page {page} slot {slot}")
    });
    let page_bytes = u64::try_from(PAGE_BYTES).unwrap_or(u64::MAX);
    Error::corrupt(
        format!("heap {place}"),
        u64::from(page.0) * page_bytes,
        expected,
        found,
        "The page cannot be used. Restart from the older image or a backup.",
    )
}
