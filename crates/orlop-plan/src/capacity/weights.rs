//! Where searches fail.
//!
//! A section whose spans often do not fit is where decisions matter, so that they are made there first:
//! weights of constraints as in Boussemart, Hemery, Lecoutre and Sais, "Boosting Systematic Search by
//! Weighting Constraints", ECAI 2004.

/// The bits of a fraction.
pub(super) const FRACTION: u32 = 16;

/// The weight of one failure, which is also the weight of a section without any.
const UNIT: u32 = 16;

/// The weight that a search leaves to the next one, at most.
const KEPT: u32 = 18 * UNIT;

/// How often sections did not fit, and spans were the last that was one too many there.
#[derive(Debug, Clone)]
pub(super) struct ConflictWeights {
    sections: Vec<u32>,
    spans: Vec<u32>,
}

impl ConflictWeights {
    pub(super) fn new(sections: usize, spans: usize) -> Self {
        Self { sections: vec![UNIT; sections], spans: vec![UNIT; spans] }
    }

    /// Counts a section that did not fit.
    pub(super) fn add_section(&mut self, section: usize) {
        self.sections[section] = self.sections[section].saturating_add(UNIT);
    }

    /// Counts a span that was one too many.
    pub(super) fn add_span(&mut self, span: usize) {
        self.spans[span] = self.spans[span].saturating_add(UNIT);
    }

    /// Reduces all weights to what the next search begins with.
    pub(super) fn fade(&mut self) {
        for weights in [&mut self.sections, &mut self.spans] {
            let largest = u64::from(weights.iter().copied().max().unwrap_or(UNIT));
            for weight in weights {
                let kept = u64::from(*weight) * u64::from(KEPT) / largest;
                *weight = UNIT + u32::try_from(kept).unwrap_or(KEPT);
            }
        }
    }

    /// Returns a number divided by the weight of a section.
    pub(super) fn per_weight(&self, number: u64, section: usize) -> u64 {
        number * u64::from(UNIT) / u64::from(self.sections[section])
    }

    /// Returns the weights of the spans as parts of the largest.
    pub(super) fn of_spans(&self) -> impl Iterator<Item = u64> {
        let largest = u64::from(self.spans.iter().copied().max().unwrap_or(UNIT));
        self.spans.iter().map(move |weight| (u64::from(*weight) << FRACTION) / largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_searches_weigh_most_and_no_weight_grows_without_bound() {
        let mut weights = ConflictWeights::new(3, 1);
        assert_eq!(weights.per_weight(1 << FRACTION, 0), 1 << FRACTION);
        for _ in 0..100 {
            (0..1000).for_each(|_| weights.add_section(0));
            weights.fade();
        }
        (0..1000).for_each(|_| weights.add_section(1));
        weights.fade();
        let [first, second, third] = [0, 1, 2].map(|section| weights.per_weight(1 << FRACTION, section));
        assert!(second < first && first < third, "{first} {second} {third}");
        assert_eq!(second, (1 << FRACTION) / 19);
    }
}
