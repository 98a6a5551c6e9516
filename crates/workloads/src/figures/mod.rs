//! The papers' figures, made here: data, picture, and a verdict on each claim.
//!
//! | module | one idea |
//! |---|---|
//! | [`figure`] | what a reproduced figure is, and the files it becomes |
//! | [`claim`] | what is claimed, what came out, whether it holds |
//! | [`plot`] | lines and stacked bars as SVG |
//! | `svg` | the shapes they are made of |
//! | [`schedule`] | what more cores than this machine has would do, by list scheduling |
//! | [`num`] | round steps, ratios, digits |

pub mod claim;
pub mod figure;
pub mod num;
pub mod plot;
pub mod schedule;
mod svg;

pub use claim::{Claim, Target, Verdict};
pub use figure::Figure;
