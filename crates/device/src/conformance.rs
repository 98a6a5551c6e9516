//! What every disk must do alike.
