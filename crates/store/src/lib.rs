//! The data component: memory-resident slotted pages, partitions, hash and ordered indexes.
