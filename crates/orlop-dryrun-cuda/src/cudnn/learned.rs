//! [`estimate`]: the workspace of a convolution by decision trees that were learned from measurements.
//!
//! cuDNN's rules are not public, but what a workspace is made of can be seen: copies of the input and the
//! output in another layout, with padded channels, and copies of the weights, one for each part of a sum that
//! is computed in parallel. The trees choose among these. `learned_workspaces.txt` says what they were
//! learned from; `docs/dry-run-accuracy.md` says how well they predict.

use std::sync::OnceLock;

/// The trees. Its head describes the format.
const TREES: &str = include_str!("learned_workspaces.txt");

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
    /// The number of cuDNN's data type, and the bytes of an element.
    pub(super) data_type: i32,
    pub(super) element: u64,
    pub(super) is_channels_last: bool,
    pub(super) input: Vec<u64>,
    pub(super) output: Vec<u64>,
    pub(super) weights: Vec<u64>,
}

/// The features of a tree, in the order of [`Convolution::features`].
const FEATURES: [&str; 17] = [
    "batch",
    "channels",
    "filters",
    "input",
    "output",
    "kernel",
    "stride",
    "groups",
    "weights",
    "positions",
    "depthwise",
    "single",
    "last",
    "input8",
    "channels8",
    "filters8",
    "output8",
];

impl Convolution {
    fn groups(&self) -> u64 {
        self.input[1] / self.weights[1].max(1)
    }

    fn features(&self) -> [u64; FEATURES.len()] {
        let image = |sizes: &[u64]| sizes[2..].iter().product::<u64>();
        let (batch, channels, filters) = (self.input[0], self.input[1], self.output[1]);
        let (input, output, kernel) = (image(&self.input), image(&self.output), image(&self.weights));
        let (height, output_height) = (self.input[2], self.output[2].max(1));
        let eighths = |value: u64| if value == 0 { 8 } else { 1 << value.trailing_zeros().min(3) };
        [
            batch,
            channels,
            filters,
            input,
            output,
            kernel,
            (2 * height + output_height) / (2 * output_height),
            self.groups(),
            self.weights.iter().product(),
            batch * output,
            u64::from(self.groups() == channels && channels > 1),
            u64::from(self.element == 4),
            u64::from(self.is_channels_last),
            eighths(input),
            eighths(channels),
            eighths(filters),
            eighths(output),
        ]
    }

    /// Returns the bytes of the input, the output and the weights with padded channels.
    fn padded_bytes(&self) -> [u64; 3] {
        let unit = (PADDED_BYTES / self.element).max(1);
        let few = |channels: u64| {
            if channels < 4 && self.element == 2 { 4 } else { channels.next_multiple_of(unit) }
        };
        let image = |sizes: &[u64]| sizes[2..].iter().product::<u64>() * self.element;
        let input = self.input[0] * few(self.input[1]) * image(&self.input);
        let output = self.output[0] * self.output[1].next_multiple_of(unit) * image(&self.output);
        let weights = if self.groups() > 1 {
            self.weights[0] * self.weights[1] * image(&self.weights)
        } else {
            self.weights[0].next_multiple_of(unit) * few(self.weights[1]) * image(&self.weights)
        };
        [input, output, weights]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    /// The left subtree, which is the next node, is taken up to this value of a feature; else the right one.
    Split {
        feature: usize,
        max: u64,
        right: usize,
    },
    Leaf {
        has_input: bool,
        has_output: bool,
        weights: u64,
    },
}

type Tree = Vec<Node>;

/// Parses a subtree in preorder.
fn parse<'a>(tokens: &mut impl Iterator<Item = &'a str>, tree: &mut Tree) -> Option<()> {
    let token = tokens.next()?;
    if let Some((name, max)) = token.split_once("<=") {
        let feature = FEATURES.iter().position(|feature| *feature == name)?;
        let (at, max) = (tree.len(), max.parse().ok()?);
        tree.push(Node::Split { feature, max, right: 0 });
        parse(tokens, tree)?;
        tree[at] = Node::Split { feature, max, right: tree.len() };
        return parse(tokens, tree);
    }
    let (copies, weights) = token.split_once('+')?;
    let (has_input, has_output) = (copies.contains('X'), copies.contains('Y'));
    tree.push(Node::Leaf { has_input, has_output, weights: weights.parse().ok()? });
    Some(())
}

/// Returns the tree of a direction; an empty one if the text has none.
fn tree(direction: Direction) -> &'static Tree {
    static PARSED: OnceLock<[Tree; 3]> = OnceLock::new();
    let parsed = PARSED.get_or_init(|| {
        [Direction::Forward, Direction::Data, Direction::Weights].map(|direction| {
            let lines = TREES.lines().skip_while(|line| *line != direction.name()).skip(1);
            let mut tree = Tree::new();
            let complete = parse(&mut lines.flat_map(str::split_whitespace), &mut tree);
            complete.map(|()| tree).unwrap_or_default()
        })
    });
    &parsed[direction as usize]
}

/// Returns the bytes of the workspace by the tree of the direction.
pub(super) fn estimate(convolution: &Convolution) -> u64 {
    let (tree, features) = (tree(convolution.direction), convolution.features());
    let mut at = 0;
    loop {
        match tree.get(at) {
            Some(&Node::Split { feature, max, right }) => {
                at = if features[feature] <= max { at + 1 } else { right };
            }
            Some(&Node::Leaf { has_input, has_output, weights }) => {
                let [input, output, one] = convolution.padded_bytes();
                return u64::from(has_input) * input + u64::from(has_output) * output + weights * one;
            }
            None => return 0,
        }
    }
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
        Convolution { direction, data_type: 2, element: 2, is_channels_last: false, input, output, weights }
    }

    #[test]
    fn the_trees_are_complete() {
        for direction in [Direction::Forward, Direction::Data, Direction::Weights] {
            let tree = tree(direction);
            assert!(tree.len() > 100, "{direction:?}: {}", tree.len());
            let leaves = tree.iter().filter(|node| matches!(node, Node::Leaf { .. })).count();
            assert_eq!(leaves, tree.len() / 2 + 1);
        }
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
