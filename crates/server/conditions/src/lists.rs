//! Named lists and maps of a configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use hashbrown::{HashMap, HashSet};

use crate::limits::{LIST_NAME_BYTES_MAX, LIST_VALUES_MAX, LISTS_MAX};
use crate::names;
use crate::networks::{Networks, network};

/// The named lists and maps of a configuration. A copy shares the values.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    named: BTreeMap<String, Named>,
}

#[derive(Clone, Debug)]
pub(crate) enum Named {
    List(Arc<List>),
    Map(Arc<Map>),
}

/// A named list of strings.
pub(crate) struct List {
    pub(crate) name: String,
    pub(crate) values: Vec<String>,
    pub(crate) set: HashSet<Box<[u8]>>,
    networks: OnceLock<Result<Networks, String>>,
}

/// A named map from strings to strings.
pub(crate) struct Map {
    pub(crate) name: String,
    pub(crate) pairs: HashMap<Box<[u8]>, Box<[u8]>>,
}

impl Lists {
    /// No lists and no maps.
    pub fn new() -> Lists {
        Lists::default()
    }

    /// Adds a list. Fails if the name is taken or cannot be a name, or if there are too many
    /// values.
    pub fn add_list(&mut self, name: &str, values: Vec<String>) -> Result<(), String> {
        self.check(name, values.len())?;
        let set = values.iter().map(|value| value.as_bytes().into()).collect();
        let list = List { name: name.into(), values, set, networks: OnceLock::new() };
        self.named.insert(name.into(), Named::List(Arc::new(list)));
        Ok(())
    }

    /// Adds a map. Fails as `add_list` does, and if a key has two values.
    pub fn add_map(&mut self, name: &str, pairs: Vec<(String, String)>) -> Result<(), String> {
        self.check(name, pairs.len())?;
        let mut map: HashMap<Box<[u8]>, Box<[u8]>> = HashMap::with_capacity(pairs.len());
        for (key, value) in pairs {
            let earlier = map.insert(key.as_bytes().into(), value.as_bytes().into());
            if earlier.is_some_and(|earlier| *earlier != *value.as_bytes()) {
                return Err(format!("the map `{name}` has two values for '{key}'"));
            }
        }
        let map = Map { name: name.into(), pairs: map };
        self.named.insert(name.into(), Named::Map(Arc::new(map)));
        Ok(())
    }

    /// The networks of these texts, each of which is a network, an address or the name of a list.
    ///
    /// # Errors
    /// The first text that is none of these, and why.
    pub fn networks(&self, texts: &[String]) -> Result<Networks, String> {
        let mut all = Vec::new();
        for text in texts {
            match (network(text), self.get(text)) {
                (Some(network), _) => all.push(network),
                (None, Some(Named::List(list))) => {
                    for value in &list.values {
                        let of_list = network(value);
                        all.push(of_list.ok_or_else(|| {
                            format!("the list `{text}` has {value:?}, which is not a network")
                        })?);
                    }
                }
                (None, _) => {
                    return Err(format!(
                        "{text:?} is neither a network, such as 10.0.0.0/8, nor the name of a \
                         [[list]]"
                    ));
                }
            }
        }
        Ok(Networks::new(all))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Named> {
        self.named.get(name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.named.keys().map(String::as_str)
    }

    fn check(&self, name: &str, values: usize) -> Result<(), String> {
        let starts = name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_');
        let is_letter =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if !starts || !name.bytes().all(is_letter) || name.len() > LIST_NAME_BYTES_MAX {
            return Err(format!(
                "{name:?} cannot be the name of a list: a name has at most {LIST_NAME_BYTES_MAX} \
                 lower-case letters, digits and underscores, and does not begin with a digit"
            ));
        }
        if names::is_taken(name) {
            return Err(format!("`{name}` is a word of conditions: give the list another name"));
        }
        if self.named.contains_key(name) {
            return Err(format!("there are two lists with the name `{name}`"));
        }
        if self.named.len() == LISTS_MAX {
            return Err(format!("there are more than {LISTS_MAX} lists"));
        }
        if values > LIST_VALUES_MAX {
            return Err(format!("the list `{name}` has more than {LIST_VALUES_MAX} values"));
        }
        Ok(())
    }
}

impl List {
    /// The values as networks, or the first value that is none.
    pub(crate) fn networks(&self) -> Result<&Networks, &str> {
        let read = || {
            let networks = self.values.iter().map(|value| network(value).ok_or(value));
            networks.collect::<Result<Vec<_>, _>>().map(Networks::new).map_err(String::clone)
        };
        self.networks.get_or_init(read).as_ref().map_err(String::as_str)
    }
}

impl fmt::Debug for List {
    /// Without the values, of which there may be a million.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} values)", self.name, self.values.len())
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} pairs)", self.name, self.pairs.len())
    }
}

// The lists of one configuration have different names, so the name says which list it is.

impl PartialEq for List {
    fn eq(&self, other: &List) -> bool {
        self.name == other.name && self.values == other.values
    }
}

impl Eq for List {}

impl Hash for List {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl PartialEq for Map {
    fn eq(&self, other: &Map) -> bool {
        self.name == other.name && self.pairs == other.pairs
    }
}

impl Eq for Map {}

impl Hash for Map {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}
