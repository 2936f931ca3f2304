//! A restart in place with a disk cache: under load, with changes at both processes while both
//! serve, and with successors that fail.

use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::checker::{Client, Scene};
use super::origin::Object;
use super::{configured, metric, mixed, object, served, stopped, writes, written};
use crate::PLIMSOLL;
use crate::support::{Home, OurServer, SOON, Successor, plimsoll, wait_for};

#[test]
fn alone_a_restart_under_load_fails_no_request() {
    const SEED: u64 = 7;
    let home = Home::alone();
    let mut scene = Scene::new(mixed());
    scene.changes = true;
    // The new process may overwrite data that the old one is sending. Only a body that cannot be
    // verified then is truncated.
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
            writes(admin, SOON);
            // Responses that an earlier process stored.
            warm += wait_for("hits of the disk", SOON, || {
                let hits = metric(admin, "plimsoll_disk_hits_total");
                (hits > 30).then_some(hits)
            });
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
    assert_eq!(server.child.remaining_output().1, "");
}

/// Connections of the old process change objects of the new one, and see its changes. After the new
/// process is killed, no change is undone.
#[test]
fn a_change_at_one_process_is_seen_at_the_other_and_outlives_both() {
    let home = Home::new();
    let scene = Scene::new(Vec::new());
    let config = configured(&home, &scene, &home.at("store"), "64MiB");
    let mut server = served(&scene, &config);
    let objects: Vec<_> = (0..4).map(|number| object(20_000, number)).collect();
    scene.all(objects.iter().copied());
    written(server.admin());
    let mut old: Vec<Option<Client>> = objects.iter().map(|_| None).collect();
    for (client, object) in old.iter_mut().zip(&objects) {
        assert!(scene.compared(client, *object, "", None).unwrap().is_hit());
    }
    let next = Successor::restart(server.admin());
    // The old process may still accept connections for a moment.
    wait_for("the old process to listen no more", SOON, || {
        (!listens(&server.child.pid())).then_some(())
    });
    for object in &objects {
        assert!(scene.one(*object).is_hit(), "the new process has the objects");
    }
    // From here on, each response is checked against acknowledged changes.
    scene.post(&mut old[0], objects[0]).unwrap();
    assert!(old[0].is_none(), "the last answer of the old process");
    assert!(!scene.one(objects[0]).is_hit());
    scene.purge(&mut old[1], objects[1]).unwrap();
    assert!(!scene.one(objects[1]).is_hit());
    scene.change(objects[2]);
    let answer = scene.compared(&mut old[2], objects[2], "", None).unwrap();
    assert!(!answer.is_hit() && old[2].is_none());
    // The last change before the new process is killed.
    scene.post(&mut old[3], objects[3]).unwrap();
    next.ends(Some("KILL"));
    assert!(server.child.ended(SOON).success());
    scene.ends();
    let server = served(&scene, &config);
    scene.all(objects.iter().copied());
    assert_eq!(stopped(&scene, server), "");
}

/// Whether a process has a listening TCP socket.
fn listens(pid: &str) -> bool {
    const LISTENING: &str = "0A";
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let sockets: Vec<String> =
        rows.filter(|row| row[3] == LISTENING).map(|row| format!("socket:[{}]", row[9])).collect();
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut targets = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    targets.any(|target| sockets.iter().any(|socket| target.as_os_str() == socket.as_str()))
}

/// Programs installed in place of the server's: they accept the handover and fail.
/// They need bash, because a descriptor can have two digits.
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
        // Meanwhile another server uses the disk, and is killed.
        format!("{store}{another}exit 3\n"),
        format!("{store}{doors}{another}exit 3\n"),
    ]
}

/// Requests an object, which stores it at once if it is not stored. If no segment is free, which is
/// counted, the object is only in memory; then it is changed and requested again.
fn stored_under_load(scene: &Scene, admin: SocketAddr, object: Object) {
    const TRIES: usize = 5;
    let count = |what| metric(admin, &format!("plimsoll_disk_{what}_total"));
    for _ in 0..TRIES {
        let (puts, refused) = (count("puts"), count("refused_room"));
        let is_hit = scene.one(object).is_hit();
        let stored = count("puts") > puts;
        if count("refused_room") == refused {
            assert!(is_hit || stored, "{object:?}");
            return;
        }
        scene.change(object);
    }
    panic!("{TRIES} times no segment was free");
}

#[test]
fn alone_a_failed_successor_leaves_the_server_with_its_disk() {
    const SEED: u64 = 8;
    let home = Home::alone();
    let mut scene = Scene::new(mixed());
    scene.changes = true;
    let config = configured(&home, &scene, &home.at("store"), "64MiB");
    let program = home.at("plimsoll-link");
    symlink(PLIMSOLL, &program).unwrap();
    let server =
        OurServer::started(Command::new(&program).args(["serve", "--json", "-c", &config]));
    let admin = server.admin();
    scene.begins(server.address(), admin);
    let of = |number: usize| object(100_000, 2_000_000 + number as u64);
    scene.under_load(4, SEED, || {
        for (number, script) in failing(&config).iter().enumerate() {
            std::thread::sleep(Duration::from_millis(500));
            std::fs::remove_file(&program).unwrap();
            home.write("plimsoll-link", format!("#!/bin/bash\n{script}"));
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
            let output = plimsoll(&["restart", "--admin", &admin.to_string()]);
            assert_eq!(output.code, Some(1), "{number}: {output:?}");
            assert!(output.stderr.contains("this process goes on serving"), "{number}: {output:?}");
            assert!(!output.stderr.contains("lost"), "{number}: {output:?}");
            writes(admin, SOON);
            stored_under_load(&scene, admin, of(number));
            scene.is_well();
        }
    });
    scene.is_well();
    // Objects that were purged by tag in the meantime are cached again.
    (0..failing(&config).len()).for_each(|number| stored_under_load(&scene, admin, of(number)));
    written(admin);
    // A successor that does not fail replaces the server.
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
