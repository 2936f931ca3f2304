//! The examples for Docker Compose and Kubernetes: they are valid YAML, the program accepts their
//! arguments and configurations, and their ports and paths are those of the program.

use std::fs;
use std::net::SocketAddr;

use serde_json::Value;

use super::{repository, said};
use crate::support::{Home, OurServer, get, plimsoll};

/// The documents of a file in `packaging`, read by Python.
fn documents(name: &str) -> Vec<Value> {
    const READ: &str = "import json, sys, yaml
print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))";
    let path = repository().join("packaging").join(name);
    let read = said("python3", &["-c", READ, path.to_str().unwrap()]).succeeded();
    serde_json::from_str(&read.stdout).unwrap()
}

fn image() -> String {
    format!("plimsoll:{}", env!("CARGO_PKG_VERSION"))
}

/// The origin in the examples: its name exists only where they run.
const ORIGIN: &str = "http://web:80";

/// Checks a configuration, with an address for the name of the origin, and returns its listener and
/// its admin address.
fn checked(text: &Value) -> (SocketAddr, SocketAddr) {
    let home = Home::new();
    let text = text.as_str().unwrap();
    assert!(text.contains(ORIGIN), "{text}");
    let file = home.write("plimsoll.toml", text.replace(ORIGIN, "http://127.0.0.1:80"));
    let effects = plimsoll(&["check", "--json", &file]).succeeded().json();
    assert_eq!(effects["warnings"], serde_json::json!([]), "{effects}");
    let address = |value: &Value| value.as_str().unwrap().parse().unwrap();
    (address(&effects["listen"][0]["address"]), address(&effects["admin"]))
}

fn words(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect()
}

#[test]
fn the_example_for_compose_fits_the_image_and_the_program() {
    let [compose] = &documents("compose.yaml")[..] else { panic!("not one document") };
    let cache = &compose["services"]["cache"];
    assert_eq!(cache["image"], image());
    let (listen, admin) = checked(&compose["configs"]["plimsoll"]["content"]);
    assert_eq!(cache["ports"], serde_json::json!([format!("8080:{}", listen.port())]));
    assert_eq!(cache["configs"][0]["target"], "/etc/plimsoll/plimsoll.toml");
    assert_eq!(cache["configs"][0]["source"], "plimsoll");
    // Compose refuses the two together.
    assert!(cache["read_only"].is_null());
    assert!(compose["services"]["web"].is_object());
    let test = words(&cache["healthcheck"]["test"]);
    assert_eq!(test[..2], ["CMD", "/usr/bin/plimsoll"]);
    assert!(admin.ip().is_loopback() && test.contains(&admin.to_string().as_str()), "{test:?}");
    // The program knows these flags: it says only that no server answers, on a port without one.
    let unused = test.iter().map(|word| word.replace("3129", "1")).skip(2).collect::<Vec<_>>();
    plimsoll(&unused).refused(&["no metrics from 127.0.0.1:1"]);
}

#[test]
fn the_example_for_kubernetes_fits_the_image_and_the_program() {
    let all = documents("kubernetes.yaml");
    let kinds: Vec<&str> = all.iter().map(|one| one["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ConfigMap", "Deployment", "Service", "NetworkPolicy"]);
    let [map, deployment, service, policy] = &all[..] else { panic!("{kinds:?}") };
    let (listen, admin) = checked(&map["data"]["plimsoll.toml"]);
    let template = &deployment["spec"]["template"];
    let pod = &template["spec"];
    let container = &pod["containers"][0];
    assert_eq!(container["image"], image());
    assert_eq!(words(&container["args"]), ["serve", "-c", "/etc/plimsoll/plimsoll.toml"]);
    assert_eq!(container["volumeMounts"][0]["mountPath"], "/etc/plimsoll");
    assert_eq!(pod["volumes"][0]["configMap"]["name"], map["metadata"]["name"]);
    let port = |name: &str| {
        let ports = container["ports"].as_array().unwrap();
        ports.iter().find(|port| port["name"] == name).unwrap()["containerPort"].clone()
    };
    assert_eq!((port("http"), port("admin")), (listen.port().into(), admin.port().into()));
    assert!(listen.ip().is_unspecified() && admin.ip().is_unspecified());
    let labels = &template["metadata"]["labels"];
    for selector in [
        &deployment["spec"]["selector"]["matchLabels"],
        &service["spec"]["selector"],
        &policy["spec"]["podSelector"]["matchLabels"],
    ] {
        assert_eq!(selector, labels);
    }
    assert_eq!(service["spec"]["ports"][0]["targetPort"], "http");

    // What probes and Prometheus ask for is there.
    let notes = &template["metadata"]["annotations"];
    assert_eq!(notes["prometheus.io/port"], admin.port().to_string());
    let server = OurServer::serve(&["--forward", "--admin", "127.0.0.1:0"]);
    let mut paths = vec![notes["prometheus.io/path"].as_str().unwrap()];
    for probe in ["readinessProbe", "livenessProbe"] {
        let ask = &container[probe]["httpGet"];
        assert_eq!(ask["port"], "admin");
        paths.push(ask["path"].as_str().unwrap());
    }
    for path in paths {
        let answer = get(server.admin(), path);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
    }
}

#[test]
fn every_example_in_the_configuration_of_the_package_is_valid() {
    let text = fs::read_to_string(repository().join("packaging/plimsoll.toml")).unwrap();
    // Each example is a comment whose lines are tables, or keys with values.
    let lines = text.lines().map(|line| match line.strip_prefix("# ") {
        Some(code) if code.starts_with('[') || code.contains(" = ") => code,
        _ => line,
    });
    let all = lines.collect::<Vec<_>>().join("\n");
    let home = Home::new();
    let all = all.replace("/var/log/plimsoll/access.log", &home.at("access.log"));
    let all = all.replace("/var/cache/plimsoll/store", &home.at("store"));
    let checked = plimsoll(&["check", "--json", &home.write("p.toml", all)]).succeeded().json();
    let listen = checked["listen"].as_array().unwrap();
    let roles: Vec<&Value> = listen.iter().map(|one| &one["role"]).collect();
    assert_eq!(roles, ["reverse", "forward"]);
}
