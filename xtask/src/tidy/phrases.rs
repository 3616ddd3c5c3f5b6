//! Phrases that the style replaces: translated constructions, personification, and ids of internal contracts.

use super::Violation;

/// Each phrase with its replacement. Written in two parts so that this file does not contain them either.
const PHRASES: [(&str, &str); 20] = [
    (concat!("any", "body"), "name the code or the thread"),
    (concat!("no", "body"), "use the passive, or \"nothing else\""),
    (concat!("some", "body"), "name the code or the thread"),
    (concat!("who", "ever"), "name the code or the thread"),
    (concat!("so many", " bytes"), "`bytes` bytes"),
    (concat!("so many", " elements"), "`n` elements"),
    (concat!("so many", " of"), "`n` of"),
    (concat!("as often", " in a row"), "`n` consecutive times"),
    (concat!("not to be", " had"), "unavailable"),
    (concat!("can be", " had"), "is available"),
    (concat!("what", " lives"), "live blocks"),
    (concat!("told", " of"), "receives, reports"),
    (concat!("are", " told"), "receive"),
    (concat!("of the", " like"), "name the kind"),
    (concat!("put", " off"), "deferred"),
    (concat!("memory from", " outside"), "foreign memory"),
    (concat!("the caller's", " promise"), "guaranteed by the caller"),
    (concat!("the caller's", " promises"), "guaranteed by the caller"),
    (concat!("nothing has", " changed then"), "`self` is then unchanged"),
    (concat!("in our", " hands"), "controlled by"),
];

/// Returns the phrases and ids in a text.
pub(super) fn check(text: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let lower = line.to_lowercase();
        for (phrase, better) in PHRASES.iter().filter(|(phrase, _)| contains_words(&lower, phrase)) {
            found.push(Violation::error(index + 1, format!("\"{phrase}\": better {better}")));
        }
        if has_contract_id(line) {
            found.push(Violation::error(index + 1, "the id of an internal contract"));
        }
    }
    found
}

/// Returns `true` if the phrase occurs between word boundaries. Names such as `Access::Nobody` are not prose.
fn contains_words(line: &str, phrase: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':');
    line.match_indices(phrase).any(|(at, _)| {
        !line[..at].ends_with(is_name) && !line[at + phrase.len()..].starts_with(|c| is_name(c) && c != ':')
    })
}

/// Returns `true` for parentheses with ids only: a capital letter and one or two digits each.
fn has_contract_id(line: &str) -> bool {
    let is_id = |text: &str| {
        let mut chars = text.chars();
        chars.next().is_some_and(|c| c.is_ascii_uppercase())
            && (2..=3).contains(&text.len())
            && chars.all(|c| c.is_ascii_digit())
    };
    let is_prose = |before: &str| before.ends_with([' ', '`']);
    line.match_indices('(').any(|(at, _)| {
        let inside = line[at + 1..].split_once(')').map_or("", |(inside, _)| inside);
        is_prose(&line[..at]) && inside.split(", ").all(is_id)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        check(text).into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn phrases_are_found_as_whole_words() {
        for (phrase, _) in PHRASES {
            assert_eq!(lines(&format!("a\n// x {phrase}, y")), [2], "{phrase}");
            assert_eq!(lines(&format!("// {}", phrase.to_uppercase())), [1], "{phrase}");
            assert_eq!(lines(&format!("x{phrase} {phrase}_x")), [0_usize; 0], "{phrase}");
        }
        assert_eq!(lines(concat!("Access::No", "body =>")), [0_usize; 0]);
    }

    #[test]
    fn ids_are_found_in_parentheses() {
        assert_eq!(lines(concat!("/// Resizes (P", "2, T12).\n/// (M", "1)")), [1, 2]);
        assert_eq!(lines("f(A1) and (A100), (a1), (F16C), (1), ()"), [0_usize; 0]);
    }
}
