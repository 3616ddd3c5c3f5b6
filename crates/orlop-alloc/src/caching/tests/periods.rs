//! Periods that are learned, planned and followed; divergences; plans that end.

use super::player::{
    Divergence, ENOUGH, Marked, PAGE, PeriodStep, Player, allocator, layers, plans, with_player,
};
use crate::backing::Mmap;
use crate::caching::Caching;
use crate::{Allocator as _, Block, Request};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;

#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; `divergences_harm_no_block` goes the same ways")]
fn a_period_is_learned_and_its_addresses_stay() {
    let allocator = allocator();
    let play = || -> Vec<usize> {
        let mut live: VecDeque<Block> = VecDeque::new();
        let period = layers();
        period
            .iter()
            .map(|step| {
                let block = allocator.allocate(&Request::new(step.bytes)).unwrap();
                let address = block.as_ptr().as_ptr().addr();
                live.push_back(block);
                if live.len() > 2 {
                    live.pop_front();
                }
                address
            })
            .collect()
    };
    for _ in 0..ENOUGH {
        play();
    }
    assert_eq!(plans(&allocator), 1);
    allocator.verify().unwrap();
    let held = allocator.stats().usage.reserved;
    let first = play();
    assert_eq!(first, play());
    assert_eq!(allocator.stats().usage.reserved, held);
    // A plan holds no more than was held, and gives way.
    let large = allocator.allocate(&Request::new(usize::try_from(held).unwrap() * 9 / 10)).unwrap();
    assert_eq!((plans(&allocator), allocator.stats().usage.reserved), (0, held));
    drop(large);
    allocator.verify().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; `divergences_harm_no_block` goes the same ways")]
fn a_plan_ends_around_live_blocks() {
    let allocator = allocator();
    let play = |keep: usize| -> Vec<Marked> {
        let mut live: VecDeque<Marked> = VecDeque::new();
        let mut kept = Vec::new();
        for ((index, step), mark) in layers().iter().enumerate().zip(1..) {
            live.push_back(Marked::new(&allocator, step.bytes, mark, false));
            if live.len() > 3 {
                live.pop_front();
            }
            if index == keep {
                kept.extend(live.drain(..));
                break;
            }
        }
        kept
    };
    let mut ended = 0;
    for keep in (3..layers().len()).step_by(5) {
        for _ in 0..ENOUGH {
            drop(play(usize::MAX));
        }
        ended += plans(&allocator);
        let kept = play(keep);
        allocator.trim(0);
        assert_eq!(plans(&allocator), 0);
        allocator.verify().unwrap();
        // One more goes where the plan was, and no live block is touched.
        let other = Marked::new(&allocator, 2 << 20, 255, false);
        kept.iter().for_each(Marked::check);
        drop(kept);
        allocator.verify().unwrap();
        drop(other);
    }
    assert!(ended > 0);
    allocator.trim(0);
    assert_eq!(allocator.stats().usage.reserved, 0);
}

#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; `divergences_harm_no_block` goes the same ways")]
fn a_block_that_outlives_its_period_does_not_keep_it_from_being_learned() {
    let allocator = allocator();
    let mut result: Option<Block> = None;
    for _ in 0..ENOUGH {
        for step in layers() {
            drop(allocator.allocate(&Request::new(step.bytes)).unwrap());
        }
        // As in `result = step()`: the old one goes when the new one is there.
        result = Some(allocator.allocate(&Request::new(500_000)).unwrap());
    }
    assert_eq!(plans(&allocator), 1);
    allocator.verify().unwrap();
    drop(result);
    drop(allocator);
}

/// The turn of a block that comes from elsewhere has no bytes to compare with.
#[test]
#[cfg_attr(miri, ignore = "minutes under Miri")]
fn the_turn_of_a_block_from_elsewhere_is_for_no_request() {
    for less in [0, 1, 63, 64, 1000, 30_000] {
        let allocator = allocator();
        let mut result: Option<Block> = None;
        for pass in 0..=ENOUGH {
            for step in layers() {
                drop(allocator.allocate(&Request::new(step.bytes)).unwrap());
            }
            if pass == ENOUGH {
                assert_eq!(plans(&allocator), 1);
                assert!(allocator.allocate(&Request::new(usize::MAX - less)).is_err(), "{less}");
            }
            result = Some(allocator.allocate(&Request::new(500_000)).unwrap());
        }
        allocator.verify().unwrap();
        drop(result);
    }
}

#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; `divergences_harm_no_block` goes the same ways")]
fn a_plan_that_was_left_ends_though_all_is_at_hand() {
    let allocator = allocator();
    let ask = |bytes: usize, times: usize| {
        (0..times).for_each(|_| drop(allocator.allocate(&Request::new(bytes)).unwrap()));
    };
    // Enough for all that comes.
    ask(64 << 20, 1);
    for _ in 0..ENOUGH {
        layers().iter().for_each(|step| ask(step.bytes, 1));
    }
    assert_eq!(plans(&allocator), 1);
    // Not of the period, and waiting for the thread each time.
    let steps = layers().len();
    ask(200_000, steps);
    assert_eq!(plans(&allocator), 1, "it may come back");
    ask(200_000, 2 * steps);
    assert_eq!(plans(&allocator), 0);
    allocator.verify().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; `divergences_harm_no_block` goes the same ways")]
fn a_plan_lasts_while_each_period_has_a_divergence() {
    let allocator = allocator();
    let (elsewhere, returned) = mpsc::sync_channel::<Block>(0);
    let (done, waits) = mpsc::channel();
    let steps = layers();
    let play = |hand_over: Option<&mpsc::SyncSender<Block>>| {
        let mut live: VecDeque<Block> = VecDeque::new();
        for (index, step) in steps.iter().enumerate() {
            let block = allocator.allocate(&Request::new(step.bytes)).unwrap();
            match hand_over {
                // It is back before the next one, by way of the other thread.
                Some(elsewhere) if index == 5 => {
                    elsewhere.send(block).unwrap();
                    waits.recv().unwrap();
                }
                None if index == 5 => drop(block),
                _ => live.push_back(block),
            }
            if hand_over.is_some() && index == 7 {
                // Not of the period, and waiting for the thread.
                drop(allocator.allocate(&Request::new(3_000_000)).unwrap());
            }
            if live.len() > 2 {
                live.pop_front();
            }
        }
    };
    drop(allocator.allocate(&Request::new(64 << 20)).unwrap());
    thread::scope(|scope| {
        scope.spawn(move || {
            for block in returned {
                drop(block);
                done.send(()).unwrap();
            }
        });
        (0..ENOUGH).for_each(|_| play(None));
        assert_eq!(plans(&allocator), 1);
        for period in 0..3 * steps.len() {
            play(Some(&elsewhere));
            assert_eq!(plans(&allocator), 1, "{period}");
        }
        drop(elsewhere);
    });
    allocator.verify().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; `divergences_harm_no_block` goes the same ways")]
fn a_loop_around_a_few_blocks_needs_no_plan() {
    let allocator = allocator();
    for _ in 0..ENOUGH {
        let both = [100_000, 64].map(|bytes| allocator.allocate(&Request::new(bytes)).unwrap());
        drop(both);
        drop(allocator.allocate(&Request::new(64)).unwrap());
    }
    assert_eq!(plans(&allocator), 0);
    for _ in 0..ENOUGH {
        drop([300_000, 100_000].map(|bytes| allocator.allocate(&Request::new(bytes)).unwrap()));
        drop(allocator.allocate(&Request::new(390_000)).unwrap());
    }
    assert_eq!(plans(&allocator), 1, "two in the place of one");
    allocator.verify().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; `divergences_harm_no_block` goes the same ways")]
fn without_learning_there_are_no_plans() {
    let allocator = Caching::builder(Mmap::new()).learning(false).build().into_ref();
    for _ in 0..8 {
        for step in layers() {
            drop(allocator.allocate(&Request::new(step.bytes)).unwrap());
        }
    }
    assert_eq!(allocator.plans.load(Ordering::Relaxed), 0);
}

#[test]
#[cfg_attr(miri, ignore = "minutes under Miri; `divergences_harm_no_block` goes the same ways")]
fn two_threads_have_a_plan_each_and_return_each_others_blocks() {
    with_player(|player| {
        let allocator = player.allocator;
        thread::scope(|scope| {
            for _ in 0..2 {
                let elsewhere = player.elsewhere.clone();
                scope.spawn(move || {
                    let mut player = Player::new(allocator, elsewhere);
                    for period in 0..60 {
                        let divergence =
                            if period % 4 == 3 { Divergence::ReturnsElsewhere } else { Divergence::Nothing };
                        player.play(&layers(), divergence, period);
                        allocator.verify().unwrap();
                    }
                });
            }
        });
    });
}

fn step() -> impl Strategy<Value = PeriodStep> {
    (1usize..50 * PAGE, 0usize..12).prop_map(|(bytes, duration)| PeriodStep { bytes, duration })
}

fn divergence() -> impl Strategy<Value = Divergence> {
    use Divergence::*;
    prop::sample::select(vec![
        Nothing,
        Nothing,
        Nothing,
        Nothing,
        LeavesOut,
        Adds,
        ReturnsLate,
        ReturnsElsewhere,
        ReturnsByAddress,
        AsksForZeros,
        Trims,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 1 } else { 64 },
        ..ProptestConfig::default()
    })]

    /// Whatever happens instead of the period, no two live blocks share a byte, all adds up, and the period
    /// may be learned anew.
    #[test]
    fn divergences_harm_no_block(
        period in prop::collection::vec(step(), 2..if cfg!(miri) { 6 } else { 40 }),
        plays in prop::collection::vec((divergence(), any::<usize>()), 1..if cfg!(miri) { 6 } else { 40 }),
    ) {
        with_player(|player| {
            for _ in 0..if cfg!(miri) { 8 } else { 400 } {
                if plans(player.allocator) > 0 {
                    break;
                }
                player.play(&period, Divergence::Nothing, 0);
            }
            for (divergence, at) in plays {
                player.play(&period, divergence, at);
                player.allocator.verify().unwrap();
            }
        });
    }
}
