//! The image: its layout is read by a second implementation, and the program in it is run as the
//! image says.

use std::fs;

use serde_json::Value;

use super::root::Root;
use super::{PACKED, said, shown};
use crate::support::Home;

/// Reads the archive with Python's own libraries, checks it, and unpacks the layers.
const READER: &str = include_str!("read_image.py");

/// The configuration of the image, whose files are now in `rootfs` of the home.
fn unpacked(home: &Home) -> Value {
    fs::create_dir(home.path().join("rootfs")).unwrap();
    let script = home.write("read_image.py", READER);
    said("python3", &[&script, shown(&PACKED.image), &home.at("rootfs")]).succeeded().json()
}

fn words(list: &Value) -> String {
    let words = list.as_array().unwrap().iter().map(|word| word.as_str().unwrap());
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn the_image_serves_and_its_health_check_notices_when_it_does_not() {
    let home = Home::new();
    let config = unpacked(&home);
    let run = &config["config"];
    assert_eq!(run["User"], format!("{0}:{0}", packages::IMAGE_USER));
    assert_eq!(config["os"], "linux");
    let Some(root) = Root::new(&home) else { return };
    let serve = format!("{} {}", words(&run["Entrypoint"]), words(&run["Cmd"]));
    let health = words(&run["Healthcheck"]["Test"]);
    let health = health.strip_prefix("CMD ").unwrap();
    // A container's engine mounts these, and drops what the image does not need.
    let inside =
        format!("chroot --userspec={} {}", run["User"].as_str().unwrap(), home.at("rootfs"));
    let output = root
        .run(&format!(
            "cd {rootfs}; mkdir dev proc; mount --rbind /dev dev; mount -t proc proc proc
             {inside} {health} && exit 1
             {inside} {serve} && exit 1
             printf '[[listen]]\\naddress = \"127.0.0.1:8080\"\\nrole = \"forward\"\\n' \\
                 >> etc/plimsoll/plimsoll.toml
             printf '[store]\\npath = \"/var/cache/plimsoll/store\"\\nbytes = \"64M\"\\n' \\
                 >> etc/plimsoll/plimsoll.toml
             {inside} {serve} & server=$!
             until {inside} {health} > /dev/null 2>&1; do sleep 0.1; done
             grep '^Uid:.*{user}' /proc/$server/status
             kill $server && wait $server
             ls var/cache/plimsoll && echo done",
            rootfs = home.at("rootfs"),
            user = packages::IMAGE_USER,
        ))
        .succeeded();
    assert!(output.stdout.ends_with("store\ndone\n"), "{output:?}");
    assert!(output.stderr.contains("there is no listener"), "{output:?}");
}
