//! Rules and their conditions from the file to the client, and the three ways to ask about them
//! beforehand: `check --request`, `[[expect]]` and `explain`.

use std::process::Command;

use crate::support::{Home, OurServer, SOON, plimsoll, program, run};

/// Rules in front of an origin.
fn ruled(home: &Home, origin: &OurServer, more: &str) -> String {
    home.write("closed.html", "<h1>closed</h1>\n");
    home.write("office.txt", "# the office\n192.0.2.0/24\n");
    let url = origin.url();
    home.write(
        "plimsoll.toml",
        format!(
            r#"
[server]
admin = "127.0.0.1:0"
[[listen]]
address = "127.0.0.1:0"
name = "outside"
[[upstream]]
name = "site"
server = [{{ url = "{url}" }}]
[[list]]
name = "office"
file = "office.txt"
[[rule]]
name = "https"
when = "listener == 'outside' && path.startsWith('/login')"
redirect = "https://{{host}}"
with_path = true
[[rule]]
name = "closed"
when = "path.startsWith('/shop') && !client.within(office)"
answer_file = "closed.html"
status = 503
response = [{{ set = "Retry-After", value = "60" }}]
[[rule]]
name = "short"
when = "path.startsWith('/obj/') && status == 200"
response = [{{ set = "X-Rule", value = "{{host}} {{upstream}}" }}]
{more}
"#
        ),
    )
}

#[test]
fn rules_are_asked_about_and_then_apply() {
    let (home, origin) = (Home::new(), OurServer::origin());
    let expects = "[[expect]]\nrequest = 'GET http://a/shop/x'\nanswer = 503\n\
                   [[expect]]\nrequest = 'GET http://a/shop/x'\nfrom = '192.0.2.7'\nupstream = 'site'\n";
    let file = ruled(&home, &origin, expects);
    plimsoll(&["check", &file]).succeeded();
    let asked = ["check", &file, "--request", "GET http://a/%73hop", "--from", "198.51.100.1"];
    let said = plimsoll(&asked).succeeded().stdout;
    for words in ["closed", "holds", "yes", "these rules apply: closed", "answered with 503"] {
        assert!(said.contains(words), "no {words:?} in {said}");
    }
    let json = plimsoll(&[&asked[..], &["--json"]].concat()).json();
    assert_eq!(json["rules"][0], "closed", "{json}");
    assert_eq!(json["status"], 503, "{json}");
    plimsoll(&["check", &file, "--request", "GET a"]).refused(&["is not a method and a URL"]);

    let server = OurServer::configured(&file);
    let curl = |path: &str| {
        let mut curl = Command::new(program("curl", "curl"));
        curl.args(["-s", "-i", "--path-as-is"]).arg(format!("http://{}{path}", server.address()));
        run(curl, SOON).succeeded().stdout
    };
    let redirected = curl("/login?next=a");
    assert!(redirected.starts_with("HTTP/1.1 308 "), "{redirected}");
    assert!(redirected.contains("Location: https://127.0.0.1/login?next=a\r\n"), "{redirected}");
    for path in ["/shop/", "/%73hop", "/x/../shop", "//shop"] {
        let closed = curl(path);
        assert!(closed.starts_with("HTTP/1.1 503 ") && closed.ends_with("<h1>closed</h1>\n"));
        assert!(closed.contains("Content-Type: text/html; charset=utf-8\r\n"), "{closed}");
        assert!(closed.contains("Retry-After: 60\r\n"), "{closed}");
    }
    for _ in 0..2 {
        let got = curl("/obj/1?size=10");
        assert!(got.contains("X-Rule: 127.0.0.1 site\r\n"), "{got}");
    }
    let url = format!("http://{}/obj/1?size=10", server.address());
    let admin = server.admin().to_string();
    let said = plimsoll(&["explain", &url, "--admin", &admin]).succeeded().stdout;
    for words in ["rule closed", "does not hold: path.startsWith('/shop')", "is asked when"] {
        assert!(said.contains(words), "no {words:?} in {said}");
    }
}

#[test]
fn a_file_that_does_not_meet_its_expectations_is_not_served() {
    let (home, origin) = (Home::new(), OurServer::origin());
    let met = "[[expect]]\nrequest = 'GET http://a/obj/1'\nrules = ['short']\nstore = true\n";
    let file = ruled(&home, &origin, met);
    let server = OurServer::configured(&file);
    let unmet = "[[expect]]\nrequest = 'GET http://a/login'\nupstream = 'site'\n";
    assert_eq!(ruled(&home, &origin, unmet), file);
    let checked = plimsoll(&["check", &file]);
    assert_eq!(checked.code, Some(1), "{checked:?}");
    let words = "expect[0] (GET http://a/login): it gets a redirect to https://a/login (308), and \
                 the upstream site is expected";
    assert!(checked.stderr.contains(words), "{checked:?}");
    let served = plimsoll(&["serve", "-c", &file]);
    assert!(served.code == Some(2) && served.stderr.contains(words), "{served:?}");
    let reloaded = plimsoll(&["reload", "--admin", &server.admin().to_string()]);
    assert!(reloaded.code != Some(0) && reloaded.stderr.contains(words), "{reloaded:?}");
}
