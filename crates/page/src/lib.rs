//! The page: header, slots, size classes and XOR differences. Bytes in, bytes out.
