//! Annotations of the program as bands over the chart.

use super::block_lifetimes::instant;
use super::stacks::Stacks;
use orlop_trace::history::{Annotation, AnnotationStage, DeviceHistory, EventAction, TextId};
use serde::Serialize;
use std::collections::HashMap;

/// A phase of the program, or a point in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct AnnotationBand {
    /// The instant at which it begins.
    from: u64,
    /// The instant at which it ends.
    to: u64,
    /// The time at which it begins, in nanoseconds since the first event.
    start: u64,
    /// The time at which it ends.
    end: u64,
    text: u64,
}

/// Returns the phases that overlap a device's recording, in order of their beginning. A phase without an end
/// lasts to the end of the recording; one without a beginning starts with it.
pub(super) fn annotation_bands(
    annotations: &[Annotation],
    history: &DeviceHistory,
    stacks: &mut Stacks<'_>,
) -> Vec<AnnotationBand> {
    let first = history.events.iter().map(|event| event.time).min().unwrap_or(0);
    let last = history.events.iter().map(|event| event.time).max().unwrap_or(0);
    let here = |annotation: &&Annotation| annotation.device.is_none_or(|device| device == history.device);
    let mut marks: Vec<(u64, AnnotationStage, TextId)> =
        annotations.iter().filter(here).map(|mark| (mark.time, mark.stage, mark.name)).collect();
    let events = history.events.iter().filter(|event| event.action == EventAction::Annotation);
    marks.extend(events.map(|event| (event.time, AnnotationStage::Instant, event.text)));
    marks.sort_by_key(|&(time, ..)| time);

    let mut phases: Vec<(u64, u64, TextId)> = Vec::new();
    let mut open: HashMap<TextId, Vec<usize>> = HashMap::new();
    for (time, stage, name) in marks {
        match stage {
            AnnotationStage::Begin => {
                open.entry(name).or_default().push(phases.len());
                phases.push((time, u64::MAX, name));
            }
            // Phases of one name nest, as calls do.
            AnnotationStage::End => {
                let begun = open.get_mut(&name).and_then(Vec::pop).and_then(|index| phases.get_mut(index));
                match begun {
                    Some(phase) => phase.1 = time,
                    None => phases.push((0, time, name)),
                }
            }
            _ => phases.push((time, time, name)),
        }
    }
    phases.retain(|&(start, end, _)| end >= first && start <= last);
    phases.sort_by_key(|&(start, ..)| start);
    let at = |time: u64| {
        let passed = history.events.partition_point(|event| event.time <= time);
        passed.checked_sub(1).map_or(0, instant)
    };
    let band = |(start, end, name): (u64, u64, TextId)| {
        let (start, end) = (start.clamp(first, last), end.clamp(first, last));
        AnnotationBand {
            from: at(start.saturating_sub(1)),
            to: at(end),
            start: start - first,
            end: end - first,
            text: stacks.text_id(name),
        }
    };
    phases.into_iter().map(band).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_trace::history::{HistoryEvent, Sites};

    fn bands(marks: &[(u64, AnnotationStage)]) -> Vec<(u64, u64, u64, u64)> {
        let events = (1..=4)
            .map(|time| HistoryEvent { time: 100 * time, ..HistoryEvent::new(EventAction::Snapshot, 0, 0) });
        let history = DeviceHistory::from_events(events.collect());
        let mut sites = Sites::default();
        let name = sites.text("step");
        let mark = |&(time, stage)| Annotation { time, device: None, name, stage };
        let annotations: Vec<Annotation> = marks.iter().map(mark).collect();
        let bands = annotation_bands(&annotations, &history, &mut Stacks::new(&sites));
        bands.iter().map(|band| (band.from, band.to, band.start, band.end)).collect()
    }

    #[test]
    fn phases_of_one_name_nest() {
        let marks = [
            (150, AnnotationStage::Begin),
            (200, AnnotationStage::Begin),
            (250, AnnotationStage::End),
            (350, AnnotationStage::End),
        ];
        assert_eq!(bands(&marks), [(1, 3, 50, 250), (1, 2, 100, 150)]);
    }

    #[test]
    fn a_phase_without_an_end_lasts_to_the_end() {
        assert_eq!(bands(&[(300, AnnotationStage::Begin)]), [(2, 4, 200, 300)]);
        assert_eq!(bands(&[(300, AnnotationStage::End)]), [(0, 3, 0, 200)]);
    }

    #[test]
    fn phases_outside_the_recording_are_omitted() {
        assert_eq!(
            bands(&[(5, AnnotationStage::Begin), (50, AnnotationStage::End), (500, AnnotationStage::Begin)]),
            []
        );
        assert_eq!(bands(&[(5, AnnotationStage::Begin), (u64::MAX, AnnotationStage::End)]), [(0, 4, 0, 300)]);
    }
}
