//! [`estimate`]: the workspace of a convolution by the measured ones that are nearest to it.
//!
//! cuDNN's rules are not public, but what a workspace is made of can be seen: copies of the input and the
//! output in another layout, with padded channels, and copies of the weights, one for each part of a sum that
//! is computed in parallel. The nearest measured convolutions vote on what it is made of.
//! `measured_workspaces.txt` says what was measured; `docs/dry-run-accuracy.md` says how well they predict.

use std::sync::OnceLock;

/// The measured convolutions. Its head describes the format.
const MEASURED: &str = include_str!("measured_workspaces.txt");

/// So many convolutions vote, each by the inverse square of its distance and this constant.
const NEAREST: usize = 9;
const SOFTNESS: f64 = 0.3;

/// Bytes are near to others within a twentieth, or within this number.
const NEAR: u64 = 64 << 10;

/// Channels are padded to this number of bytes.
const PADDED_BYTES: u64 = 16;

/// Bounds of a workspace: those of all but 1 % of the measured convolutions are below [`upper_bound`].
const MAX_WEIGHTS: u64 = 128;
const MAX_WEIGHT_BYTES: u64 = 48 << 20;
const MAX_OTHER_BYTES: u64 = 4 << 20;

/// What a convolution computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    /// The gradient of the input.
    Data,
    /// The gradient of the weights.
    Weights,
}

impl Direction {
    const ALL: [Self; 3] = [Self::Forward, Self::Data, Self::Weights];

    /// Returns the name of a direction in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Forward => "fwd",
            Self::Data => "dgrad",
            Self::Weights => "wgrad",
        }
    }
}

/// A convolution. Sizes are batch, channels, and then the image; of weights, filters and channels of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Convolution {
    pub(super) direction: Direction,
    /// Whether only deterministic algorithms are allowed.
    pub(super) is_deterministic: bool,
    /// The number of cuDNN's data type, and the bytes of an element.
    pub(super) data_type: i32,
    pub(super) element: u64,
    pub(super) is_channels_last: bool,
    pub(super) input: Vec<u64>,
    pub(super) output: Vec<u64>,
    pub(super) weights: Vec<u64>,
}

/// The features by which convolutions of one layout differ, in the order of [`Convolution::features`].
const FEATURES: [&str; 24] = [
    "batch",
    "channels",
    "filters",
    "input",
    "output",
    "kernel",
    "stride",
    "groups",
    "depthwise",
    "single",
    "bfloat16",
    "input8",
    "channels8",
    "filters8",
    "output8",
    "positions",
    "weights",
    "deterministic",
    "volume",
    "few-channels",
    "few-filters",
    "group-channels",
    "height",
    "pointwise",
];

type Features = [f64; FEATURES.len()];

/// The number of cuDNN's data type bfloat16.
const BFLOAT16: i32 = 9;

impl Convolution {
    fn groups(&self) -> u64 {
        self.input[1] / self.weights[1].max(1)
    }

    /// Returns the logarithms of sizes, and flags.
    fn features(&self) -> Features {
        let image = |sizes: &[u64]| sizes[2..].iter().product::<u64>();
        let (batch, channels, filters) = (self.input[0], self.input[1], self.output[1]);
        let (input, output, kernel) = (image(&self.input), image(&self.output), image(&self.weights));
        let (height, output_height) = (self.input[2], self.output[2].max(1));
        let log2 = |value: u64| (value.max(1) as f64).log2();
        let flag = |is_set: bool| f64::from(u8::from(is_set));
        let eighths = |value: u64| if value == 0 { 3.0 } else { f64::from(value.trailing_zeros().min(3)) };
        let is_depthwise = self.groups() == channels && channels > 1;
        [
            log2(batch),
            log2(channels),
            log2(filters),
            log2(input),
            log2(output),
            log2(kernel),
            log2((2 * height + output_height) / (2 * output_height)),
            if is_depthwise { 0.0 } else { log2(self.groups()) },
            flag(is_depthwise),
            flag(self.element == 4),
            flag(self.data_type == BFLOAT16),
            eighths(input),
            eighths(channels),
            eighths(filters),
            eighths(output),
            log2(batch.saturating_mul(output)),
            log2(self.weights.iter().copied().fold(1, u64::saturating_mul)),
            flag(self.is_deterministic),
            flag(self.input.len() == 5),
            flag(channels < 4),
            flag(filters < 8),
            log2(self.weights[1]),
            log2(height),
            flag(kernel == 1),
        ]
    }

    /// Returns the bytes of the input, the output and the weights with padded channels.
    fn padded_bytes(&self) -> [u64; 3] {
        let unit = (PADDED_BYTES / self.element).max(1);
        let few = |channels: u64| match channels {
            0..4 if self.element == 2 => 4,
            0..4 => channels,
            _ => channels.next_multiple_of(unit),
        };
        let image = |sizes: &[u64]| sizes[2..].iter().product::<u64>() * self.element;
        let input = self.input[0] * few(self.input[1]) * image(&self.input);
        let output = self.output[0] * few(self.output[1]) * image(&self.output);
        let weights = if self.groups() > 1 {
            self.weights[0] * self.weights[1] * image(&self.weights)
        } else {
            self.weights[0].next_multiple_of(unit) * few(self.weights[1]) * image(&self.weights)
        };
        [input, output, weights]
    }
}

/// What a workspace is made of: copies of the input and the output, and a number of copies of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Parts {
    has_input: bool,
    has_output: bool,
    weights: u64,
}

impl Parts {
    fn parse(text: &str) -> Option<Self> {
        let (copies, weights) = text.split_once('+')?;
        let (has_input, has_output) = (copies.contains('X'), copies.contains('Y'));
        Some(Self { has_input, has_output, weights: weights.parse().ok()? })
    }

    fn bytes(self, convolution: &Convolution) -> u64 {
        let [input, output, weights] = convolution.padded_bytes();
        u64::from(self.has_input) * input + u64::from(self.has_output) * output + self.weights * weights
    }
}

#[derive(Debug)]
struct Measurement {
    features: Features,
    /// By direction.
    parts: [Parts; 3],
}

/// The measured convolutions of a layout.
#[derive(Debug, Default)]
struct Measurements {
    /// How much each feature counts in a distance, by direction.
    weights: [Features; 3],
    all: Vec<Measurement>,
}

impl Measurements {
    /// Returns the parsed table: of contiguous tensors, and of those with the channels last. Lines that
    /// cannot be read are left out.
    fn shared() -> &'static [Self; 2] {
        static PARSED: OnceLock<[Measurements; 2]> = OnceLock::new();
        PARSED.get_or_init(|| {
            let mut parsed = [Self::default(), Self::default()];
            for line in MEASURED.lines().filter(|line| !line.starts_with('#')) {
                let weights_of = |direction: &Direction| {
                    let layout = line.strip_prefix(direction.name())?.strip_prefix(' ')?.starts_with('1');
                    Some((*direction, usize::from(layout)))
                };
                if let Some((direction, layout)) = Direction::ALL.iter().find_map(weights_of) {
                    parsed[layout].weights[direction as usize] = weights(line);
                } else if let Some((convolution, parts)) = measurement(line) {
                    let features = convolution.features();
                    let layout = usize::from(convolution.is_channels_last);
                    parsed[layout].all.push(Measurement { features, parts });
                }
            }
            parsed
        })
    }
}

fn weights(line: &str) -> Features {
    let weight = |feature: &str| {
        let mut words = line.split_whitespace().filter_map(|word| word.split_once('='));
        words.find(|(name, _)| *name == feature).and_then(|(_, weight)| weight.parse().ok()).unwrap_or(0.0)
    };
    FEATURES.map(weight)
}

/// Returns a convolution, and what its workspace is made of in each direction.
fn measurement(line: &str) -> Option<(Convolution, [Parts; 3])> {
    let mut words = line.split_whitespace();
    let mut sizes = || -> Option<Vec<u64>> {
        let sizes = words.next()?.split('x').map(str::parse).collect::<Result<Vec<_>, _>>();
        sizes.ok().filter(|sizes| sizes.len() >= 3)
    };
    let (input, output, weights) = (sizes()?, sizes()?, sizes()?);
    let (data_type, is_channels_last) = (words.next()?.parse().ok()?, words.next()? == "1");
    let is_deterministic = words.next()? == "1";
    let (direction, element) = (Direction::Forward, if data_type == 0 { 4 } else { 2 });
    let measured = Convolution {
        direction,
        is_deterministic,
        data_type,
        element,
        is_channels_last,
        input,
        output,
        weights,
    };
    let mut parts = || Parts::parse(words.next()?);
    Some((measured, [parts()?, parts()?, parts()?]))
}

/// Returns the bytes of the workspace by a vote of the measured convolutions that are nearest. A vote counts
/// for all bytes that are near to its own.
pub(super) fn estimate(convolution: &Convolution) -> u64 {
    let measurements = &Measurements::shared()[usize::from(convolution.is_channels_last)];
    let direction = convolution.direction as usize;
    let (features, weights) = (convolution.features(), &measurements.weights[direction]);
    let mut nearest: Vec<(f64, u64)> = Vec::with_capacity(NEAREST + 1);
    for measured in &measurements.all {
        let differences = features.iter().zip(&measured.features).zip(weights);
        let distance = differences.map(|((one, other), weight)| weight * (one - other).abs()).sum::<f64>();
        let at = nearest.partition_point(|(before, _)| *before <= distance);
        if at < NEAREST {
            nearest.insert(at, (distance, measured.parts[direction].bytes(convolution)));
            nearest.truncate(NEAREST);
        }
    }
    let votes_for = |bytes: u64| {
        let near = nearest.iter().filter(|(_, other)| other.abs_diff(bytes) < (bytes / 20).max(NEAR));
        near.map(|(distance, _)| 1.0 / (distance + SOFTNESS).powi(2)).sum::<f64>()
    };
    // Of equal votes those of the nearest.
    let chosen = nearest.iter().rev().map(|(_, bytes)| *bytes);
    let chosen = chosen.max_by(|one, other| votes_for(*one).total_cmp(&votes_for(*other)));
    chosen.unwrap_or(0).min(upper_bound(convolution))
}

/// Returns bytes that the workspace exceeds in few cases.
pub(super) fn upper_bound(convolution: &Convolution) -> u64 {
    let [input, output, weights] = convolution.padded_bytes();
    let parts = (MAX_WEIGHTS * weights).min(MAX_WEIGHT_BYTES).max(4 * weights);
    2 * (input + output) + parts + MAX_OTHER_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convolution(direction: Direction, sizes: [[u64; 4]; 3]) -> Convolution {
        let [input, output, weights] = sizes.map(|sizes| sizes.to_vec());
        Convolution {
            direction,
            is_deterministic: false,
            data_type: 2,
            element: 2,
            is_channels_last: false,
            input,
            output,
            weights,
        }
    }

    #[test]
    fn every_line_of_the_table_is_read() {
        let measurements = Measurements::shared();
        let lines = MEASURED.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(measurements.iter().map(|layout| layout.all.len()).sum::<usize>() + 6, lines);
        assert!(lines > 10_000, "{lines}");
        let mut weights = measurements.iter().flat_map(|layout| &layout.weights);
        assert!(weights.all(|weights| weights.iter().sum::<f64>() > 10.0));
    }

    #[test]
    fn a_measured_convolution_has_its_workspace() {
        let lines = MEASURED.lines().filter(|line| line.matches('x').count() > 5).step_by(397);
        let (mut same, mut all) = (0, 0);
        for line in lines {
            let (measured, parts) = measurement(line).unwrap();
            for (direction, parts) in Direction::ALL.into_iter().zip(parts) {
                let convolution = Convolution { direction, ..measured.clone() };
                let is_same = estimate(&convolution) == parts.bytes(&convolution);
                (same, all) = (same + usize::from(is_same), all + 1);
            }
        }
        // A few differ by their stride and padding alone, which are not known.
        assert!(all > 80 && same * 10 >= all * 9, "{same} of {all}");
    }

    #[test]
    fn convolutions_of_half_precision_are_copied_to_channels_last() {
        // Measured: 535,824, 3,170,320 and 0 bytes.
        let small = [[4, 32, 19, 19], [4, 128, 19, 19], [128, 32, 3, 3]];
        let deep = [[64, 192, 5, 5], [64, 384, 5, 5], [384, 192, 3, 3]];
        let pointwise = [[64, 224, 36, 36], [64, 128, 36, 36], [128, 224, 1, 1]];
        for (sizes, measured) in [(small, 535_824_u64), (deep, 3_170_320), (pointwise, 0)] {
            let convolution = convolution(Direction::Forward, sizes);
            assert!(estimate(&convolution).abs_diff(measured) < 1000, "{convolution:?}");
            assert!(upper_bound(&convolution) > measured);
        }
    }
}
