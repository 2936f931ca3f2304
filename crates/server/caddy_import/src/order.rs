//! The order in which Caddy uses the directives of a block.

use std::cmp::Ordering;

use imported::table::{Becomes, is_one};

use crate::blocks::Directive;
use crate::matchers::Found;

/// Caddy's order. Directives with another name are in no block that is sorted.
const ORDER: &str = "tracing map vars fs root log_append skip_log log_skip log_name header \
                     copy_response_headers request_body redir method rewrite uri try_files \
                     basicauth basic_auth forward_auth request_header encode push intercept \
                     templates invoke handle handle_path route abort error copy_response respond \
                     metrics reverse_proxy php_fastcgi file_server acme_server";

/// The order of a file, which the global option `order` can change.
#[derive(Debug)]
pub(crate) struct Order(Vec<String>);

/// Directives of one kind whose order is compared one by one.
const COMPARED_MAX: usize = 128;

impl Default for Order {
    fn default() -> Order {
        Order(ORDER.split(' ').map(str::to_owned).collect())
    }
}

impl Order {
    /// `order NAME first|last`, `order NAME before|after OTHER`.
    pub(crate) fn change(&mut self, line: &Directive) -> Becomes {
        let name = line.word(0);
        if !is_one(ORDER, name) {
            return Becomes::Left("the directive is not known here");
        }
        let mut all = self.0.clone();
        all.retain(|one| one != name);
        let other = all.iter().position(|one| one == line.word(2));
        let at = match (line.word(1), other) {
            ("first", _) => 0,
            ("last", _) => all.len(),
            ("before", Some(at)) => at,
            ("after", Some(at)) => at + 1,
            _ => return Becomes::Unprotected("this order is not known here"),
        };
        all.insert(at, name.to_owned());
        self.0 = all;
        Becomes::Carried
    }

    fn place(&self, name: &str) -> usize {
        let name = match name {
            "handle_path" => "handle",
            "basic_auth" => "basicauth",
            name => name,
        };
        // A directive that is not known may keep out requests before all others.
        self.0.iter().position(|one| one == name).map_or(0, |at| at + 1)
    }

    /// Sorts directives. Of those with one name, the longest path comes first, then those with
    /// another matcher, then those without a matcher. The other directives keep their order.
    pub(crate) fn sorted<'d>(
        &self,
        all: &'d [Directive],
        matcher: impl Fn(&'d Directive) -> Found,
    ) -> Vec<&'d Directive> {
        let mut keyed: Vec<(usize, &Directive, Found)> =
            all.iter().map(|one| (self.place(&one.name), one, matcher(one))).collect();
        keyed.sort_by_key(|(place, ..)| *place);
        let mut start = 0;
        while start < keyed.len() {
            let place = keyed[start].0;
            let end = keyed[start..].iter().position(|one| one.0 != place);
            let end = end.map_or(keyed.len(), |length| start + length);
            let group = &mut keyed[start..end];
            let has = |one: &Found| !one.tests.is_empty() || !one.why.is_empty() || one.never;
            match group.len() <= COMPARED_MAX {
                // Caddy's comparison has no order if some matchers are no single path, so its steps
                // count.
                true => {
                    for last in 1..group.len() {
                        let mut at = last;
                        while at > 0 && less(&group[at].2, &group[at - 1].2) == Ordering::Less {
                            group.swap(at, at - 1);
                            at -= 1;
                        }
                    }
                }
                false => {
                    group.sort_by_key(|(_, _, one)| (!has(one), std::cmp::Reverse(one.length)))
                }
            }
            start = end;
        }
        keyed.into_iter().map(|(_, one, _)| one).collect()
    }
}

fn less(one: &Found, other: &Found) -> Ordering {
    let has = |one: &Found| !one.tests.is_empty() || !one.why.is_empty() || one.never;
    match one.length > 0 && other.length > 0 {
        true => other.length.cmp(&one.length),
        false => has(other).cmp(&has(one)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matchers::{Rewriting, paths};

    #[test]
    fn the_longest_path_first_and_no_matcher_last() {
        let one = |name: &str, word: &str| Directive {
            name: name.to_owned(),
            words: vec![word.to_owned()],
            ..Directive::default()
        };
        let mut all = vec![
            one("file_server", "*"),
            one("handle", "*"),
            one("handle_path", "/a*"),
            one("redir", "/x"),
            one("handle", "/ab*"),
        ];
        let shown = |order: &Order, all: &[Directive]| -> String {
            let of = |one: &Directive| paths(&one.words, &Rewriting::Same);
            order.sorted(all, of).iter().map(|one| format!("{} ", one.word(0))).collect()
        };
        let mut order = Order::default();
        assert_eq!(shown(&order, &all), "/x /ab* /a* * * ");
        let mut line = one("order", "file_server");
        line.words.extend(["before".to_owned(), "redir".to_owned()]);
        assert_eq!(order.change(&line), Becomes::Carried);
        all.swap(0, 3);
        assert_eq!(shown(&order, &all), "* /x /ab* /a* * ");
        assert!(matches!(order.change(&one("order", "rate_limit")), Becomes::Left(_)));
    }
}
