//! A group without connections: which server is chosen or ejected, what a reload keeps.

use std::time::Duration;

use super::*;
use crate::registry::Registry;
use config::{Balance, Ejection, Origin};

fn config(servers: usize) -> config::Group {
    let origin = |at| Origin::at(SocketAddr::from(([10, 0, 0, 1], 8000 + at as u16)));
    config::Group::of("g", (0..servers).map(origin))
}

fn group(config: &config::Group) -> Arc<Group> {
    Arc::new(Registry::default().group(config))
}

fn admit(group: &Arc<Group>) -> Result<Ticket, Blocked> {
    group.try_admit(Choice::default(), Tried::default())
}

#[test]
fn a_backup_is_asked_only_while_no_other_is_usable() {
    let mut config = config(3);
    config.servers[2].backup = true;
    let group = group(&config);
    let places: Vec<_> = (0..4).map(|_| admit(&group).unwrap().at()).collect();
    assert_eq!(places, [0, 1, 0, 1]);
    group.members[0].state.note_check(false, 1, 1, time::now());
    group.members[1].state.note_check(false, 1, 1, time::now());
    assert_eq!(admit(&group).unwrap().at(), 2);
    group.members[2].state.note_check(false, 1, 1, time::now());
    assert_eq!(admit(&group).unwrap_err(), Blocked::Down);
    group.members[1].state.note_check(true, 1, 1, time::now());
    assert_eq!(admit(&group).unwrap().at(), 1);
}

#[test]
fn no_server_has_more_than_it_may_and_a_ticket_gives_its_room_back() {
    for balance in [Balance::RoundRobin, Balance::LeastOutstanding, Balance::HASH] {
        let mut config = config(2);
        config.balance = balance;
        config.servers[0].outstanding_max = Some(2);
        config.servers[1].outstanding_max = Some(3);
        let group = group(&config);
        let mut tickets: Vec<_> = (0..5).map(|_| admit(&group).unwrap()).collect();
        assert_eq!(tickets.iter().filter(|ticket| ticket.at() == 0).count(), 2);
        assert_eq!(admit(&group).unwrap_err(), Blocked::Full);
        tickets.remove(2);
        assert!(admit(&group).is_ok());
        drop(tickets);
        assert!(group.members.iter().all(|member| member.state.outstanding() == 0));
    }
}

#[test]
fn the_predicted_server_is_chosen_and_predicting_takes_no_turn() {
    for balance in [Balance::RoundRobin, Balance::LeastOutstanding, Balance::HASH] {
        let mut config = config(4);
        config.balance = balance;
        config.servers[1].weight = 3;
        config.servers[3].outstanding_max = Some(1);
        let group = group(&config);
        let mut tickets = Vec::new();
        for key in 0..40 {
            let key = stable_hash(&[&[key]]);
            let predicted = || group.predicted(Choice::by(key)).unwrap().authority;
            assert_eq!(predicted(), predicted());
            let predicted = predicted();
            let ticket = group.try_admit(Choice::by(key), Tried::default()).unwrap();
            assert_eq!(group.members[ticket.at()].authority, predicted, "{balance:?}");
            tickets.push(ticket);
            if tickets.len() > 5 {
                tickets.remove(0);
            }
        }
        drop(tickets);
        let down = |member: &Member| member.state.note_check(false, 1, 1, time::now());
        assert!(group.members.iter().all(down));
        assert_eq!(group.predicted(Choice::default()).err(), Some(Blocked::Down));
    }
}

#[test]
fn failures_in_a_row_eject_but_never_more_than_the_share() {
    let group = group(&config(4));
    let fail = |at: usize, times: u32| (0..times).for_each(|_| group.failed(at));
    let ejected = || {
        let now = time::now();
        let is_ejected = |member: &Member| member.state.is_ejected(now);
        group.members.iter().map(is_ejected).collect::<Vec<_>>()
    };
    fail(0, 4);
    assert_eq!(ejected(), [false; 4]);
    group.take(0).unwrap().answered(200);
    fail(0, 4);
    assert_eq!(ejected(), [false; 4], "a success in between");
    fail(0, 1);
    fail(1, 5);
    fail(2, 50);
    assert_eq!(ejected(), [true, true, false, false]);
    let one = self::group(&config(1));
    (0..50).for_each(|_| one.failed(0));
    assert!(!one.members[0].state.is_ejected(time::now()), "the only one is never left alone");
}

#[test]
fn one_that_failed_requests_is_better_than_none() {
    let group = group(&config(2));
    (0..5).for_each(|_| group.failed(0));
    assert_eq!((admit(&group).unwrap().at(), admit(&group).unwrap().at()), (1, 1));
    group.members[1].state.note_check(false, 1, 1, time::now());
    assert_eq!(admit(&group).unwrap().at(), 0);
}

#[test]
fn a_status_may_count_as_a_failure() {
    let mut config = config(2);
    config.ejection = Ejection { statuses: vec![502, 503], ..Ejection::default() };
    let group = group(&config);
    for status in [503, 502, 503, 500, 503, 503, 503, 503, 502] {
        group.take(0).unwrap().answered(status);
    }
    assert!(group.members[0].state.is_ejected(time::now()));
}

#[test]
fn a_server_that_has_come_back_starts_slowly() {
    let mut config = config(2);
    config.slow_start = Duration::from_secs(10);
    let group = group(&config);
    let back = time::now();
    group.members[0].state.note_check(false, 1, 1, back);
    group.members[0].state.note_check(true, 1, 1, back);
    let weight = |after: u64| {
        let now = back + Duration::from_secs(after);
        group.members[0].weight_now(now, config.slow_start)
    };
    let full = group.members[1].weight_now(back, config.slow_start);
    assert_eq!(weight(0), full / 10);
    assert_eq!(weight(5), full / 2);
    assert_eq!(weight(10), full);
}

#[test]
fn the_state_of_a_server_outlives_a_reload() {
    let registry = Registry::default();
    let mut changed = config(2);
    changed.health = Some(config::HealthCheck::default());
    let old = Arc::new(registry.group(&changed));
    old.members[1].state.note_check(false, 1, 1, time::now());
    let ticket = old.try_admit(Choice::default(), Tried::default()).unwrap();
    changed.servers.remove(0);
    changed.servers[0].weight = 9;
    let new = registry.group(&changed);
    assert!(new.members[0].state.is_down());
    assert_eq!(old.members[0].state.outstanding(), 1);
    drop((ticket, old));
    let again = registry.group(&config(1));
    assert_eq!(again.members[0].state.outstanding(), 0);
    assert_eq!(registry.servers.lock().unwrap().len(), 2, "unused state is dropped");
}
