//! What `plimsoll` and `plimsoll serve` print without arguments: the lines to type first.
//!
//! Each line that begins with four spaces works as printed, in this order. A line that ends with
//! `\` continues in the next line. An end-to-end test runs these lines.

use std::ffi::OsString;

const HOME: &[&str] = &[
    "\
Plimsoll is a caching HTTP proxy, and it measures what a live server can carry.

Run a cache in front of a server. Then look at Cache-Status in its responses:
    plimsoll serve --listen 127.0.0.1:3128 --origin http://127.0.0.1:8000
",
    #[cfg(feature = "measure")]
    "
Measure a live server, without stopping or changing it. Its name is that of its process:
    plimsoll record --name nginx --access-log /var/log/nginx/access.log \\
        --for 60s -o before.trial
    plimsoll report before.trial --html before.html

Predict what a change would bring. Make the change, record again, and compare:
    plimsoll what-if before.trial --group file-io --scale 0
    plimsoll record --name nginx --access-log /var/log/nginx/access.log \\
        --for 60s -o after.trial
    plimsoll compare before.trial after.trial
",
    #[cfg(not(feature = "measure"))]
    "
This build has no commands that measure: `plimsoll version` shows its features.
",
    "
Make a program that waits with select() or poll() scale, without building it again:
    plimsoll boost -- python3 -m http.server 8000
",
    #[cfg(feature = "measure")]
    "
Without a server, plimsoll demo shows a whole measurement in a minute.
",
    "
Usage: plimsoll COMMAND [FLAGS]    plimsoll --help lists the commands
",
];

const SERVE: &str = "\
plimsoll: serve needs an address and a server. The shortest lines that work:

A cache in front of a server:
    plimsoll serve --listen 127.0.0.1:3128 --origin http://127.0.0.1:8000

A proxy that your own clients are configured to use:
    plimsoll serve --listen 127.0.0.1:3128 --forward

Either of them from a file, which can express much more:
    plimsoll init reverse --origin http://127.0.0.1:8000
    plimsoll serve -c plimsoll.toml

See plimsoll serve --help
";

/// The screen for these arguments, if there is one. The exit code is that of a usage error.
pub(crate) fn screen(arguments: &[OsString]) -> Option<String> {
    match arguments {
        [] => Some(HOME.concat()),
        [verb] if verb == "serve" => Some(SERVE.to_owned()),
        _ => None,
    }
}
