//! The number of a request: where it comes from, and the field that carries it.

use super::FieldRule;
use super::here::Here;
use super::table::{Key, Table, keys};
use super::value::{Kind, words};

/// The field that carries the number of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId {
    /// The name of the field that upstreams get.
    pub field: String,
    /// Whose numbers are taken over.
    pub take: Take,
}

/// Whose numbers of requests are taken over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Take {
    /// Each request gets a new one.
    None,
    /// Those of trusted proxies.
    #[default]
    Trusted,
    /// Those of all clients.
    All,
}

words!(Take: "none" => Take::None, "trusted" => Take::Trusted, "all" => Take::All);

impl Default for RequestId {
    fn default() -> RequestId {
        RequestId { field: "X-Request-Id".to_owned(), take: Take::default() }
    }
}

impl Table for RequestId {
    const KEYS: &'static [Key<RequestId>] = keys![RequestId;
        field: Kind::Text, field,
            "The field. Upstreams get the number in it, in place of what the client has sent.";
        take: Kind::Word(&["none", "trusted", "all"]), take,
            "Whose numbers are taken over, if they have at most 128 letters, digits and any of \
             `-_.:+/=@`: none, those of listen.trusted_proxies, or those of all clients. Other \
             requests get a new number.";
    ];

    fn check(&self, here: &mut Here<'_, '_>) {
        if let Err(wrong) = FieldRule::Set(self.field.clone(), "1".to_owned()).check() {
            here.mistake_of("field", wrong);
        }
    }
}
