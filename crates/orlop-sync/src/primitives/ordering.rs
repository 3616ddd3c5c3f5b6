//! Named memory orderings, so that a test can weaken each.
//!
//! `ordering!("counters.last", AcqRel)` is `Ordering::AcqRel`. Under loom the environment variable
//! `ORLOP_LOOM_MUTATE=counters.last=Acquire` replaces it by the weaker ordering: `cargo xtask loom --mutate`
//! does that for each name in turn and expects a loom test to fail. An ordering whose weakening no test
//! detects is either too strong or untested.

/// `Ordering::$ordering`, or under loom the ordering that `ORLOP_LOOM_MUTATE` replaces it by.
#[doc(hidden)]
#[macro_export]
macro_rules! ordering {
    ($name:literal, $ordering:ident) => {{
        #[cfg(loom)]
        {
            $crate::mutated($name, $crate::atomic::Ordering::$ordering)
        }
        #[cfg(not(loom))]
        {
            $crate::atomic::Ordering::$ordering
        }
    }};
}

#[cfg(loom)]
#[doc(hidden)]
pub(super) mod mutation {
    use loom::sync::atomic::Ordering;
    use std::sync::OnceLock;

    /// Returns the ordering to use for `name`: `declared`, unless the environment weakens it.
    pub fn mutated(name: &str, declared: Ordering) -> Ordering {
        static CHOSEN: OnceLock<Option<(String, Ordering)>> = OnceLock::new();
        let chosen = CHOSEN.get_or_init(|| {
            let text = std::env::var("ORLOP_LOOM_MUTATE").ok()?;
            let (name, ordering) = text.rsplit_once('=')?;
            let ordering = match ordering {
                "Relaxed" => Ordering::Relaxed,
                "Acquire" => Ordering::Acquire,
                "Release" => Ordering::Release,
                "AcqRel" => Ordering::AcqRel,
                other => panic!("ORLOP_LOOM_MUTATE: unknown ordering {other}"),
            };
            Some((name.to_owned(), ordering))
        });
        match chosen {
            Some((chosen, weaker)) if chosen == name => *weaker,
            _ => declared,
        }
    }
}
