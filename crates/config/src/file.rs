//! A configuration file, read: from its text to what the server is to do.
//!
//! What stands in the file is read into [`Root`] key by key ([`super::keys`]); here it becomes the
//! typed configuration, and what no single key can show is looked for. All mistakes of a file are
//! told at once.

use std::path::{Path, PathBuf};

use toml::de::DeTable;

use super::Path as RoutePath;
use super::keys::{Root, RouteTable, StoreSection, UpstreamTable};
use super::problem::{Problem, Unusable};
use super::table::{Here, Reader, Table, at_restart, read_table};
use super::tls_keys;
use super::{
    Action, Balance, Config, DiskConfig, FieldRule, Group, HostSent, Listener, Route, Server,
};
use access_log::LogFormat;

/// All that a configuration file says.
#[derive(Debug)]
pub struct Settings {
    /// What is settled when the process starts.
    pub process: Process,
    /// Where the access log goes; nowhere if there is no file.
    pub access_log: Option<PathBuf>,
    /// What the server does.
    pub config: Config,
    root: Root,
}

/// What is settled when the process starts, and needs another one to change.
#[derive(Clone, Debug)]
pub struct Process {
    /// Threads that serve; none: as many as the CPUs it may run on.
    pub workers: Option<usize>,
    /// The event notification; none: the best that passes its self-test.
    pub backend: Option<readiness::Kind>,
    /// The user to go on as once the addresses are bound.
    pub user: Option<String>,
    /// That user's group, if it is not its own.
    pub group: Option<String>,
    /// Where the admin address is.
    pub admin: Option<std::net::SocketAddr>,
}

impl Settings {
    /// Reads a file, and the files that it names.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn read(file: &Path) -> Result<Settings, Unusable> {
        let bytes = std::fs::read(file).map_err(|error| Unusable::unreadable(file, &error))?;
        let text = String::from_utf8(bytes)
            .map_err(|_| Unusable::unreadable(file, &"it is not UTF-8 text"))?;
        let base = file.parent().unwrap_or(Path::new(""));
        Settings::parse(&text, base).map_err(|problems| Unusable {
            file: file.to_path_buf(),
            problems,
            unreadable: None,
        })
    }

    /// Reads a text; the files that it names are looked for below `base`.
    pub(crate) fn parse(text: &str, base: &Path) -> Result<Settings, Vec<Problem>> {
        let (table, errors) = DeTable::parse_recoverable(text);
        let mut reader = Reader::new(text, base);
        for error in &errors {
            reader.mistake(error.span().unwrap_or(0..0), error.message());
        }
        let mut root = Root::blank();
        let mut here = Here::root(&mut reader);
        // What is half a file is not judged by what it lacks.
        if errors.is_empty() {
            read_table(&mut root, table.get_ref(), &mut here);
        }
        let config = root.config(&mut here);
        let problems = reader.problems();
        if !problems.is_empty() {
            return Err(problems);
        }
        let server = &root.server;
        let process = Process {
            workers: server.workers,
            backend: server.backend.map(|backend| backend.0),
            user: server.user.clone(),
            group: server.group.clone(),
            admin: server.admin,
        };
        Ok(Settings { process, access_log: root.log.path.clone(), config, root })
    }

    /// The keys that differ in `then` and that only a restart puts in force.
    pub fn only_at_restart(&self, then: &Settings) -> Vec<String> {
        let mut found = Vec::new();
        at_restart(&self.root, &then.root, "", &mut found);
        found
    }
}

impl Root {
    /// The typed configuration. What is missing from it has been noted as a mistake.
    fn config(&self, here: &mut Here<'_, '_>) -> Config {
        // Files are looked for only when all that names them is understood.
        let files = here.is_well();
        let listen = self.listen.iter().enumerate().filter(|_| files);
        let listeners: Vec<Listener> =
            listen.filter_map(|(at, table)| tls_keys::listener(table, at, here)).collect();
        let upstream = self.upstream.iter().enumerate().filter(|_| files);
        let groups: Vec<Group> = upstream
            .map(|(at, table)| tls_keys::group(table.group(), table.tls.as_ref(), at, here))
            .collect();
        let https = tls_keys::https(&listeners, &self.https, here);
        let routes: Vec<Route> = self.route.iter().filter_map(RouteTable::route).collect();
        let config = Config {
            listeners,
            groups,
            routes,
            name_servers: self.dns.name_servers(),
            forward: self.forward.clone(),
            via: self.via.clone(),
            upgrades: self.upgrade.protocols.clone(),
            memory_bytes: self.store.memory,
            disk: self.store.disk(here),
            log_format: self
                .log
                .format
                .as_ref()
                .map_or_else(LogFormat::default, |f| f.value.clone()),
            limits: self.limits.clone(),
            purge: self.purge.clone(),
            https,
            hash_seed: None,
        };
        if here.is_well() {
            self.check_whole(&config, here);
        }
        config
    }

    fn check_whole(&self, config: &Config, here: &mut Here<'_, '_>) {
        if config.listeners.is_empty() {
            here.mistake_of("listen", "nothing is listened on: write [[listen]] with an address");
        }
        for (at, listener) in config.listeners.iter().enumerate() {
            let before = &config.listeners[..at];
            let same = |other: &Listener| other.address == listener.address;
            if listener.address.port() != 0 && before.iter().any(same) {
                let text = format!("{} is listened on already", listener.address);
                here.mistake_of(&format!("listen[{at}].address"), text);
            }
        }
        let reverse = |listener: &Listener| listener.role == super::Role::Reverse;
        if config.groups.is_empty()
            && let Some(at) = config.listeners.iter().position(reverse)
        {
            let text = "a reverse listener needs somewhere to send requests: write [[upstream]]";
            here.mistake_of(&format!("listen[{at}]"), text);
        }
        let mut names = hashbrown::HashSet::new();
        for (at, group) in config.groups.iter().enumerate() {
            if !names.insert(group.name.as_str()) {
                let text = format!("there are two upstreams with the name `{}`", group.name);
                here.mistake_of(&format!("upstream[{at}].name"), text);
            } else if let Err(wrong) = super::routes::check_group(group) {
                here.mistake_of(&format!("upstream[{at}]"), wrong);
            }
        }
        for (at, route) in config.routes.iter().enumerate() {
            if let Err(wrong) = super::routes::check_route(route, &names) {
                let key = match &route.action {
                    Action::Group(name) if !names.contains(name.as_str()) => ".upstream",
                    _ => "",
                };
                here.mistake_of(&format!("route[{at}]{key}"), wrong);
            }
        }
    }
}

impl StoreSection {
    fn disk(&self, here: &mut Here<'_, '_>) -> Option<DiskConfig> {
        match DiskConfig::of(self.path.as_ref()?, self.bytes) {
            Ok(disk) => Some(DiskConfig { verify: self.verify, ..disk }),
            Err(wrong) => {
                here.mistake_of("store.bytes", wrong);
                None
            }
        }
    }
}

impl UpstreamTable {
    fn group(&self) -> Group {
        let server = |server: &super::keys::ServerTable| {
            let origin = server.url.as_ref()?.value.clone();
            let (weight, backup) = (server.weight, server.backup);
            Some(Server { origin, weight, backup, outstanding_max: server.outstanding_max })
        };
        let balance = match self.balance {
            Balance::Hash { .. } => Balance::Hash { load_percent_max: self.load_percent_max },
            other => other,
        };
        Group {
            name: self.name.clone(),
            servers: self.server.iter().filter_map(server).collect(),
            balance,
            host: self.host.clone().map_or(HostSent::Client, HostSent::Named),
            forwarded: self.forwarded,
            timeouts: self.timeouts,
            retries: self.retries,
            queue: self.queue,
            health: self.health.clone(),
            ejection: self.ejection.clone(),
            proxy_header: self.proxy_header,
            slow_start: self.slow_start,
        }
    }
}

impl RouteTable {
    /// `None` when its keys do not make one; that was noted when they were read.
    fn route(&self) -> Option<Route> {
        let path = match (&self.path, &self.prefix) {
            (Some(path), _) => RoutePath::Exact(path.clone()),
            (None, Some(prefix)) => RoutePath::Prefix(prefix.clone()),
            (None, None) => RoutePath::Prefix("/".to_owned()),
        };
        let action = match (&self.upstream, &self.redirect, &self.answer) {
            (Some(name), ..) => Action::Group(name.clone()),
            (None, Some(location), _) => Action::Redirect {
                status: self.status.unwrap_or(308),
                location: location.clone(),
                with_path: self.with_path,
            },
            (None, None, Some(body)) => {
                Action::Answer { status: self.status.unwrap_or(200), body: body.clone() }
            }
            (None, None, None) => return None,
        };
        let rules = |rules: &[super::keys::FieldTable]| -> Option<Vec<FieldRule>> {
            rules.iter().map(super::keys::FieldTable::rule).collect()
        };
        Some(Route {
            hosts: self.hosts.iter().map(|host| host.value.clone()).collect(),
            path,
            action,
            request: rules(&self.request)?,
            response: rules(&self.response)?,
            store: self.store,
        })
    }
}

#[cfg(test)]
mod tests;
