//! The log, the rounds that are found in it, and following a plan.

use super::*;

/// Plays requests: a capital letter asks, the small one gives the oldest of that name back.
fn play(rounds: &mut PeriodLog, live: &mut Vec<(char, u32)>, deeds: &str) -> Vec<Option<usize>> {
    let mut places = Vec::new();
    for deed in deeds.chars() {
        let name = deed.to_ascii_uppercase();
        if deed == name {
            let (number, place) = rounds.log_request(name as usize);
            live.push((name, number));
            places.push(place);
        } else {
            let at = live.iter().position(|&(known, _)| known == name).expect("it lives");
            rounds.log_free(live.remove(at).1);
        }
    }
    places
}

/// Sixteen requests, each for another size, of which two live at once; `Z` is carried over the end.
const ROUND: &str = "AaBCbcDdEFefGgHIhiJjKLklMmNnZOoz";

#[test]
fn a_round_has_the_lives_of_its_blocks() {
    let (mut rounds, mut live) = (PeriodLog::default(), Vec::new());
    assert!(rounds.find().is_none());
    play(&mut rounds, &mut live, &ROUND.repeat(2));
    let round = rounds.find().expect("it happened twice");
    assert_eq!((round.lives.len(), round.is_whole), (16, true));
    let lives = |name: char| {
        let of = round.lives.iter().find(|(size, _)| *size == name as usize);
        of.and_then(|(_, life)| *life).map(|life| life.until - life.from)
    };
    assert_eq!([lives('A'), lives('B'), lives('Z')], [Some(1), Some(2), Some(2)]);
}

#[test]
fn blocks_that_become_ever_more_are_no_round() {
    let (mut rounds, mut live) = (PeriodLog::default(), Vec::new());
    play(&mut rounds, &mut live, &ROUND.replace('m', "").repeat(3));
    assert!(rounds.find().is_none());
}

#[test]
fn a_block_that_lives_on_has_a_place_for_itself() {
    let (mut rounds, mut live) = (PeriodLog::default(), Vec::new());
    play(&mut rounds, &mut live, "Z");
    play(&mut rounds, &mut live, &"AaBbCcDdEeFfGgYzHhIiJjKkLlMmNnZy".repeat(3));
    let round = rounds.find().expect("it happens again and again");
    let stays = |(_, life): &&(usize, Option<Life>)| life.is_some_and(|life| life.until == u32::MAX);
    // Wherever the round begins, one of the two lives on.
    assert_eq!(round.lives.iter().filter(stays).count(), 1);
    assert!(round.lives.iter().all(|(_, life)| life.is_some()));
}

#[test]
fn the_plan_begins_at_its_turn_and_is_found_again() {
    let (mut rounds, mut live) = (PeriodLog::default(), Vec::new());
    play(&mut rounds, &mut live, &ROUND.repeat(2));
    let round = rounds.find().expect("it happened twice");
    let plan = round.lives.iter().map(|&(size, _)| PlannedRequest { size, address: Some(size) }).collect();
    rounds.plan(&round, plan, Vec::new());
    play(&mut rounds, &mut live, ROUND);
    let here: Vec<_> =
        ROUND.chars().filter(char::is_ascii_uppercase).map(|name| Some(name as usize)).collect();
    assert_eq!(play(&mut rounds, &mut live, ROUND), here);
    // Something else comes between: nothing has a place until a whole context is as it was.
    assert_eq!(play(&mut rounds, &mut live, "YyXx"), [None, None]);
    let places = play(&mut rounds, &mut live, &ROUND.repeat(2));
    assert_eq!((places[0], &places[16..]), (None, &here[..]));
}

#[test]
fn what_is_outside_a_plan_is_found() {
    let rounds = PeriodLog { footprint: vec![10..20, 30..40], ..PeriodLog::default() };
    let parts = [0..50, 10..50, 15..18, 12..30, 35..60, 40..41];
    let outside = parts.map(|part| rounds.outside(part));
    assert_eq!(outside, [0..10, 20..30, 18..18, 20..30, 40..60, 40..41]);
}

#[test]
fn the_log_forgets_and_goes_on() {
    let (mut rounds, mut live) = (PeriodLog::default(), Vec::new());
    let (first, _) = rounds.log_request(1);
    for _ in 0..MAX_LOGGED / 16 {
        play(&mut rounds, &mut live, ROUND);
    }
    rounds.log_free(first);
    assert!(rounds.first > 0 && rounds.log.len() < MAX_LOGGED);
    assert_eq!(rounds.find().map(|round| round.lives.len()), Some(16));
}
