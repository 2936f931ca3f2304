//! `plimsoll init`: what it writes is valid and serves, and it replaces no file unasked.

use std::process::Command;

use crate::PLIMSOLL;
use crate::support::{Home, OurServer, SOON, get, plimsoll, run};

/// Writes a file and serves with it. Both addresses are chosen by the system.
fn served(home: &Home, words: &[&str]) -> OurServer {
    let file = home.at("a.toml");
    let addresses = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--out", &file];
    let out = plimsoll(&[&["init"], words, &addresses, &["--force"]].concat()).succeeded().stdout;
    assert!(out.contains(&format!("\n    plimsoll check {file}\n")), "{out}");
    let checked = plimsoll(&["check", &file]).succeeded().stdout;
    assert!(checked.contains("is valid") && !checked.contains("warning"), "{checked}");
    OurServer::configured(&file)
}

#[test]
fn each_file_is_valid_and_serves() {
    let home = Home::new();
    let origin = OurServer::origin();
    let server = served(&home, &["reverse", "--origin", &origin.url()]);
    for status in ["fwd=uri-miss", "; hit"] {
        let answer = get(server.address(), "/obj/1?size=10&cc=max-age%3D60");
        assert!(answer.contains(status), "{answer}");
    }
    assert!(get(server.admin(), "/metrics").starts_with("HTTP/1.1 200 "));
    drop(server);

    let url = format!("{}/obj/1", origin.url());
    let server = served(&home, &["forward"]);
    let answer = get(server.address(), &url);
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("address"), "{answer}");
    drop(server);

    let store = ["--disk-bytes", "64M", "--registry-listen", "127.0.0.1:0"];
    let packages = ["packages", "--mirror", "deb.debian.org", "--registry", &origin.url()];
    let server = served(&home, &[&packages[..], &store].concat());
    let answer = get(server.address(), &url);
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("domain"), "{answer}");
    let registry = server.announced["listen"][1].as_str().unwrap().parse().unwrap();
    assert!(get(registry, "/obj/1?size=10").starts_with("HTTP/1.1 200 "));
    assert!(home.has("plimsoll-store"));
}

#[test]
fn an_existing_file_is_kept_and_stdout_is_a_file() {
    let home = Home::new();
    let file = home.write("mine.toml", "mine\n");
    let reverse = ["init", "reverse", "--origin", "http://127.0.0.1:8000"];
    let to = |more: &[&str]| plimsoll(&[&reverse[..], more].concat());
    to(&["--out", &file]).refused(&["mine.toml exists", "--force"]);
    assert_eq!(home.read("mine.toml"), "mine\n");
    let shown = to(&["--out", "-"]).succeeded().stdout;
    assert!(shown.contains("url = \"http://127.0.0.1:8000\""), "{shown}");
    let json = to(&["--out", &file, "--force", "--json"]).succeeded().json();
    assert_eq!(json["configuration"], home.read("mine.toml"));
    assert_eq!(json["file"], file);
    assert_eq!(to(&["--out", "-", "--json"]).succeeded().json()["configuration"], shown);
    plimsoll(&["init", "--out", &home.at("x")]).refused(&["plimsoll init reverse --origin"]);
    assert!(!home.has("x"));
}

#[test]
fn on_a_terminal_it_asks() {
    let home = Home::new();
    let line = format!("printf '2\\n127.0.0.1:3200\\n' | script -qec '{PLIMSOLL} init' /dev/null");
    let mut command = Command::new("sh");
    command.args(["-c", &line]).current_dir(home.path());
    let shown = run(command, SOON).succeeded().stdout;
    assert!(shown.contains("What is it for?") && shown.contains("plimsoll.toml"), "{shown}");
    let written = home.read("plimsoll.toml");
    assert!(written.contains("address = \"127.0.0.1:3200\""), "{written}");
    plimsoll(&["check", &home.at("plimsoll.toml")]).succeeded();
}
