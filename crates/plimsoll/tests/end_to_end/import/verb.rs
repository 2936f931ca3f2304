//! The verb: files, exit codes, and the notes.

use crate::support::{Home, plimsoll};

const SMALL: &str = "http_port 127.0.0.1:3128\nhttp_access allow localhost\nhttp_access deny all\n";

#[test]
fn the_file_goes_to_stdout_and_the_notes_to_stderr() {
    let home = Home::new();
    let file = home.write("squid.conf", SMALL);
    let output = plimsoll(&["import", &file]);
    // A difference is no failure of the import, and the caller should look at it.
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stdout.contains("\nallow_from = [\"127.0.0.1/32\", \"::1/128\"]"), "{output:?}");
    assert!(output.stderr.contains("looks like a configuration of squid"), "{output:?}");
    let note = "squid.conf:1: http_port: carried with a difference: ";
    assert!(output.stderr.contains(note), "{output:?}");
    assert!(output.stderr.contains("3 directives: 2 carried, 1 with a difference"), "{output:?}");
    let written = home.write("plimsoll.toml", &output.stdout);
    plimsoll(&["check", &written]).succeeded();
    // A file that exists is not replaced without a word.
    plimsoll(&["import", &file, "-o", &written]).refused(&["plimsoll.toml exists", "--force"]);
    let output = plimsoll(&["import", &file, "-o", &written, "--force"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(1), ""));
    // Requests behave the same.
    let nginx = "http { server { listen 127.0.0.1:8080; location / { return 301 https://a.example/; } } }\n";
    plimsoll(&["import", "--from", "nginx", &home.write("nginx.conf", nginx)]).succeeded();
}

#[test]
fn a_caddyfile_is_known_by_its_name_and_by_its_content() {
    let home = Home::new();
    let text = ":8080 {\n\timport more/*.caddy\n\treverse_proxy 127.0.0.1:8000\n}\n";
    std::fs::create_dir(home.path().join("more")).unwrap();
    home.write("more/a.caddy", "redir /old /new\n");
    for name in ["Caddyfile", "site.conf"] {
        let file = home.write(name, text);
        let output = plimsoll(&["import", &file]).succeeded();
        assert!(output.stderr.contains("looks like a configuration of caddy"), "{output:?}");
        assert!(output.stdout.contains("redirect = \"/new\"  # a.caddy:1"), "{output:?}");
        let written = home.write("plimsoll.toml", &output.stdout);
        plimsoll(&["check", &written]).succeeded();
    }
}

#[test]
fn exit_codes() {
    let home = Home::new();
    let file = home.write("squid.conf", format!("{SMALL}no_such_thing on\n"));
    let output = plimsoll(&["import", "--from", "squid", &file]);
    assert_eq!(output.code, Some(1), "{output:?}");
    let note = "squid.conf:4: no_such_thing: not carried, and it kept requests out: ";
    assert!(output.stderr.contains(note), "{output:?}");
    assert!(output.stderr.contains("1 of the directives were not carried"), "{output:?}");
    assert!(output.stdout.contains("[[listen]]"), "{output:?}");
    let bad = home.write("nginx.conf", "http {\n");
    plimsoll(&["import", "--from", "nginx", &bad]).refused(&["nginx.conf:2: a { is not closed"]);
    let none = home.write("none.conf", "nothing here\n");
    plimsoll(&["import", &none]).refused(&["cannot guess", "--from"]);
    plimsoll(&["import", &home.at("missing")]).refused(&["cannot be read"]);
}

#[test]
fn included_files_are_read_beside_the_file() {
    let home = Home::new();
    std::fs::create_dir(home.path().join("conf.d")).unwrap();
    home.write("conf.d/b.conf", "http_access allow localhost\n");
    home.write("conf.d/.hidden.conf", "http_access allow all\n");
    home.write("domains", ".ads.example\n");
    let text = "http_port 127.0.0.1:3128\nacl ads dstdomain \"domains\"\nhttp_access deny ads\n\
                include conf.d/*.conf\nhttp_access deny all\n";
    let file = home.write("squid.conf", text);
    let output = plimsoll(&["import", &file]);
    for part in ["deny_domains = [\"ads.example\"]", "allow_from = [\"127.0.0.1/32\""] {
        assert!(output.stdout.contains(part), "{output:?}");
    }
}

#[test]
fn a_directory_that_cannot_be_read_is_not_an_empty_one() {
    let home = Home::new();
    home.write("conf.d", "not a directory\n");
    let file = home.write("squid.conf", format!("include conf.d/*.conf\n{SMALL}"));
    let output = plimsoll(&["import", &file]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stdout.contains("\nallow_from = []"), "{output:?}");
    let none = home.write("none.conf", format!("include missing.d/*.conf\n{SMALL}"));
    let output = plimsoll(&["import", &none]);
    assert!(output.stderr.contains("0 of the directives were not carried"), "{output:?}");
}

/// A pipe never ends, and one without a writer never begins.
#[test]
fn a_pipe_is_no_file() {
    let home = Home::new();
    let pipe = home.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let pipe = pipe.to_str().unwrap();
    plimsoll(&["import", "--from", "nginx", pipe]).refused(&["not a regular file"]);
    let file = home.write("nginx.conf", format!("http {{ include {pipe}; }}\n"));
    let output = plimsoll(&["import", "--from", "nginx", &file]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stderr.contains("it is not a regular file"), "{output:?}");
}
