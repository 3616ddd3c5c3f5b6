//! The pages of a plan.

use super::*;

#[test]
fn what_is_outside_a_plan_is_found() {
    let period = StreamPeriod { footprint: vec![10..20, 30..40], ..StreamPeriod::default() };
    let parts = [0..50, 10..50, 15..18, 12..30, 35..60, 40..41];
    let outside = parts.map(|part| period.outside(part));
    assert_eq!(outside, [0..10, 20..30, 18..18, 20..30, 40..60, 40..41]);
}
