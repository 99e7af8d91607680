//! A part of a search's cases.

use std::fmt;
use std::str::FromStr;

/// One of several parts of a list of cases. The parts take the cases in turn, so each part has
/// small and large ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    number: usize,
    of: usize,
}

/// A text that is not a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a part is written K/N, such as 1/4, with K from 1 to N")]
pub struct ParsePartError;

impl Part {
    /// All cases.
    pub const ALL: Self = Self { number: 1, of: 1 };

    /// The first of `of` parts; of one, if that is 0.
    pub fn first_of(of: usize) -> Self {
        Self { number: 1, of: of.max(1) }
    }

    /// The cases of this part.
    pub fn of_all<T>(self, cases: &[T]) -> impl Iterator<Item = &T> {
        cases.iter().skip(self.number - 1).step_by(self.of)
    }
}

impl FromStr for Part {
    type Err = ParsePartError;

    fn from_str(text: &str) -> Result<Self, ParsePartError> {
        let (number, of) = text.split_once('/').ok_or(ParsePartError)?;
        let [number, of] = [number, of].map(|number| number.parse::<usize>().map_err(|_| ParsePartError));
        let (number, of) = (number?, of?);
        if (1..=of).contains(&number) { Ok(Self { number, of }) } else { Err(ParsePartError) }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.number, self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_is_in_one_part() {
        let cases: Vec<u32> = (0..10).collect();
        let part = |text: &str| -> Vec<u32> { text.parse::<Part>().unwrap().of_all(&cases).copied().collect() };
        assert_eq!([part("1/3"), part("2/3"), part("3/3")], [vec![0, 3, 6, 9], vec![1, 4, 7], vec![2, 5, 8]]);
        assert_eq!(part("11/12"), []);
        assert_eq!(part("1/1"), cases);
        assert_eq!(Part::first_of(3).to_string(), "1/3");
        for wrong in ["", "1", "0/3", "4/3", "1/0", "-1/3", "1/3/5", "a/b"] {
            assert_eq!(wrong.parse::<Part>(), Err(ParsePartError), "{wrong}");
        }
    }
}
