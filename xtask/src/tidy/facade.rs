//! Checks that the facade has every layer below it, and a feature for each of theirs.

use super::{Violation, layers};
use crate::workspace::Member;

/// The crate that re-exports the others.
pub(super) const FACADE: &str = "orlop";

/// Features that the facade does not repeat.
const OWN: [(&str, &str); 2] = [
    // Runs the layer's tests in its own memory.
    ("orlop-alloc", "self-hosted"),
    // Joins two layers: `exec` has it only if `onnx` is there too.
    ("orlop-onnx", "exec"),
];

/// Checks the facade's manifest against those of the layers.
pub(super) fn check(facade: &Member, members: &[Member]) -> Vec<Violation> {
    let layers: Vec<(&str, Vec<&str>)> = members
        .iter()
        .filter(|member| layers::is_below(FACADE, &member.name))
        .map(|member| (member.name.as_str(), member.features()))
        .collect();
    let needs: Vec<&str> = facade.needs().collect();
    let passes =
        |feature: &str, passed: &str| facade.enables(feature).iter().any(|enabled| enabled == passed);
    lacks(&needs, &layers, &passes)
        .into_iter()
        .map(|what| Violation::error(1, format!("{FACADE} has no {what}")))
        .collect()
}

/// Returns what a facade with these dependencies lacks of these layers.
fn lacks(needs: &[&str], layers: &[(&str, Vec<&str>)], passes: &dyn Fn(&str, &str) -> bool) -> Vec<String> {
    let mut lacks = Vec::new();
    for (layer, features) in layers {
        if !needs.contains(layer) {
            lacks.push(format!("dependency on {layer}, which is a layer below it"));
            continue;
        }
        // A weak feature (`layer?/feature`) has no effect unless the layer is enabled elsewhere.
        let missing = features
            .iter()
            .filter(|feature| !OWN.contains(&(layer, feature)))
            .filter(|feature| !passes(feature, &format!("{layer}/{feature}")));
        lacks.extend(missing.map(|feature| format!("feature {feature:?} with \"{layer}/{feature}\"")));
    }
    lacks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(needs: &[&str], features: &[&str], passed: &[(&str, &str)]) -> Vec<String> {
        let layers = [("orlop-core", Vec::new()), ("orlop-alloc", features.to_vec())];
        lacks(needs, &layers, &|feature, to| passed.contains(&(feature, to)))
    }

    const BOTH: [&str; 2] = ["orlop-core", "orlop-alloc"];

    #[test]
    fn every_feature_is_passed_on_under_its_name() {
        let features = ["jemalloc", "mimalloc"];
        let all = [("jemalloc", "orlop-alloc/jemalloc"), ("mimalloc", "orlop-alloc/mimalloc")];
        assert!(found(&BOTH, &features, &all).is_empty());
        assert_eq!(
            found(&BOTH, &features, &all[..1]),
            ["feature \"mimalloc\" with \"orlop-alloc/mimalloc\""]
        );
        // Under another name it does not count.
        assert_eq!(found(&BOTH, &["jemalloc"], &[("je", "orlop-alloc/jemalloc")]).len(), 1);
        assert_eq!(found(&BOTH, &["jemalloc"], &[("jemalloc", "orlop-alloc?/jemalloc")]).len(), 1);
    }

    #[test]
    fn every_layer_is_there_and_what_is_its_own_is_left_alone() {
        assert!(found(&BOTH, &["self-hosted"], &[]).is_empty());
        assert_eq!(
            found(&["orlop-core"], &["jemalloc"], &[]),
            ["dependency on orlop-alloc, which is a layer below it"]
        );
    }
}
