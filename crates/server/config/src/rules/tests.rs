//! Conditions and rules that are mistakes, and what the mistakes say.

use std::path::Path;

use crate::{Config, Settings};

const BEGIN: &str = "[[listen]]\naddress = '127.0.0.1:80'\nname = 'outside'\n\
    [[upstream]]\nname = 'site'\nserver = [{ url = 'http://127.0.0.1:8000' }]\n\
    [[list]]\nname = 'office'\nvalues = ['10.0.0.0/8']\n\
    [[map]]\nname = 'shops'\nentries = ['a.example de', 'b.example  fr']\n";

fn parse(text: &str) -> Result<Config, String> {
    let settings = Settings::parse(&format!("{BEGIN}{text}"), Path::new("/etc/plimsoll"));
    settings.map(|settings| settings.config).map_err(|problems| {
        let one = |problem: crate::Problem| format!("{}: {}\n", problem.line, problem.message);
        problems.into_iter().map(one).collect()
    })
}

#[test]
fn rules_are_read() {
    let config = parse(
        "[[rule]]\nwhen = \"client.within(office) && shops[host] == 'de'\"\nanswer = 'no'\n\
         [[rule]]\nname = 'b'\nwhen = \"path.matches('^/(?P<a>.*)$')\"\nrewrite = '/x/{a}'\n\
         [[rule]]\nwhen = 'status >= 500'\nttl = '1s'\ngrace = '2s'\n\
         [[route]]\nwhen = \"method == 'POST'\"\nupstream = 'site'\nstore = false\n\
         [[route]]\nupstream = 'site'\n\
         [[quota]]\nname = 'q'\nrequests = '1/s'\nwhen = \"method == 'POST'\"\n\
         [[expect]]\nrequest = 'GET http://a/'\nupstream = 'site'\n",
    );
    let config = config.unwrap();
    let names: Vec<&str> = config.rules.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(names, ["1", "b", "3"]);
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(config.maps[0].1, [pair("a.example", "de"), pair("b.example", "fr")]);
    assert_eq!(config.listeners[0].name.as_deref(), Some("outside"));
    assert_eq!(config.expects.len(), 1);
}

#[test]
fn mistakes_of_conditions_have_a_place_and_a_reason() {
    for (text, line, what) in [
        ("[[rule]]\nwhen = 'pth == \"/\"'\nstore = false", 14, "did you mean `path`"),
        ("[[rule]]\nwhen = 'path =='\nstore = false", 14, ""),
        ("[[rule]]\nwhen = 'status == 999'\nstore = false", 14, ""),
        ("[[rule]]\nwhen = 'path in home'\nstore = false", 14, "home"),
        ("[[rule]]\nwhen = 'port == 80'", 13, "does nothing"),
        ("[[rule]]\nstore = false", 13, "`when` is missing"),
        ("[[rule]]\nwhen = ' '\nstore = false", 14, "a condition is not empty"),
        ("[[rule]]\nwhen = 'port == 80'\nupstream = 'none'\nstore = false", 15, "no group"),
        ("[[rule]]\nwhen = 'status == 404'\nredirect = '/'", 15, "was sent before it"),
        ("[[rule]]\nwhen = 'status == 404'\nrequest = [{ remove = 'A' }]", 15, "was sent before"),
        ("[[rule]]\nwhen = 'port == 80'\nredirect = 'https://{client}.example'", 15, "host"),
        ("[[rule]]\nwhen = 'port == 80'\nredirect = '{path}'", 15, "cannot begin a location"),
        ("[[rule]]\nwhen = 'port == 80'\nredirect = '/{none}'", 15, "nothing captures {none}"),
        ("[[rule]]\nwhen = 'port == 80'\nrewrite = '/{client}'\nstore = false", 15, "may repeat"),
        ("[[rule]]\nwhen = 'port == 80'\nstrip_prefix = 'api/'\nstore = false", 15, "a prefix"),
        ("[[rule]]\nwhen = 'port == 80'\nrequest = [{ set = 'Host', value = 'a' }]", 15, "framed"),
        (
            "[[rule]]\nwhen = 'port == 80'\nstatus = 301\nstore = false",
            15,
            "for redirect or answer",
        ),
        ("[[rule]]\nwhen = 'port == 80'\noverrule = true\nstore = false", 15, "there is no ttl"),
        ("[[list]]\nname = 'path'\nvalues = ['a']", 14, "path"),
        ("[[list]]\nname = 'l'", 13, "this list is empty"),
        ("[[list]]\nname = 'l'\nfile = 'none.txt'", 15, "none.txt"),
        ("[[expect]]\nrequest = 'GET http://a/'", 13, "names no outcome"),
    ] {
        let found = parse(text).unwrap_err();
        assert!(found.starts_with(&format!("{line}: ")) && found.contains(what), "{text}: {found}");
        assert_eq!(found.lines().count(), 1, "{text}: {found}");
    }
}

/// A stored response is for all requests of a key.
#[test]
fn a_stored_response_cannot_depend_on_what_differs_between_requests() {
    let reads = [
        "client == '192.0.2.1'",
        "'a' in cookies",
        "fields['a'] == 'b'",
        "random < 0.5",
        "listener == 'outside'",
        "tls.sni == 'a'",
    ];
    for when in reads {
        for does in [
            "upstream = 'site'",
            "request = [{ set = 'X-A', value = 'b' }]",
            "response = [{ set = 'X-A', value = 'b' }]",
            "strip_prefix = '/a'",
            "ttl = '1h'",
        ] {
            let rule = format!("[[rule]]\nwhen = \"{when}\"\n{does}\n");
            let found = parse(&rule).unwrap_err();
            assert!(found.contains("is stored for all clients"), "{rule}: {found}");
            let rule = format!("{rule}store = false\n");
            assert!(parse(&rule).is_ok(), "{rule}: {:?}", parse(&rule).err());
        }
        let late = format!("[[rule]]\nwhen = \"{when} && status == 200\"\nstore = false");
        assert!(parse(&late).unwrap_err().contains("is stored for all clients"), "{late}");
        let route = format!("[[route]]\nwhen = \"{when}\"\nupstream = 'site'\n");
        assert!(parse(&route).unwrap_err().contains("write store = false too"), "{route}");
        assert!(parse(&format!("{route}store = false\n")).is_ok(), "{route}");
        let answer = format!("[[rule]]\nwhen = \"{when}\"\nanswer = 'no'");
        assert!(parse(&answer).is_ok(), "{answer}");
    }
    let personal =
        "[[rule]]\nwhen = \"path == '/'\"\nresponse = [{ set = 'A', value = '{client}' }]";
    assert!(parse(personal).unwrap_err().contains("of one client"));
    let lifetime = "[[route]]\nupstream = 'site'\n[[route.lifetime]]\nttl = '1h'\n";
    let with = |when: &str| parse(&format!("{lifetime}when = \"{when}\"\n"));
    assert!(with("'a' in cookies").unwrap_err().contains("is stored for all clients"));
    assert!(with("path.endsWith('.css') && status == 200").is_ok());
    let quota = |when: &str| {
        parse(&format!("[[quota]]\nname = 'q'\nrequests = '1/s'\nwhen = \"{when}\"\n"))
    };
    for unknown in ["tls.sni == 'a'", "random < 0.5", "user == 'a'"] {
        assert!(
            quota(unknown).unwrap_err().contains("a quota judges a request before"),
            "{unknown}"
        );
    }
}

/// The same of a route that leads to no upstream by itself: a rule may lead its requests to one.
#[test]
fn what_is_of_one_client_is_found_where_only_a_rule_leads_to_an_upstream() {
    let led = "[[rule]]\nwhen = \"path == '/x'\"\nupstream = 'site'\n";
    let not_stored = format!("{led}store = false\n");
    for (does, what) in [
        ("response = [{ set = 'X-A', value = '{cookie.uid}' }]", "of one client"),
        ("request = [{ set = 'Cookie', value = 'a={client}' }]", "a login"),
        (
            "when = \"client == '10.0.0.1'\"\nresponse = [{ set = 'X-A', value = 'b' }]",
            "write store = false too",
        ),
    ] {
        let route = format!("[[route]]\nanswer = 'no'\n{does}\n");
        let wrong = parse(&format!("{route}{led}")).unwrap_err();
        assert!(wrong.contains(what), "{does}: {wrong}");
        assert!(parse(&format!("{route}store = false\n{led}")).is_ok(), "{does}");
        assert!(parse(&format!("{route}{not_stored}")).is_ok(), "{does}");
        assert!(parse(&route).is_ok(), "{does}: nothing leads to an upstream");
    }
    let plain = format!("[[route]]\nanswer = 'no'\nwhen = \"client == '10.0.0.1'\"\n{led}");
    assert!(parse(&plain).is_ok(), "it changes nothing");
}

/// As rules that `check` had accepted and that leaked one client's response to others.
#[test]
fn a_changed_message_of_one_client_is_not_stored() {
    let rule = |does: &str| format!("[[rule]]\nwhen = \"path == '/'\"\n{does}\n");
    let route = |does: &str| format!("[[route]]\nupstream = 'site'\n{does}\n");
    for (text, what) in [
        (rule("request = [{ set = 'Authorization', value = 'Bearer {cookie.t}' }]"), "a login"),
        (route("request = [{ set = 'Cookie', value = 'a={client}' }]"), "a login"),
        (route("response = [{ set = 'X-A', value = '{cookie.uid}' }]"), "of one client"),
        (rule("response = [{ set = 'X-A', value = '{port}' }]"), "of one client"),
    ] {
        assert!(parse(&text).unwrap_err().contains(what), "{text}");
        assert!(parse(&format!("{text}store = false\n")).is_ok(), "{text}");
    }
    let by_query = "[[rule]]\nwhen = \"args['utm_x'] != ''\"\nupstream = 'site'\n";
    let drops = "[[route]]\nupstream = 'site'\nquery_drop = ['utm_*']\n";
    assert!(parse(&format!("{by_query}{drops}")).unwrap_err().contains("differ in their query"));
    assert!(parse(by_query).is_ok());
    for name in ["host", "Year", "path"] {
        let text = format!(
            "[[rule]]\nwhen = \"path.matches('^/(?P<{name}>.*)$')\"\nredirect = 'https://a/'\n"
        );
        assert!(parse(&text).unwrap_err().contains("is not a name for a capture"), "{text}");
    }
}

/// `check` had accepted files whose conditions were then left out.
#[test]
fn as_many_conditions_as_are_compiled_together_are_accepted() {
    let routes = (0..520).map(|at| {
        format!("[[route]]\npath = '/{at}'\nwhen = \"args['a'] == '{at}'\"\nupstream = 'site'\n")
    });
    let found = parse(&routes.collect::<String>()).unwrap_err();
    assert!(found.contains("512"), "{found}");
}

#[test]
fn what_an_earlier_one_hides_is_a_mistake() {
    let rules = |first: &str, second: &str| {
        parse(&format!(
            "[[rule]]\nwhen = \"{first}\"\nanswer = 'a'\n\
             [[rule]]\nwhen = \"{second}\"\nanswer = 'b'\n"
        ))
    };
    let found = rules("path == '/a'", "path == '/a' && method == 'GET'").unwrap_err();
    assert!(found.starts_with("17: this rule never decides"), "{found}");
    assert!(rules("path == '/a' && method == 'GET'", "path == '/a'").is_ok());
    let routes = |first: &str, second: &str| {
        parse(&format!(
            "[[route]]\nprefix = '/a'\nupstream = 'site'\nstore = false\n{first}\n\
             [[route]]\nprefix = '/a'\nupstream = 'site'\nstore = false\n{second}\n"
        ))
    };
    let when = "when = \"method == 'POST'\"";
    assert!(routes("", when).unwrap_err().contains("this route is never taken"));
    assert!(routes(when, when).unwrap_err().contains("this route is never taken"));
    assert!(routes(when, "").is_ok());
}
