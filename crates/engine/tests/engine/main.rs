//! The engine from outside: what a user of the crate relies on.

mod archived;
mod archiver;
mod archiving;
mod collection_log;
mod collections;
mod core_steps;
mod damage;
mod directories;
mod divergence;
mod drafts;
mod dropped;
mod embedded;
mod faults;
mod faulty;
mod faulty_disk;
mod log_end;
mod long_rows;
mod ordered;
mod restore;
mod restore_methods;
mod salvage_typed;
mod sections;
mod settings;
mod typed;
mod typed_parts;
mod with_threads;
