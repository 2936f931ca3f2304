//! The text of a condition.

use std::fmt;
use std::str::FromStr;

use super::value::understood;

/// A condition, as it is written. It was checked with the lists of its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct When(String);

impl When {
    /// A condition that holds for each request.
    pub(crate) fn always() -> When {
        When("path.size() > 0".to_owned())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<When, String> {
        match text.trim() {
            "" => Err("a condition is not empty: leave out `when`".to_owned()),
            text => Ok(When(text.to_owned())),
        }
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

understood!(When);
