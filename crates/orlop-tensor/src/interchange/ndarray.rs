//! To and from `ndarray`'s arrays.
