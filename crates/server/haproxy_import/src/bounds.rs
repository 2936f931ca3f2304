//! Conditions that are known in part: a condition that holds no more often than the original, and
//! one that holds no less often.
//!
//! If the original is known, the two are the same. A rule that keeps requests out uses the second,
//! so that it keeps out no fewer.

use imported::cel::Cel;

/// Bytes of a condition, below the limit of the server.
const TEXT_BYTES_MAX: usize = 3900;

/// When something holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Is {
    Always,
    Never,
    If(Cel),
}

/// A condition with its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Test {
    /// The original holds whenever this holds.
    pub(crate) least: Is,
    /// This holds whenever the original holds.
    pub(crate) most: Is,
    /// Why they differ, or what the original also depends on. Empty if it is known.
    pub(crate) why: String,
}

impl Is {
    fn negated(self) -> Is {
        match self {
            Is::Always => Is::Never,
            Is::Never => Is::Always,
            Is::If(cel) => Is::If(cel.negated()),
        }
    }

    /// Both hold, or one of them does. `None`: the condition is too long.
    fn join(self, other: Is, is_all: bool) -> Option<Is> {
        let (neutral, strong) =
            if is_all { (Is::Always, Is::Never) } else { (Is::Never, Is::Always) };
        Some(match (self, other) {
            (one, other) if one == neutral => other,
            (one, other) if other == neutral => one,
            (one, other) if one == strong || other == strong => strong,
            (Is::If(one), Is::If(other)) => {
                if one.text().len() + other.text().len() > TEXT_BYTES_MAX {
                    return None;
                }
                let parts = vec![one, other];
                Is::If(if is_all { Cel::all(parts) } else { Cel::any(parts) }?)
            }
            _ => unreachable!("the other cases have been taken"),
        })
    }
}

impl From<Option<Cel>> for Test {
    /// A known condition; `None`: it cannot be written.
    fn from(cel: Option<Cel>) -> Test {
        match cel {
            Some(cel) => Test::known(Is::If(cel)),
            None => Test::unknown("this comparison cannot be written as a condition"),
        }
    }
}

impl Test {
    pub(crate) fn known(is: Is) -> Test {
        Test { least: is.clone(), most: is, why: String::new() }
    }

    pub(crate) fn always() -> Test {
        Test::known(Is::Always)
    }

    pub(crate) fn unknown(why: impl Into<String>) -> Test {
        Test { least: Is::Never, most: Is::Always, why: why.into() }
    }

    /// It holds no more often than this.
    pub(crate) fn at_most(self, why: &str) -> Test {
        Test { least: Is::Never, most: self.most, why: why.to_owned() }
    }

    pub(crate) fn is_exact(&self) -> bool {
        self.least == self.most
    }

    pub(crate) fn is_never(&self) -> bool {
        self.most == Is::Never
    }

    pub(crate) fn not(self) -> Test {
        Test { least: self.most.negated(), most: self.least.negated(), why: self.why }
    }

    pub(crate) fn and(self, other: Test) -> Test {
        self.join(other, true)
    }

    pub(crate) fn or(self, other: Test) -> Test {
        self.join(other, false)
    }

    fn join(self, other: Test, is_all: bool) -> Test {
        let mut why = self.why;
        if !other.why.is_empty() && !why.contains(&other.why) && why.len() < 200 {
            why = if why.is_empty() { other.why } else { format!("{why}; {}", other.why) };
        }
        let mut bound = |joined: Option<Is>, otherwise: Is| {
            joined.unwrap_or_else(|| {
                "the condition is too long".clone_into(&mut why);
                otherwise
            })
        };
        let least = bound(self.least.join(other.least, is_all), Is::Never);
        let most = bound(self.most.join(other.most, is_all), Is::Always);
        Test { least, most, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_that_is_not_known_has_bounds() {
        let one = || Test::known(Is::If(Cel::one("a == 'x'")));
        let both = one().and(Test::unknown("why"));
        assert_eq!((both.least.clone(), both.most.clone()), (Is::Never, one().most));
        let not = both.not();
        assert_eq!((not.least.clone(), not.most), (one().not().least, Is::Always));
        assert_eq!(one().or(Test::unknown("why")).least, one().least);
        assert!(one().and(Test::always()).is_exact() && one().and(Test::always().not()).is_never());
        let long = |text: &str| Test::known(Is::If(Cel::one(text.repeat(3000))));
        let long = long("a").and(long("b"));
        assert!(long.least == Is::Never && long.most == Is::Always && !long.why.is_empty());
    }
}
