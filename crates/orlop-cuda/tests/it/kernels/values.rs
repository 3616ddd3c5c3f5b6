//! The values of each dtype where something changes, and random ones.

use orlop_core::DType;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Single floats where something changes: near zero, near the limits of integers and of narrow floats.
fn singles() -> Vec<u32> {
    let mut all = vec![0, 1, 2, 0x7f_ffff, 0x80_0000, 0x7f7f_ffff, 0x7f80_0000, 0x7f80_0001, 0x7fa0_2000];
    all.extend([0x7fc0_0000, 0x7fc0_1234, 0x7fff_ffff, 0x477f_f000, 0x477f_efff, 0x3300_0000, 0x3300_0001]);
    let limits =
        [0.4, 0.5, 1.0, 1.5, 2.5, 126.5, 127.0, 128.0, 255.0, 256.0, 447.0, 464.0, 465.0, 6e4, 61440.0];
    let powers = [7, 8, 15, 16, 23, 24, 31, 32, 53, 62, 63, 64, 65].map(|power| 2_f32.powi(power));
    let tiny = [-6, -7, -9, -10, -14, -15, -16, -17, -24, -25, -126, -133].map(|power| 2_f32.powi(power));
    for value in limits.into_iter().chain(powers).chain(tiny) {
        let bits = value.to_bits();
        all.extend([bits.wrapping_sub(1), bits, bits + 1, (value * 1.5).to_bits(), (value * 1.25).to_bits()]);
    }
    let negative: Vec<u32> = all.iter().map(|bits| bits | 1 << 31).collect();
    all.extend(negative);
    all
}

fn doubles() -> Vec<u64> {
    let mut all: Vec<u64> =
        singles().into_iter().map(|bits| f64::from(f32::from_bits(bits)).to_bits()).collect();
    let near: Vec<u64> = all.iter().flat_map(|bits| [bits.wrapping_sub(1), bits.wrapping_add(1)]).collect();
    all.extend(near);
    // Halfway between two floats, and beyond their range.
    all.extend(
        [1.0 + 2_f64.powi(-24), 1.0 + 3.0 * 2_f64.powi(-24), 1e39, 1e-50, 1e300, -1e300].map(f64::to_bits),
    );
    all.extend([0x7ff0_0000_0000_0001, 0x7ff8_0000_2000_0000, 0xfff4_1234_5678_9abc, 0x7fff_ffff_ffff_ffff]);
    all
}

fn integers() -> Vec<u64> {
    let powers = (0..64).flat_map(|power| {
        let value = 1_u64 << power;
        [value - 1, value, value + 1, value.wrapping_neg(), value | value >> 24, (value | value >> 24) + 1]
    });
    powers.chain([u64::MAX, (1 << 60) + (1 << 36) + 1]).collect()
}

/// Returns the bytes of elements with every interesting value of a dtype, and random ones.
pub(super) fn values(dtype: DType) -> Vec<u8> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut noise = |bytes: usize| -> Vec<u8> {
        (0..bytes.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).take(bytes).collect()
    };
    match dtype {
        dtype if dtype.size() == 1 => (0..=255).collect(),
        dtype if dtype.size() == 2 => (0..=u16::MAX).flat_map(u16::to_le_bytes).collect(),
        DType::F32 | DType::C64 => {
            let mut all: Vec<u8> = singles().into_iter().flat_map(u32::to_le_bytes).collect();
            all.extend(noise(4096));
            // As complex numbers: pairs with a zero on either side too.
            let zeros = [0_u32, 1 << 31].into_iter().flat_map(u32::to_le_bytes).collect::<Vec<_>>();
            all.extend([&zeros[..], &0_u32.to_le_bytes(), &1_f32.to_le_bytes()].concat());
            all.truncate(all.len() / 8 * 8);
            all
        }
        DType::F64 | DType::C128 => {
            let mut all: Vec<u8> = doubles().into_iter().flat_map(u64::to_le_bytes).collect();
            all.extend(noise(4096));
            all.extend([0.0_f64, -0.0, 0.0, 5e-324].into_iter().flat_map(f64::to_le_bytes));
            all.truncate(all.len() / 16 * 16);
            all
        }
        DType::U32 | DType::I32 => {
            let mut all: Vec<u8> =
                integers().into_iter().flat_map(|it| it.to_le_bytes()[..4].to_vec()).collect();
            all.extend(noise(2048));
            all
        }
        _ => {
            let mut all: Vec<u8> = integers().into_iter().flat_map(u64::to_le_bytes).collect();
            all.extend(noise(4096));
            all
        }
    }
}
