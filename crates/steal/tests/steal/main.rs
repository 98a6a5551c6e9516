//! Steal mode: random histories with crashes, and the paper's counterexamples by name.

mod basics;
mod counterexamples;
mod early_release;
mod harness;
mod histories;
mod levels;
mod marks;
mod refusals;
mod threads;
mod walk;
