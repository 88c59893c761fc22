//! "Did you mean": the nearest word of a list.

/// The word that takes the fewest edits (insert, delete, replace, swap neighbours), if it takes few for its length.
pub fn nearest<'w>(text: &str, words: &[&'w str]) -> Option<&'w str> {
    let text = text.to_ascii_lowercase();
    // Long texts are no typing mistakes, and comparing costs their length squared.
    if text.len() > 64 {
        return None;
    }
    words
        .iter()
        .map(|word| (distance(&text, &word.to_ascii_lowercase()), *word))
        .filter(|(edits, word)| *edits <= (word.len().max(text.len()) / 3).max(1))
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, word)| word)
}

/// Edits between two texts (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_find_their_word_and_nonsense_does_not() {
        let words = ["KillWait", "WaitTime", "SlurmdPort", "Weight"];
        assert_eq!(nearest("KilWait", &words), Some("KillWait"));
        assert_eq!(nearest("slurmdprot", &words), Some("SlurmdPort"));
        assert_eq!(nearest("Wheight", &words), Some("Weight"));
        assert_eq!(nearest("Banana", &words), None);
        assert_eq!(nearest("", &words), None);
        assert_eq!(nearest(&"x".repeat(100_000), &words), None);
    }
}
