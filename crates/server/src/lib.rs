//! The Redis protocol in front of the engine.
