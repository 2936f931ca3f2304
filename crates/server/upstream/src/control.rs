//! Calls of an operator for one server: see [`crate::orders`].

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use config::limits::WEIGHT_MAX;
use runtime::time;
use serde_json::{Value, json};

use crate::figures;
use crate::group::{Group, Member};
use crate::orders::{ORDERS, Order};

/// Why a call is refused: a status and a text.
pub type Refused = (u16, String);

/// What a call asks for.
#[derive(Default)]
struct Asked<'q> {
    server: Option<&'q str>,
    group: Option<&'q str>,
    order: Option<Order>,
    /// 0: that of the configuration.
    weight: Option<u32>,
    keep: Option<bool>,
}

const NAMES: &str = "server, group, state, weight and keep";

impl<'q> Asked<'q> {
    fn of(query: &'q [(String, String)]) -> Result<Asked<'q>, String> {
        let mut asked = Asked::default();
        for (name, value) in query {
            match name.as_str() {
                "server" => asked.server = Some(value),
                "group" => asked.group = Some(value),
                "state" => {
                    let order = ORDERS.into_iter().find(|order| order.name() == value);
                    let wrong = || format!("state is ready, drain or disabled, not {value:?}");
                    asked.order = Some(order.ok_or_else(wrong)?);
                }
                "weight" if value == "configured" => asked.weight = Some(0),
                "weight" => {
                    let weight = value.parse().ok().filter(|of| (1..=WEIGHT_MAX).contains(of));
                    let wrong = || {
                        format!(
                            "weight is 1 to {WEIGHT_MAX}, or `configured`, not {value:?}; for no \
                             requests at all, write state=drain"
                        )
                    };
                    asked.weight = Some(weight.ok_or_else(wrong)?);
                }
                "keep" => {
                    asked.keep = Some(match value.as_str() {
                        "on" => true,
                        "off" => false,
                        _ => return Err(format!("keep is on or off, not {value:?}")),
                    });
                }
                _ => return Err(format!("no {name:?} here: there are {NAMES}")),
            }
        }
        if asked.order.is_none() && asked.weight.is_none() && asked.keep.is_none() {
            return Err("write what is ordered: state=, weight= or keep=".to_owned());
        }
        Ok(asked)
    }
}

/// Carries out a call for a server of these groups. Returns the server's figures.
///
/// # Errors
/// The call has a mistake, or names no server, or several.
pub fn obey(groups: &[Arc<Group>], query: &[(String, String)]) -> Result<Value, Refused> {
    let asked = Asked::of(query).map_err(|text| (400, text))?;
    let server = asked
        .server
        .ok_or_else(|| (400, "server= is missing: /upstreams lists them".to_owned()))?;
    let named = |group: &&Arc<Group>| asked.group.is_none_or(|name| group.config.name == name);
    let mut found = groups.iter().filter(named).flat_map(|group| {
        let is_it = |member: &&Member| member.label() == server;
        group.servers().filter(is_it).map(move |member| (group, member))
    });
    let (group, member) = match (found.next(), found.next()) {
        (Some(found), None) => found,
        (None, _) => {
            let text = format!("no upstream has the server {server:?}: /upstreams lists them");
            return Err((404, text));
        }
        (Some(_), Some(_)) => {
            let text = format!("{server:?} is in several upstreams: write group= too");
            return Err((409, text));
        }
    };
    let orders = &member.state.orders;
    if let Some(weight) = asked.weight {
        orders.weight.store(weight, Relaxed);
    }
    if let Some(keep) = asked.keep {
        orders.are_kept.store(keep, Relaxed);
    }
    if let Some(order) = asked.order {
        let before = orders.order.swap(order as u8, Relaxed);
        if order == Order::Ready && before != order as u8 {
            member.state.came_back(time::now());
        }
    }
    // A server can take waiting requests now.
    group.shared.queue.call_all();
    tracing::info!(
        group = group.config.name,
        server,
        state = orders.order().name(),
        weight = member.weight_of_file_or_order(),
        keep = orders.are_kept(),
        "orders for an upstream server"
    );
    Ok(json!({ "group": group.config.name, "server": figures::of_member(member) }))
}

#[cfg(test)]
mod tests {
    use config::Origin;

    use super::*;
    use crate::registry::Registry;
    use crate::server::Tried;
    use crate::sticky::Choice;

    fn query(text: &str) -> Vec<(String, String)> {
        let pairs = text.split('&').map(|pair| pair.split_once('=').unwrap());
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn config(name: &str) -> config::Group {
        let at = |host| Origin::at(([10, 0, 0, host], 80).into());
        config::Group::of(name, [at(1), at(2)])
    }

    #[test]
    fn an_order_decides_where_requests_go_and_a_reload_forgets_it_unless_it_is_kept() {
        let registry = Registry::default();
        let groups = registry.groups([&config("a")]);
        let used = |groups: &[Arc<Group>], requests| {
            let mut used = [0; 2];
            for _ in 0..requests {
                match groups[0].try_admit(Choice::default(), Tried::default()) {
                    Ok(ticket) => used[ticket.at()] += 1,
                    Err(_) => break,
                }
            }
            used
        };
        assert_eq!(used(&groups, 10), [5, 5]);
        for state in ["drain", "disabled"] {
            let shown = obey(&groups, &query(&format!("server=10.0.0.1:80&state={state}")));
            assert_eq!(shown.unwrap()["server"]["order"], state);
            assert_eq!(used(&groups, 10), [0, 10]);
        }
        obey(&groups, &query("server=10.0.0.1:80&state=ready&weight=4")).unwrap();
        assert_eq!(used(&groups, 10), [8, 2]);
        let groups = registry.groups([&config("a")]);
        assert_eq!(used(&groups, 10), [5, 5]);
        obey(&groups, &query("server=10.0.0.2:80&state=drain&keep=on")).unwrap();
        let groups = registry.groups([&config("a")]);
        assert_eq!(used(&groups, 10), [10, 0]);
        obey(&groups, &query("server=10.0.0.1:80&state=drain")).unwrap();
        assert_eq!(used(&groups, 10), [0, 0]);
        assert!(groups[0].is_down() && !groups[0].is_usable());
    }

    #[test]
    fn a_call_with_a_mistake_changes_nothing() {
        let registry = Registry::default();
        let groups = registry.groups([&config("a"), &config("b")]);
        for (text, status) in [
            ("server=10.0.0.1:80&state=drain", 409),
            ("server=10.0.0.9:80&state=drain", 404),
            ("server=10.0.0.1:80&group=c&state=drain", 404),
            ("server=10.0.0.1:80&group=a&state=gone", 400),
            ("server=10.0.0.1:80&group=a&weight=0", 400),
            ("server=10.0.0.1:80&group=a&weight=1001", 400),
            ("server=10.0.0.1:80&group=a&state=drain&keep=yes", 400),
            ("server=10.0.0.1:80&group=a&stat=drain", 400),
            ("server=10.0.0.1:80&group=a", 400),
            ("group=a&state=drain", 400),
        ] {
            assert_eq!(obey(&groups, &query(text)).unwrap_err().0, status, "{text}");
        }
        assert!(groups.iter().all(|group| group.members[0].state.orders.order() == Order::Ready));
    }
}
