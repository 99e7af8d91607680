//! Memory components.
