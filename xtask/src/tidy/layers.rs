//! The allowed dependencies between crates: a crate depends only on the layers below it.
//!
//! Dependencies for tests are not restricted; most are on `orlop-testkit`.

use super::Violation;
use crate::workspace::Member;

/// Each crate with its direct layers. It may use those, and everything below them.
const LAYERS: [(&str, &[&str]); 23] = [
    ("orlop-core", &[]),
    ("orlop-sync", &["orlop-core"]),
    ("orlop-host", &["orlop-core"]),
    ("orlop-plan", &["orlop-core"]),
    ("orlop-alloc", &["orlop-host", "orlop-sync", "orlop-plan"]),
    ("orlop-context", &["orlop-alloc"]),
    ("orlop-device", &["orlop-context"]),
    ("orlop-tensor", &["orlop-context"]),
    ("orlop-cuda", &["orlop-device"]),
    ("orlop-exec", &["orlop-tensor", "orlop-plan"]),
    ("orlop-kv", &["orlop-context"]),
    ("orlop-trace", &["orlop-context"]),
    ("orlop-lab", &["orlop-trace", "orlop-device", "orlop-kv", "orlop-plan"]),
    ("orlop-onnx", &["orlop-plan", "orlop-exec"]),
    ("orlop-torch", &["orlop-cuda"]),
    ("orlop", &["orlop-cuda", "orlop-exec", "orlop-kv", "orlop-lab", "orlop-onnx"]),
    ("orlop-dryrun", &[]),
    ("orlop-dryrun-cuda", &["orlop-dryrun"]),
    ("orlop-cli", &["orlop", "orlop-dryrun"]),
    ("orlop-race", &[]),
    ("orlop-testkit", &["orlop-tensor", "orlop-device", "orlop-race"]),
    ("orlop-cudasim", &["orlop-race"]),
    ("orlop-cudasim-control", &["orlop-cudasim"]),
];

/// Crates that see only their direct layer: the program uses only what the facade offers.
const SEES_ONE_LAYER: [&str; 1] = ["orlop-cli"];

/// Tools outside the layers, which may use any of them.
const OUTSIDE: [&str; 2] = ["orlop-benches", "xtask"];

/// Checks one member's dependencies within the workspace.
pub(super) fn check(member: &Member) -> Vec<Violation> {
    check_names(&member.name, member.needs())
}

fn check_names<'a>(name: &str, needs: impl Iterator<Item = &'a str>) -> Vec<Violation> {
    if OUTSIDE.contains(&name) {
        return Vec::new();
    }
    let Some(direct) = rests_on(name) else {
        let message = format!("{name} has no row in the table of layers (LAYERS in xtask's tidy)");
        return vec![Violation::error(1, message)];
    };
    let deep = !SEES_ONE_LAYER.contains(&name);
    let allowed = |need: &str| direct.iter().any(|below| *below == need || (deep && is_below(below, need)));
    needs
        .filter(|need| !allowed(need))
        .map(|need| Violation::error(1, format!("{name} may not depend on {need}: it is not a layer below")))
        .collect()
}

fn rests_on(name: &str) -> Option<&'static [&'static str]> {
    LAYERS.iter().find(|(layer, _)| *layer == name).map(|(_, below)| *below)
}

/// Returns `true` if the crate has a row in the table: tools and programs outside the layers have none.
pub(super) fn is_layer(name: &str) -> bool {
    rests_on(name).is_some()
}

/// Returns `true` if `to` is below `from`, directly or not.
pub(super) fn is_below(from: &str, to: &str) -> bool {
    rests_on(from).unwrap_or_default().iter().any(|below| *below == to || is_below(below, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(name: &str, needs: &[&str]) -> usize {
        check_names(name, needs.iter().copied()).len()
    }

    #[test]
    fn layers_below_are_allowed() {
        assert_eq!(refused("orlop-exec", &["orlop-core", "orlop-alloc", "orlop-plan", "orlop-tensor"]), 0);
        assert_eq!(refused("orlop-torch", &["orlop-cuda", "orlop-core"]), 0);
        assert_eq!(
            refused("orlop", &["orlop-core", "orlop-onnx", "orlop-exec", "orlop-trace", "orlop-cuda"]),
            0
        );
        assert_eq!(refused("xtask", &["orlop", "orlop-cudasim"]), 0);
    }

    #[test]
    fn layers_above_and_beside_are_refused() {
        assert_eq!(refused("orlop-core", &["orlop-alloc"]), 1);
        assert_eq!(refused("orlop-plan", &["orlop-alloc"]), 1);
        assert_eq!(refused("orlop-cuda", &["orlop-tensor"]), 1);
        assert_eq!(refused("orlop-alloc", &["orlop-device", "orlop-testkit", "orlop-trace"]), 3);
        assert_eq!(refused("orlop-cli", &["orlop", "orlop-alloc"]), 1);
    }

    #[test]
    fn an_unknown_crate_needs_a_row() {
        assert_eq!(refused("orlop-new", &[]), 1);
    }

    #[test]
    fn the_table_is_ordered_from_below_to_above() {
        for (index, (name, below)) in LAYERS.iter().enumerate() {
            for need in *below {
                assert!(LAYERS[..index].iter().any(|(layer, _)| layer == need), "{name} stands above {need}");
            }
        }
    }
}
