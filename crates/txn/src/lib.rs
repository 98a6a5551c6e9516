//! The transaction component: virtual partitions, executor-mode transactions, tickets.
