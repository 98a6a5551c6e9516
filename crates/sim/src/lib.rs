//! The crash simulator: seeded histories, faults, an independent oracle.
