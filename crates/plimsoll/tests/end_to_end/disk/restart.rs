//! A server that is replaced in place, and its store on disk with it: under load, with changes at
//! both processes while both serve, and with successors that fail on their way.

use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::checker::{Client, Scene};
use super::origin::Object;
use super::{WRITTEN, configured, metric, mixed, object, served, stopped};
use crate::PLIMSOLL;
use crate::support::{Home, Ours, SOON, Successor, plimsoll};

#[test]
fn a_server_is_replaced_under_load_and_nobody_notices() {
    const SEED: u64 = 7;
    let home = Home::alone();
    let mut scene = Scene::new(mixed());
    scene.changes = true;
    // The new process may write over what the old one is sending: then a body that nobody can
    // vouch for is cut, and only such a one.
    scene.cuts = true;
    let config = configured(&home, &scene, &home.at("store"), "64MiB");
    let mut server = served(&scene, &config);
    let admin = server.admin();
    let mut warm = 0;
    let last = scene.under_load(6, SEED, || {
        let mut last: Option<Successor> = None;
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(1500));
            let next = Successor::restart(admin);
            match last {
                None => assert!(server.child.ended(SOON).success()),
                Some(last) => last.ends(None),
            }
            std::thread::sleep(Duration::from_millis(500));
            assert_eq!(metric(admin, "plimsoll_disk_up"), 1);
            // What this process has not stored itself.
            warm += metric(admin, "plimsoll_disk_hits_total");
            scene.is_well();
            last = Some(next);
        }
        last.unwrap()
    });
    scene.is_well();
    let [compared, hits, changed] =
        [&scene.compared, &scene.hits, &scene.changed].map(|count| count.load(Ordering::Relaxed));
    eprintln!(
        "{compared} responses compared, {hits} of them hits, {changed} changes acknowledged, \
         {warm} hits of the disk after restarts"
    );
    assert!(compared > 1000 && hits > 100 && changed > 50 && warm > 100);
    assert!(last.lives());
    last.ends(Some("TERM"));
    assert_eq!(server.child.rest().1, "");
}

/// Connections that the old process still has change what the new one has, and are served what was
/// changed there; the new one is killed, and nothing of it comes back.
#[test]
fn what_is_changed_at_one_process_is_seen_at_the_other_and_outlives_both() {
    let home = Home::new();
    let scene = Scene::new(Vec::new());
    let config = configured(&home, &scene, &home.at("store"), "64MiB");
    let mut server = served(&scene, &config);
    let objects: Vec<_> = (0..4).map(|number| object(20_000, number)).collect();
    scene.all(objects.iter().copied());
    std::thread::sleep(WRITTEN);
    let mut old: Vec<Option<Client>> = objects.iter().map(|_| None).collect();
    for (client, object) in old.iter_mut().zip(&objects) {
        assert!(scene.compared(client, *object, "", None).unwrap().is_hit());
    }
    let next = Successor::restart(server.admin());
    // The old one may accept for a moment still.
    std::thread::sleep(Duration::from_millis(500));
    for object in &objects {
        assert!(scene.one(*object).is_hit(), "the new one is warm");
    }
    // From here on each answer is judged by what has been acknowledged.
    scene.post(&mut old[0], objects[0]).unwrap();
    assert!(old[0].is_none(), "the old one's last answer on it");
    assert!(!scene.one(objects[0]).is_hit());
    scene.purge(&mut old[1], objects[1]).unwrap();
    assert!(!scene.one(objects[1]).is_hit());
    scene.change(objects[2]);
    let answer = scene.compared(&mut old[2], objects[2], "", None).unwrap();
    assert!(!answer.is_hit() && old[2].is_none());
    // The last word that is heard of it before the new one is killed.
    scene.post(&mut old[3], objects[3]).unwrap();
    next.ends(Some("KILL"));
    assert!(server.child.ended(SOON).success());
    scene.ends();
    let server = served(&scene, &config);
    scene.all(objects.iter().copied());
    assert_eq!(stopped(&scene, server), "");
}

/// Programs that stand where the server's was: they take what they are given, and fail.
/// For bash: a descriptor may have two digits.
fn failing(config: &str) -> [String; 5] {
    let asks = |what| {
        format!("echo {what} >&$PLIMSOLL_LINK; head -c 1 <&$PLIMSOLL_LINK >/dev/null; sleep 0.3\n")
    };
    let (store, doors) = (asks("store"), asks("doors"));
    let another = format!(
        "env -u PLIMSOLL_LINK -u PLIMSOLL_LISTENERS timeout -s KILL 2 \
         {PLIMSOLL} serve -c {config} 2>/dev/null\n"
    );
    [
        "exit 3\n".to_owned(),
        format!("{store}exit 3\n"),
        format!("{store}{doors}exit 3\n"),
        // Another server has the disk meanwhile, and is killed.
        format!("{store}{another}exit 3\n"),
        format!("{store}{doors}{another}exit 3\n"),
    ]
}

/// Asks for an object that the store does not have, which stores it at once. When no segment is
/// free, which is counted, the object is in memory alone: then it is changed and asked for anew.
fn stored_under_load(scene: &Scene, admin: SocketAddr, object: Object) {
    const TRIES: usize = 5;
    let count = |what| metric(admin, &format!("plimsoll_disk_{what}_total"));
    for _ in 0..TRIES {
        let (puts, refused) = (count("puts"), count("refused_room"));
        scene.one(object);
        let stored = count("puts") > puts;
        if count("refused_room") == refused {
            assert!(stored, "{object:?}");
            return;
        }
        scene.change(object);
    }
    panic!("{TRIES} times no segment was free");
}

#[test]
fn a_successor_that_fails_leaves_the_server_with_its_disk() {
    const SEED: u64 = 8;
    let home = Home::alone();
    let mut scene = Scene::new(mixed());
    scene.changes = true;
    let config = configured(&home, &scene, &home.at("store"), "64MiB");
    let program = home.at("plimsoll-link");
    symlink(PLIMSOLL, &program).unwrap();
    let server = Ours::started(Command::new(&program).args(["serve", "--json", "-c", &config]));
    let admin = server.admin();
    scene.begins(server.address(), admin);
    let of = |number: usize| object(100_000, 2_000_000 + number as u64);
    scene.under_load(4, SEED, || {
        for (number, script) in failing(&config).iter().enumerate() {
            std::thread::sleep(Duration::from_millis(500));
            std::fs::remove_file(&program).unwrap();
            home.write("plimsoll-link", format!("#!/bin/bash\n{script}"));
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
            let said = plimsoll(&["restart", "--admin", &admin.to_string()]);
            assert_eq!(said.code, Some(1), "{number}: {said:?}");
            assert!(said.stderr.contains("this process serves on"), "{number}: {said:?}");
            assert!(!said.stderr.contains("lost"), "{number}: {said:?}");
            std::thread::sleep(Duration::from_millis(500));
            assert_eq!(metric(admin, "plimsoll_disk_up"), 1, "{number}");
            stored_under_load(&scene, admin, of(number));
            scene.is_well();
        }
    });
    scene.is_well();
    // What was purged by its tag meanwhile is there again.
    (0..failing(&config).len()).for_each(|number| drop(scene.one(of(number))));
    std::thread::sleep(WRITTEN);
    // And when one does not fail, it is the next.
    std::fs::remove_file(&program).unwrap();
    symlink(PLIMSOLL, &program).unwrap();
    let next = Successor::restart(admin);
    let mut server = server;
    assert!(server.child.ended(SOON).success());
    for number in 0..failing(&config).len() {
        assert!(scene.one(of(number)).is_hit(), "{number}: the disk is warm");
    }
    next.ends(Some("TERM"));
}
