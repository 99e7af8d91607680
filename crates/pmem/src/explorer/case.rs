//! One way to fail, as values and as a text that replays it.

use std::fmt::{self, Display};
use std::str::FromStr;

use terrane_testkit::crash::{self, Choice, Image};

use super::{Dropped, Subject};

/// Precedes the steps after a recovery.
const THEN: &str = "then";

/// The effect of a crash on stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Nothing is lost: the process is killed.
    Kill,
    /// All but the choice is lost: the power fails.
    Power(Choice),
}

/// A crash, and the steps after the recovery from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash<Step> {
    /// Number of events before it, from the start of the history or of the recovery.
    pub cut: usize,
    /// Its effect on stores.
    pub loss: Loss,
    /// Empty if the next crash is in that recovery.
    pub then: Vec<Step>,
}

impl<Step> Crash<Step> {
    /// The crash that leaves an image.
    fn of(image: &Image) -> Self {
        let loss = match image.crash() {
            crash::Crash::ProcessKill => Loss::Kill,
            crash::Crash::PowerLoss => Loss::Power(image.choice().clone()),
        };
        Self { cut: image.cut(), loss, then: Vec::new() }
    }

    /// The same with a description.
    pub(super) fn described(image: &Image) -> (Self, String) {
        (Self::of(image), image.describe())
    }
}

/// A history with its crashes. The first one is in the steps. Each later one is in the recovery
/// from the one before, or in the steps after that recovery, if there are any.
///
/// Prints as `CONFIGURATION; STEP STEP …; CUT LOSS; CUT LOSS`, or as `CONFIGURATION; STEP STEP …;
/// CUT LOSS; then STEP STEP …; CUT LOSS`. The dropped instruction is not printed. Parsing reads the
/// same text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case<Step> {
    /// Name of the subject's configuration.
    pub configuration: String,
    /// The steps of the history.
    pub steps: Vec<Step>,
    /// A flush or fence that is left out.
    pub dropped: Option<Dropped>,
    /// The crashes, or none if the steps themselves go wrong. If the steps after a recovery go
    /// wrong, the last crash has them.
    pub crashes: Vec<Crash<Step>>,
}

/// A case, and what is wrong in it.
#[derive(Clone, Debug)]
pub struct Failure<Step> {
    /// Name of the subject's structure.
    pub structure: &'static str,
    /// The case that shows it.
    pub case: Case<Step>,
    /// The problem.
    pub problem: String,
    /// Descriptions of the crashes.
    pub crashes: Vec<String>,
}

/// A text that is not a [`Case`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a case: expected a configuration, steps, and crashes such as `57 kill` or `57 9:12f`, separated by semicolons"
)]
pub struct ParseCaseError {
    text: String,
}

impl<Step> Case<Step> {
    /// The steps before the first crash (number 0), or after the recovery from one of the crashes.
    pub(super) fn run_mut(&mut self, number: usize) -> &mut Vec<Step> {
        match number.checked_sub(1) {
            None => &mut self.steps,
            Some(crash) => &mut self.crashes[crash].then,
        }
    }
}

impl<Step: Display> Display for Case<Step> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{};", self.configuration)?;
        self.steps.iter().try_for_each(|step| write!(formatter, " {step}"))?;
        for Crash { cut, loss, then } in &self.crashes {
            match loss {
                Loss::Kill => write!(formatter, "; {cut} kill")?,
                Loss::Power(choice) => write!(formatter, "; {cut} {choice}")?,
            }
            if !then.is_empty() {
                write!(formatter, "; {THEN}")?;
                then.iter().try_for_each(|step| write!(formatter, " {step}"))?;
            }
        }
        Ok(())
    }
}

impl<Step: FromStr> FromStr for Case<Step> {
    type Err = ParseCaseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let mut parts = text.split(';').map(str::trim);
            let configuration = parts.next().filter(|name| !name.is_empty())?.to_owned();
            let steps =
                |part: &str| part.split_whitespace().map(|step| step.parse().ok()).collect::<Option<Vec<Step>>>();
            let first = steps(parts.next()?)?;
            let crash = |part: &str| {
                let (cut, loss) = part.split_once(' ')?;
                let loss = match loss {
                    "kill" => Loss::Kill,
                    choice => Loss::Power(choice.parse().ok()?),
                };
                Some(Crash { cut: cut.parse().ok()?, loss, then: Vec::new() })
            };
            let mut crashes: Vec<Crash<Step>> = Vec::new();
            for part in parts {
                match (part.strip_prefix(THEN), crashes.last_mut()) {
                    (Some(more), Some(last)) if last.then.is_empty() => last.then = steps(more)?,
                    (Some(_), _) => return None,
                    (None, _) => crashes.push(crash(part)?),
                }
            }
            Some(Self { configuration, steps: first, dropped: None, crashes })
        };
        parse().ok_or_else(|| ParseCaseError { text: text.to_owned() })
    }
}

impl<Step> Failure<Step> {
    /// Steps that go wrong without a crash.
    pub fn without_crash<S: Subject<Step = Step>>(subject: &S, steps: Vec<Step>, problem: String) -> Box<Self> {
        let configuration = subject.configuration().to_owned();
        let case = Case { configuration, steps, dropped: None, crashes: Vec::new() };
        Box::new(Self { structure: subject.structure(), case, problem, crashes: Vec::new() })
    }
}

impl<Step: Display> Failure<Step> {
    /// The command that replays it.
    pub fn command(&self) -> String {
        let dropped = self.case.dropped.as_ref().map_or(String::new(), |dropped| format!(" --drop {dropped}"));
        format!("terrane-lab crash {}{dropped} --replay '{}'", self.structure, self.case)
    }
}

impl<Step: Display> Display for Failure<Step> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{} ({}): {}", self.structure, self.case.configuration, self.problem)?;
        if let Some(dropped) = &self.case.dropped {
            writeln!(formatter, "  left out: {dropped}")?;
        }
        let steps: Vec<String> = self.case.steps.iter().map(Step::to_string).collect();
        writeln!(formatter, "  steps: {}", steps.join(" "))?;
        for (Crash { then, .. }, crash) in self.case.crashes.iter().zip(&self.crashes) {
            writeln!(formatter, "  {crash}")?;
            if !then.is_empty() {
                let steps: Vec<String> = then.iter().map(Step::to_string).collect();
                writeln!(formatter, "  then: {}", steps.join(" "))?;
            }
        }
        write!(formatter, "replay: {}", self.command())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_read_what_they_print() {
        for text in [
            "small; a b c; 57 9:12f; 3 kill",
            "small; a; 0 0:",
            "small;",
            "small; a; 3 kill; then b c; 9 9:12f",
            "small; a; 3 kill; then b; 9 9:12f; 2 kill; then c d; 4 kill",
            "small; a; 3 kill; then b",
        ] {
            let case: Case<String> = text.parse().unwrap();
            assert_eq!(case.to_string(), text);
        }
        let case: Case<u64> = "small; 1 2; 5 kill".parse().unwrap();
        let killed = Crash { cut: 5, loss: Loss::Kill, then: Vec::new() };
        assert_eq!((case.steps, case.crashes), (vec![1, 2], vec![killed]));
    }

    #[test]
    fn other_text_is_refused() {
        for text in [
            "",
            "small",
            "; 1",
            "small; x",
            "small; 1; kill",
            "small; 1; 5 all",
            "small; 1; 5 4:g",
            "small; 1;",
            "small; 1; then 2",
            "small; 1; 5 kill; then 2; then 3",
        ] {
            assert!(text.parse::<Case<u64>>().is_err(), "{text}");
        }
    }
}
