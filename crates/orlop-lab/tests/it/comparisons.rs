//! Comparisons of runs, and the gate.

use crate::analyses::{MIB, Places, history, places};
use crate::mock_allocator::MockAllocator;
use orlop_lab::analyze::NO_SITE;
use orlop_lab::compare::{Diff, Gate, GateMetric, Profile, SiteMatching, Tolerance, UnknownTolerance};
use orlop_trace::history::SiteId;

/// The profile of a run with these live bytes at its peak.
fn profile(places: &Places, held: &[(u64, SiteId)]) -> Profile {
    let mut machine = MockAllocator::default();
    let blocks: Vec<u64> = held.iter().map(|&(bytes, site)| machine.allocate(bytes * MIB, 0, site)).collect();
    if let Some(&last) = blocks.last() {
        machine.free(last);
    }
    Profile::of(&history(&places.sites, machine.history(0, true)), 1)
}

#[test]
fn growth_is_by_site_even_if_its_line_moved() {
    let places = places();
    let before = profile(&places, &[(10, places.model), (3, SiteId::UNKNOWN), (4, places.step)]);
    let after =
        profile(&places, &[(4, places.step), (15, places.moved), (2, places.model), (1, places.moved)]);
    let diff = Diff::of(&before, &after, SiteMatching::Function);
    let device = &diff.devices[0];
    assert_eq!(
        [device.peak_live, device.end_live].map(|amount| (amount.before, amount.after)),
        [(17 * MIB, 22 * MIB), (13 * MIB, 21 * MIB)]
    );
    assert_eq!(device.allocations.growth(), 1);
    let rows: Vec<_> = device
        .sites
        .iter()
        .map(|site| (&*site.name, site.peak.growth() >> 20, site.end.growth() >> 20))
        .collect();
    assert_eq!(rows, [("model.py:12 forward", 8, 7), ("optimizer.py:7 step", 0, 4), (NO_SITE, -3, -3)]);
    let shown: Vec<_> =
        device.sites.iter().map(|site| (site.other_lines, site.is_new, site.is_gone)).collect();
    assert_eq!(shown, [(1, false, false), (0, false, false), (0, false, true)]);

    let lines = Diff::of(&before, &after, SiteMatching::Line);
    let rows: Vec<_> = lines.devices[0].sites.iter().map(|site| (&*site.name, site.is_new)).collect();
    assert_eq!(
        rows,
        [
            ("model.py:12 forward", true),
            ("optimizer.py:7 step", false),
            (NO_SITE, false),
            ("model.py:10 forward", false)
        ]
    );
}

#[test]
fn a_gate_names_the_site_that_broke_it() {
    let places = places();
    let before = profile(&places, &[(100, places.model), (40, places.step)]);
    let tolerance: Tolerance = "2%".parse().expect("a tolerance");
    assert!(Gate::check(&before, &before, Tolerance::default()).passed);
    let near = profile(&places, &[(101, places.model), (40, places.step)]);
    assert!(Gate::check(&near, &before, tolerance).passed);
    assert!(!Gate::check(&near, &before, Tolerance::default()).passed);
    let far = profile(&places, &[(102, places.moved), (38, places.step), (2, places.step), (1, places.step)]);
    let gate = Gate::check(&far, &before, tolerance);
    let broken: Vec<_> =
        gate.breaches().map(|check| (check.metric, &*check.sites[0].name, check.sites.len())).collect();
    assert_eq!(
        broken,
        [
            (GateMetric::PeakLive, "model.py:12 forward", 2),
            (GateMetric::PeakReserved, "model.py:12 forward", 2),
            (GateMetric::Allocations, "optimizer.py:7 step", 1)
        ]
    );
    // Live bytes are equal and reserved bytes grew: no call site grew overall, although they exchanged bytes.
    let mut split = profile(&places, &[(90, places.model), (50, places.step)]);
    let device = &mut split.devices[0];
    device.peak_reserved = device.peak_reserved.map(|reserved| 2 * reserved);
    let reserved = |gate: &Gate| {
        let found = gate.checks.iter().find(|check| check.metric == GateMetric::PeakReserved).cloned();
        found.expect("both tell")
    };
    let check = reserved(&Gate::check(&split, &before, tolerance));
    assert!(!check.passed && check.sites.is_empty(), "{check:?}");
    assert_eq!(i128::from(check.fragmentation), check.change.growth());
    // Live bytes explain a part.
    let mut both = far.clone();
    let device = &mut both.devices[0];
    device.peak_reserved = device.peak_reserved.map(|reserved| 2 * reserved);
    let live = i128::from(both.devices[0].peak_live) - i128::from(before.devices[0].peak_live);
    let check = reserved(&Gate::check(&both, &before, tolerance));
    assert_eq!((i128::from(check.fragmentation), check.sites.len()), (check.change.growth() - live, 2));
    assert_eq!(reserved(&Gate::check(&near, &before, tolerance)).fragmentation, 0);
    // A device that the baseline does not have was not used.
    let mut other = near.clone();
    other.devices[0].device = 1;
    let gate = Gate::check(&other, &before, tolerance);
    let devices: Vec<u32> = gate.breaches().map(|check| check.device).collect();
    assert_eq!(devices, [1, 1, 1]);
}

#[test]
fn tolerances_are_percentages() {
    for (text, shown, limit) in
        [("0%", "0%", 1000), ("1 %", "1%", 1010), ("2.5%", "2.5%", 1025), ("0.25%", "0.25%", 1002)]
    {
        let tolerance: Tolerance = text.parse().expect("a tolerance");
        assert_eq!((tolerance.to_string().as_str(), tolerance.limit(1000)), (shown, limit));
    }
    for text in ["", "1", "%", "1.%", ".5%", "-1%", "1.005%", "1e3%", "99999999999%", "5000000000.5%"] {
        assert_eq!(text.parse::<Tolerance>(), Err(UnknownTolerance), "{text}");
    }
    assert_eq!("9999%".parse::<Tolerance>().map(|tolerance| tolerance.limit(u64::MAX)), Ok(u64::MAX));
}
