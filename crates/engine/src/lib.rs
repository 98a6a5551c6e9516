//! The embeddable database: wires the parts together and drives the background work.
