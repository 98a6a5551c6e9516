//! Steal mode: random histories with crashes, and the paper's counterexamples by name.

mod basics;
mod counterexamples;
mod damage;
mod early_release;
mod harness;
mod histories;
mod levels;
mod marks;
mod refusals;
mod restarts;
mod rows;
mod threads;
mod walk;
