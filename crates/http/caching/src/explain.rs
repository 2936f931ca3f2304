//! The list of rules: for each a token for `Cache-Status` and the log, the clause it comes from,
//! and a sentence. Pages, metrics and explanations are generated from it.

use crate::conditional::Condition;
use crate::freshness::{InvalidFreshness, LifetimeSource};
use crate::range::WhyWhole;
use crate::replacing::Kept;
use crate::reuse::{MustValidate, NoStaleOnError, StaleRule};
use crate::storing::{NeverStale, NotStored, StoreRule};

/// The description of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Lower case and hyphens: it does not change.
    pub token: &'static str,
    /// The clause.
    pub clause: &'static str,
    /// Part of a sentence, for people.
    pub text: &'static str,
}

/// A rule with a description.
pub trait Explain {
    /// Its entry in the list.
    fn explain(&self) -> Explanation;
}

macro_rules! rules {
    ($($type:ty { $($rule:pat => $token:literal, $clause:literal, $text:literal;)* })*) => {
        $(impl Explain for $type {
            fn explain(&self) -> Explanation {
                match *self {
                    $($rule => Explanation { token: $token, clause: $clause, text: $text },)*
                }
            }
        })*

        /// Every entry of the list, for documentation.
        pub const ALL: &[Explanation] = &[
            $($(Explanation { token: $token, clause: $clause, text: $text },)*)*
        ];
    };
}

rules! {
    NotStored {
        NotStored::Method => "method", "RFC 9111, 3", "only responses to GET are stored";
        NotStored::PostNotForGet => "post-not-for-get", "RFC 9110, 9.3.3",
            "a response to POST that is not said to be what a GET would bring";
        NotStored::NotFinal => "not-final", "RFC 9111, 3", "the response is not final";
        NotStored::Incomplete => "incomplete", "RFC 9111, 3.3",
            "neither a complete representation nor a known part of one";
        NotStored::MustUnderstand => "must-understand", "RFC 9111, 5.2.2.3",
            "the response demands understanding of a status that is not understood";
        NotStored::RequestNoStore => "request-no-store", "RFC 9111, 5.2.1.5",
            "the request forbids storing";
        NotStored::ResponseNoStore => "no-store", "RFC 9111, 5.2.2.5",
            "the response forbids storing";
        NotStored::Private => "private", "RFC 9111, 5.2.2.7", "the response is for one user only";
        NotStored::Accelerator => "accelerator", "RFC 9111, 3",
            "a field for caches in front of the origin, such as X-Accel-Expires, forbids storing";
        NotStored::SetCookie => "set-cookie", "RFC 9111, 7.3",
            "the response sets a cookie, which is for one client only";
        NotStored::DrawnByRange => "drawn-by-range", "RFC 9111, 3.3",
            "the requested range may be what drew this response";
        NotStored::Authorization => "authorization", "RFC 9111, 3.5",
            "the request was authorized and the response does not permit sharing";
        NotStored::NotCacheableByDefault => "not-cacheable-by-default", "RFC 9111, 3",
            "no explicit lifetime and a status that is not stored without one";
        NotStored::VaryStar => "vary-star", "RFC 9111, 4.1", "no later request could be matched";
        NotStored::NothingGained => "nothing-gained", "RFC 9111, 3",
            "stale at once and nothing to validate it by";
        NotStored::Rule => "rule", "RFC 9111, 3", "a rule of the configuration forbids it";
        NotStored::TooLarge => "too-large", "RFC 9111, 3", "larger than the store takes";
    }
    StoreRule {
        StoreRule::Public => "public", "RFC 9111, 5.2.2.9", "the response is public";
        StoreRule::Private => "private-cache", "RFC 9111, 5.2.2.7",
            "the response is private and so is the cache";
        StoreRule::ExplicitLifetime => "explicit-lifetime", "RFC 9111, 3",
            "the response states a lifetime";
        StoreRule::HeuristicStatus => "heuristic-status", "RFC 9110, 15.1",
            "the status may be stored without a stated lifetime";
        StoreRule::ConfiguredLifetime => "configured-lifetime", "RFC 9111, 4.2.2",
            "the configuration has a lifetime for the response";
        StoreRule::PostForGet => "post-for-get", "RFC 9110, 9.3.3",
            "the response to POST is said to be what a GET would bring";
    }
    LifetimeSource {
        LifetimeSource::SMaxage => "s-maxage", "RFC 9111, 5.2.2.10", "s-maxage";
        LifetimeSource::MaxAge => "max-age", "RFC 9111, 5.2.2.1", "max-age";
        LifetimeSource::Expires => "expires", "RFC 9111, 5.3", "Expires minus Date";
        LifetimeSource::Heuristic => "heuristic", "RFC 9111, 4.2.2",
            "a share of the time since Last-Modified";
        LifetimeSource::Invalid(InvalidFreshness::SMaxage) => "invalid-s-maxage",
            "RFC 9111, 4.2.1", "s-maxage is no number: stale";
        LifetimeSource::Invalid(InvalidFreshness::MaxAge) => "invalid-max-age",
            "RFC 9111, 4.2.1", "max-age is no number: stale";
        LifetimeSource::Invalid(InvalidFreshness::Expires) => "invalid-expires",
            "RFC 9111, 5.3", "Expires is no date: stale";
        LifetimeSource::Unstated => "unstated", "RFC 9111, 4.2.1", "no lifetime is stated: stale";
        LifetimeSource::Configured { .. } => "configured", "RFC 9111, 4.2.2",
            "a lifetime of the configuration";
    }
    NeverStale {
        NeverStale::MustRevalidate => "must-revalidate", "RFC 9111, 5.2.2.2",
            "must-revalidate forbids stale use";
        NeverStale::ProxyRevalidate => "proxy-revalidate", "RFC 9111, 5.2.2.8",
            "proxy-revalidate forbids stale use in a shared cache";
        NeverStale::SMaxage => "s-maxage-revalidate", "RFC 9111, 5.2.2.10",
            "s-maxage forbids stale use in a shared cache";
    }
    MustValidate {
        MustValidate::ResponseNoCache => "no-cache", "RFC 9111, 5.2.2.4",
            "the response is validated before every use";
        MustValidate::RequestNoCache => "request-no-cache", "RFC 9111, 5.2.1.4",
            "the request asks for validation";
        MustValidate::RequestPragma => "request-pragma", "RFC 9111, 5.4",
            "the request asks for validation by Pragma";
        MustValidate::RequestMaxAge => "request-max-age", "RFC 9111, 5.2.1.1",
            "older than the request accepts";
        MustValidate::RequestMinFresh => "request-min-fresh", "RFC 9111, 5.2.1.3",
            "not fresh for as long as the request demands";
        MustValidate::StaleForbidden(NeverStale::MustRevalidate) => "stale-must-revalidate",
            "RFC 9111, 5.2.2.2", "stale, and must-revalidate forbids stale use";
        MustValidate::StaleForbidden(NeverStale::ProxyRevalidate) => "stale-proxy-revalidate",
            "RFC 9111, 5.2.2.8", "stale, and proxy-revalidate forbids stale use";
        MustValidate::StaleForbidden(NeverStale::SMaxage) => "stale-s-maxage",
            "RFC 9111, 5.2.2.10", "stale, and s-maxage forbids stale use";
        MustValidate::Stale => "stale", "RFC 9111, 4.2.4", "stale, and nothing allows stale use";
    }
    StaleRule {
        StaleRule::MaxStale => "max-stale", "RFC 9111, 5.2.1.2",
            "the request accepts a stale response";
        StaleRule::WhileRevalidate => "stale-while-revalidate", "RFC 5861, 3",
            "served stale while it is validated";
        StaleRule::IfError => "stale-if-error", "RFC 5861, 4", "served stale in place of an error";
        StaleRule::PolicyOnError => "stale-by-policy", "RFC 9111, 4.2.4",
            "served stale because the origin cannot be reached";
    }
    NoStaleOnError {
        NoStaleOnError::NotAnError => "not-an-error", "RFC 5861, 4",
            "the origin's answer is no error";
        NoStaleOnError::ResponseNoCache => "error-no-cache", "RFC 9111, 5.2.2.4",
            "the response is validated before every use";
        NoStaleOnError::RequestForbids(_) => "error-request", "RFC 9111, 5.2.1",
            "the request does not accept a stale response";
        NoStaleOnError::StaleForbidden(_) => "error-stale-forbidden", "RFC 9111, 4.2.4",
            "a directive forbids stale use";
        NoStaleOnError::TooStale => "error-too-stale", "RFC 5861, 4",
            "staler than anything allows";
    }
    Kept {
        Kept::ErrorOverUsable => "error-over-usable", "RFC 9111, 4.2.4",
            "an error of the origin does not replace a response that may still be used";
        Kept::PartOfUsable => "part-of-usable", "RFC 9111, 3.3",
            "a part does not replace a whole response that may still be used";
        Kept::Older => "older", "RFC 9111, 4", "a newer response is stored";
        Kept::Purged => "purged-in-flight", "RFC 9111, 4.4",
            "a purge overtook it, and a response from after the purge is stored";
    }
    Condition {
        Condition::IfMatch => "if-match", "RFC 9110, 13.1.1", "If-Match";
        Condition::IfUnmodifiedSince => "if-unmodified-since", "RFC 9110, 13.1.4",
            "If-Unmodified-Since";
        Condition::IfNoneMatch => "if-none-match", "RFC 9110, 13.1.2", "If-None-Match";
        Condition::IfModifiedSince => "if-modified-since", "RFC 9110, 13.1.3",
            "If-Modified-Since";
    }
    WhyWhole {
        WhyWhole::NotAsked => "range-not-asked", "RFC 9110, 14.2", "no range was asked for";
        WhyWhole::NotApplicable => "range-not-applicable", "RFC 9110, 14.2",
            "ranges apply to GET and a complete 200 only";
        WhyWhole::OtherUnit => "range-unit", "RFC 9110, 14.1", "a range unit other than bytes";
        WhyWhole::Invalid => "range-invalid", "RFC 9110, 14.2", "the Range field is not valid";
        WhyWhole::IfRange => "if-range", "RFC 9110, 13.1.5",
            "If-Range names another representation";
        WhyWhole::TooMany => "range-too-many", "RFC 9110, 17.15", "too many ranges";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn tokens_are_tokens_and_each_names_one_rule() {
        let mut seen = HashSet::new();
        for rule in ALL {
            assert!(seen.insert(rule.token), "{} twice", rule.token);
            assert!(rule.token.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'));
            assert!(rule.clause.starts_with("RFC ") && !rule.text.ends_with('.'));
        }
    }

    #[test]
    fn a_rule_finds_its_entry() {
        let rule = MustValidate::StaleForbidden(NeverStale::SMaxage).explain();
        assert_eq!(rule.token, "stale-s-maxage");
        assert!(ALL.contains(&rule));
    }
}
