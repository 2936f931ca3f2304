//! The limits of the table, whatever callers do.

use proptest::prelude::*;

use super::*;
use crate::limits::{ADDRESSES_MAX, NAME_BYTES_MAX};

const NOW: Instant = Instant::from_ns(1_000_000_000_000);

fn later(seconds: u64) -> Instant {
    NOW + std::time::Duration::from_secs(seconds)
}

fn network(number: u8) -> Option<Network> {
    Some(Network::of(IpAddr::from([10, 0, number, 7])))
}

fn kept(addresses: usize, until: Instant) -> Kept {
    let ip = IpAddr::from([10, 0, 0, 1]);
    let answer = Answer { ips: vec![ip; addresses].into(), name: "a".into(), unanswered: None };
    Kept { result: Ok(answer), until, refresh_at: until }
}

/// Starts a look-up and waits for it.
fn started(table: &mut Table, name: &str, by: Option<Network>) -> (Id, Id) {
    let Find::Start(id) = table.find(name, by, NOW, &mut Vec::new()) else {
        panic!("{name} has no look-up yet");
    };
    let waiter = table.id();
    table.wait(name, waiter, Waker::noop());
    (id, waiter)
}

#[test]
fn clients_of_one_prefix_are_one_network() {
    let of = |ip: &str| Network::of(ip.parse().unwrap());
    assert_eq!(of("10.0.0.1"), of("::ffff:10.0.0.200"));
    assert_ne!(of("10.0.0.1"), of("10.0.1.1"));
    assert_eq!(of("2001:db8:0:1::1"), of("2001:db8:0:ff::2"));
    assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:100::1"));
}

#[test]
fn the_oldest_lookup_of_a_network_makes_room_for_its_next() {
    let mut table = Table::default();
    let (honest, _) = started(&mut table, "honest", network(1));
    let all: Vec<_> = (0..LOOKUPS_OF_NETWORK_MAX + 3)
        .map(|at| started(&mut table, &format!("n{at}"), network(2)).0)
        .collect();
    assert!(table.is_asking("honest", honest));
    for (at, id) in all.iter().enumerate() {
        assert_eq!(table.is_asking(&format!("n{at}"), *id), at >= 3, "{at}");
    }
    // A cancelled look-up leaves nothing.
    assert_eq!(table.names.len(), LOOKUPS_OF_NETWORK_MAX + 1);
    // Names of the configuration have no limit.
    started(&mut table, "of-an-upstream", None);
    assert!(table.is_asking("n3", all[3]));
}

#[test]
fn at_the_limit_of_all_the_network_with_the_most_makes_room() {
    let mut table = Table::default();
    let large = (0..LOOKUPS_OF_NETWORK_MAX)
        .map(|at| started(&mut table, &format!("l{at}"), network(255)).0)
        .collect::<Vec<_>>();
    let mut others = Vec::new();
    for at in 0..LOOKUPS_MAX - LOOKUPS_OF_NETWORK_MAX {
        let name = format!("o{at}");
        others.push((started(&mut table, &name, network(at as u8)).0, name));
    }
    started(&mut table, "new", network(254));
    assert!(!table.is_asking("l0", large[0]) && table.is_asking("l1", large[1]));
    assert!(others.iter().all(|(id, name)| table.is_asking(name, *id)));
}

#[test]
fn a_lookup_ends_with_its_last_waiter_unless_it_refreshes() {
    let mut table = Table::default();
    let (id, first) = started(&mut table, "a", network(1));
    assert!(matches!(table.find("a", network(2), NOW, &mut Vec::new()), Find::Join(..)));
    let second = table.id();
    table.wait("a", second, Waker::noop());
    table.leave("a", first, &mut Vec::new());
    assert!(table.is_asking("a", id));
    table.leave("a", second, &mut Vec::new());
    assert!(!table.is_asking("a", id));
    assert_eq!((table.names.len(), table.bytes, table.in_flight.len()), (0, 0, 0));

    let (id, waiter) = started(&mut table, "b", network(1));
    table.note("b", id, Kept { refresh_at: later(5), ..kept(1, later(10)) }, NOW);
    table.take("b", id);
    let find = |table: &mut Table, now| table.find("b", network(1), now, &mut Vec::new());
    assert!(matches!(find(&mut table, later(4)), Find::Kept(Ok(_), None)));
    let found = find(&mut table, later(5));
    let Find::Kept(Ok(_), Some(refresh)) = found else { panic!("{found:?}") };
    table.leave("b", waiter, &mut Vec::new());
    assert!(table.is_asking("b", refresh));
}

#[test]
fn names_that_are_used_stay_when_others_fill_the_cache() {
    let mut table = Table::default();
    let note = |table: &mut Table, name: &str| {
        let (id, _) = started(table, name, network(1));
        table.note(name, id, kept(1, later(3600)), NOW);
        table.take(name, id);
    };
    note(&mut table, "honest");
    for at in 0..3 * NAMES_MAX {
        note(&mut table, &format!("n{at}"));
        let found = table.find("honest", network(1), NOW, &mut Vec::new());
        assert!(matches!(found, Find::Kept(Ok(_), None)), "{at}: {found:?}");
        assert!(table.names.len() <= NAMES_MAX);
    }
}

proptest! {
    #[test]
    fn limits_hold_whatever_callers_do(
        steps in prop::collection::vec(
            (0u8..5, 0usize..400, 0u8..8, 0usize..=ADDRESSES_MAX),
            0..800,
        ),
        is_patient: bool,
    ) {
        let mut table = Table { is_patient, ..Table::default() };
        let mut flying: Vec<(String, Id, Id)> = Vec::new();
        for (at, (step, name, by, addresses)) in steps.into_iter().enumerate() {
            let text = format!("{name:0>width$}", width = NAME_BYTES_MAX);
            let now = later(at as u64 / 100);
            match step {
                0..=2 => {
                    if let Find::Start(id) = table.find(&text, network(by), now, &mut Vec::new()) {
                        let waiter = table.id();
                        table.wait(&text, waiter, Waker::noop());
                        flying.push((text, id, waiter));
                    }
                }
                3 if !flying.is_empty() => {
                    let (text, id, _) = flying.swap_remove(name % flying.len());
                    let until = later(at as u64 / 100 + 3);
                    table.note(&text, id, kept(addresses, until), now);
                    table.take(&text, id);
                    prop_assert!(!table.is_asking(&text, id));
                }
                _ if !flying.is_empty() => {
                    let (text, id, waiter) = flying.swap_remove(name % flying.len());
                    table.leave(&text, waiter, &mut Vec::new());
                    prop_assert!(is_patient || !table.is_asking(&text, id));
                }
                _ => {}
            }
            let sum: usize = table.names.iter().map(|(name, known)| cost(name, known)).sum();
            prop_assert_eq!(table.bytes, sum);
            prop_assert!(sum <= CACHE_BYTES_MAX && table.names.len() <= NAMES_MAX);
            prop_assert!(table.in_flight.len() <= LOOKUPS_MAX);
            for number in 0..8 {
                let of = network(number).unwrap();
                let own = table.in_flight.iter().filter(|(_, one, _)| *one == of).count();
                prop_assert!(own <= LOOKUPS_OF_NETWORK_MAX);
            }
            for (id, _, name) in &table.in_flight {
                prop_assert!(table.is_asking(name, *id));
            }
        }
    }
}

/// An answer for IPv4 alone took the place of a valid one for both, and was kept as long.
#[test]
fn an_answer_for_one_family_does_not_replace_a_whole_one() {
    let mut table = Table::default();
    let part = |until| {
        let mut kept = kept(1, until);
        kept.result.as_mut().unwrap().unanswered = Some(crate::Family::V6);
        kept
    };
    let addresses = |table: &Table| {
        let answer = table.names["a"].answer.as_ref().unwrap().result.as_ref().unwrap();
        answer.ips.len()
    };
    let (id, _) = started(&mut table, "a", None);
    table.note("a", id, part(later(60)), NOW);
    assert_eq!(addresses(&table), 1);
    table.note("a", id, kept(2, later(60)), NOW);
    table.note("a", id, part(later(60)), NOW);
    assert_eq!(addresses(&table), 2);
    // When the whole one is no longer valid, a part is better than nothing.
    table.note("a", id, part(later(120)), later(61));
    assert_eq!(addresses(&table), 1);
    let found = crate::Found {
        ips: vec![IpAddr::from([10, 0, 0, 1])],
        ttl: 3600,
        name: "a".into(),
        unanswered: Some(crate::Family::V6),
    };
    assert!(crate::keep(Ok(found), NOW).until <= NOW + crate::limits::TTL_NONE_MAX);
}
