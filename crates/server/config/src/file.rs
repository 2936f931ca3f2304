//! Reads a configuration file and converts it into the typed configuration.
//!
//! The file is read into [`Root`] key by key ([`super::keys`]). Here it becomes the typed
//! configuration, and is checked for mistakes that no single key shows. All mistakes of a file are
//! reported together.

use std::path::{Path, PathBuf};

use runtime::net::{shown, unix_path};
use toml::de::DeTable;

use super::Path as RoutePath;
use super::cluster::Waits;
use super::error_pages::ErrorPageTable;
use super::here::{Here, Reader};
use super::keys::{Root, ServerTable, StoreSection, UpstreamTable};
use super::maintenance::MaintenanceSection;
use super::peer_keys::{DigestSection, HtcpSection, IcpSection};
use super::problem::{Problem, Unusable};
use super::route_keys::{FieldTable, RouteTable};
use super::rule_keys::{ListTable, MapTable};
use super::table::{at_restart, read_table};
use super::tls_keys;
use super::{
    Acme, Action, Balance, Config, DiskConfig, FieldRule, Files, Group, HostSent, Listener, Route,
};
use crate::limits::QUOTAS_MAX;
use access_log::{LogFormat, SyslogTo};

/// The contents of a configuration file.
#[derive(Debug)]
pub struct Settings {
    /// Settings fixed when the process starts.
    pub process: Process,
    /// The file of the access log; `None`: no log.
    pub access_log: Option<PathBuf>,
    /// Where lines go instead of a file, and the code of their facility.
    pub syslog: Option<(SyslogTo, usize)>,
    /// The server's configuration.
    pub config: Config,
    root: Root,
}

/// Settings fixed when the process starts. A change needs a restart.
#[derive(Clone, Debug)]
pub struct Process {
    /// Number of serving threads; `None`: one per CPU that the process may run on.
    pub workers: Option<usize>,
    /// The event notification; `None`: the best one that passes its self-test.
    pub backend: Option<readiness::Kind>,
    /// The user to switch to after the addresses are bound.
    pub user: Option<String>,
    /// The group to switch to, if it is not the user's.
    pub group: Option<String>,
    /// The admin address.
    pub admin: Option<std::net::SocketAddr>,
}

impl Settings {
    /// Reads a file and the files it names.
    ///
    /// # Errors
    /// All mistakes in it.
    pub fn read(file: &Path) -> Result<Settings, Unusable> {
        let bytes = std::fs::read(file).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                let next = format!("{error}; to write one: plimsoll init --out {}", file.display());
                Unusable::unreadable(file, &next)
            }
            _ => Unusable::unreadable(file, &error),
        })?;
        let text = String::from_utf8(bytes)
            .map_err(|_| Unusable::unreadable(file, &"it is not UTF-8 text"))?;
        let base = file.parent().unwrap_or(Path::new(""));
        Settings::parse(&text, base).map_err(|problems| Unusable {
            file: file.to_path_buf(),
            problems,
            unreadable: None,
        })
    }

    /// Parses a text. Files that it names are relative to `base`.
    pub(crate) fn parse(text: &str, base: &Path) -> Result<Settings, Vec<Problem>> {
        let (table, errors) = DeTable::parse_recoverable(text);
        let mut reader = Reader::new(text, base);
        for error in &errors {
            reader.mistake(error.span().unwrap_or(0..0), error.message());
        }
        let mut root = Root::default();
        let mut here = Here::root(&mut reader);
        // Missing keys are not reported if the text is not valid TOML.
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
        let (access_log, syslog) = (root.log.path.clone(), root.log.syslog());
        Ok(Settings { process, access_log, syslog, config, root })
    }

    /// The keys that differ in `then` and need a restart to take effect.
    pub fn only_at_restart(&self, then: &Settings) -> Vec<String> {
        let mut found = Vec::new();
        at_restart(&self.root, &then.root, "", &mut found);
        found
    }
}

impl Root {
    /// The typed configuration. Anything missing from it was reported as a mistake.
    fn config(&self, here: &mut Here<'_, '_>) -> Config {
        // Files are read only if everything that names them was understood.
        let files = here.is_well();
        let listen = self.listen.iter().enumerate().filter(|_| files);
        let listeners: Vec<Listener> =
            listen.filter_map(|(at, table)| tls_keys::listener(table, at, here)).collect();
        let upstream = self.upstream.iter().enumerate().filter(|_| files);
        let groups: Vec<Group> = upstream
            .map(|(at, table)| tls_keys::group(table.group(), table.tls.as_ref(), at, here))
            .collect();
        let behind_tls = self.listen.iter().enumerate();
        let behind_tls = behind_tls.filter_map(|(at, one)| Some((at, one.tls.as_ref()?)));
        let behind_tls: Vec<_> = behind_tls.collect();
        let acme = super::acme::section(self.acme.as_ref(), &behind_tls, here);
        let https = tls_keys::https(&listeners, &self.https, here);
        let hierarchy = self.hierarchy.hierarchy(&self.peer, here);
        let mut routes = Vec::new();
        for (at, table) in self.route.iter().enumerate() {
            table.add_routes(&format!("route[{at}]"), &mut routes);
        }
        let parents = hierarchy.as_ref().and_then(|hierarchy| hierarchy.parents.as_ref());
        let origin = Waits::longest(&self.limits, groups.iter().chain(parents));
        let cluster = self.cluster.cluster(&listeners, origin, here);
        let mut config = Config {
            listeners,
            groups,
            routes,
            rules: self.rule.iter().enumerate().filter_map(|(at, one)| one.rule(at + 1)).collect(),
            error_pages: self.error_page.iter().filter_map(ErrorPageTable::page).collect(),
            maintenance: self.maintenance.as_ref().map(MaintenanceSection::maintenance),
            lists: self.list.iter().map(ListTable::list).collect(),
            maps: self.map.iter().map(MapTable::map).collect(),
            expects: self.expect.clone(),
            hierarchy,
            icp: self.icp.as_ref().and_then(IcpSection::server),
            htcp: self.htcp.as_ref().and_then(HtcpSection::server),
            digest: self.digest.as_ref().and_then(DigestSection::server),
            name_servers: self.dns.name_servers(),
            forward: self.forward.clone(),
            via: self.via.clone(),
            upgrades: self.upgrade.protocols.clone(),
            memory_bytes: self.store.memory,
            set_cookie: self.store.set_cookie,
            disk: self.store.disk(here),
            log_format: self
                .log
                .format
                .as_ref()
                .map_or_else(LogFormat::default, |f| f.value.clone()),
            request_id: self.request_id.clone(),
            limits: self.limits.clone(),
            purge: self.purge.clone(),
            quotas: self.quota.clone(),
            compression: self.compression.rules(),
            https,
            hash_seed: None,
            acme: acme.map(|acme| Acme { in_cluster: cluster.is_some(), ..acme }),
            cluster,
            dashboard_token: self.server.dashboard_token.as_ref().map(|file| file.token.clone()),
        };
        if let (Some(cluster), Some(first)) = (&config.cluster, config.listeners.first()) {
            config.listeners.push(cluster.listener(first.role));
        }
        if here.is_well() {
            self.check_whole(&config, here);
        }
        config
    }

    fn check_whole(&self, config: &Config, here: &mut Here<'_, '_>) {
        if config.listeners.is_empty() {
            here.mistake_of("listen", "there is no listener: write [[listen]] with an address");
        }
        for (at, listener) in config.listeners.iter().enumerate() {
            let before = &config.listeners[..at];
            let same = |other: &Listener| other.address == listener.address;
            let is_chosen = listener.address.port() == 0 && unix_path(listener.address).is_none();
            if !is_chosen && before.iter().any(same) {
                let text =
                    format!("{} is used by another listener already", shown(listener.address));
                here.mistake_of(&format!("listen[{at}].address"), text);
            }
        }
        let reverse = |listener: &Listener| listener.role == super::Role::Reverse;
        if config.groups.is_empty()
            && config.routes.is_empty()
            && let Some(at) = config.listeners.iter().position(reverse)
        {
            let text = "a reverse listener needs somewhere to send requests: write [[upstream]] or \
                        [[route]]";
            here.mistake_of(&format!("listen[{at}]"), text);
        }
        let mut names = hashbrown::HashSet::new();
        for (at, group) in config.groups.iter().enumerate() {
            if config.hierarchy.is_some() && group.name == super::PARENTS {
                let text = format!("the group of parents has the name `{}`", super::PARENTS);
                here.mistake_of(&format!("upstream[{at}].name"), text);
            }
            if !names.insert(group.name.as_str()) {
                let text = format!("there are two upstreams with the name `{}`", group.name);
                here.mistake_of(&format!("upstream[{at}].name"), text);
            } else if let Err(wrong) = super::routes::check_group(group) {
                here.mistake_of(&format!("upstream[{at}]"), wrong);
            }
        }
        for (at, quota) in config.quotas.iter().enumerate() {
            if config.quotas[..at].iter().any(|other| other.name == quota.name) {
                let text = format!("there are two quotas with the name `{}`", quota.name);
                here.mistake_of(&format!("quota[{at}].name"), text);
            } else if at == QUOTAS_MAX {
                here.mistake_of(&format!("quota[{at}]"), format!("at most {QUOTAS_MAX} quotas"));
            } else if let Err((key, wrong)) = quota.check_within(config) {
                here.mistake_of(&format!("quota[{at}].{key}"), wrong);
            }
        }
        for route in &config.routes {
            if let Err(wrong) = super::routes::check_route(route, &names) {
                let key = match (&route.action, super::routes::check_captures(route)) {
                    (_, Err((key, _))) => key,
                    (Action::Group(name), _) if !names.contains(name.as_str()) => "upstream",
                    _ => "",
                };
                here.mistake_of(&format!("{}.{key}", route.place), wrong);
            }
        }
        config.check_conditions(here);
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
        let balance = match self.balance {
            Balance::Hash { .. } => Balance::Hash { load_percent_max: self.load_percent_max },
            other => other,
        };
        Group {
            name: self.name.clone(),
            servers: self.server.iter().filter_map(ServerTable::server).collect(),
            balance,
            hash_by: self.hash_by.clone(),
            sticky: self.sticky.clone(),
            host: self.host.clone().map_or(HostSent::Client, HostSent::Named),
            forwarded: self.forwarded,
            timeouts: self.timeouts,
            retries: self.retries,
            queue: self.queue,
            health: self.health.clone(),
            ejection: self.ejection.clone(),
            proxy_header: self.proxy_header,
            protocol: self.protocol,
            reuse: self.reuse,
            slow_start: self.slow_start,
            is_of_members: false,
        }
    }
}

impl RouteTable {
    /// Adds the routes of its parts, and then its own: of two for the same requests, the one with a
    /// condition comes first.
    fn add_routes(&self, place: &str, routes: &mut Vec<Route>) {
        for (at, part) in self.parts.iter().enumerate() {
            part.add_routes(&format!("{place}.part[{at}]"), routes);
        }
        routes.extend(self.route(place));
    }

    /// `None` if its keys do not form a route; that was reported when they were read.
    fn route(&self, place: &str) -> Option<Route> {
        let path = match (&self.path, &self.prefix) {
            (Some(path), _) => path.value.clone(),
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
            // What is no file is not there.
            (None, None, None) if self.files.is_some() => {
                let body = "not found\n".to_owned();
                Action::Answer { status: self.status.unwrap_or(404), body }
            }
            (None, None, None) => return None,
        };
        let files =
            self.files.clone().map(|root| Box::new(Files { root, ..self.file_settings.clone() }));
        let rules = |rules: &[FieldTable]| -> Option<Vec<FieldRule>> {
            rules.iter().map(FieldTable::rule).collect()
        };
        Some(Route {
            place: place.to_owned(),
            hosts: self.hosts.iter().map(|host| host.value.clone()).collect(),
            path,
            when: self.when.clone(),
            action,
            files,
            request: rules(&self.request)?,
            response: rules(&self.response)?,
            guard: self.guard.clone(),
            upstream_path: self.upstream_path.clone(),
            body_bytes_max: self.body_bytes_max,
            timeouts: self.timeouts,
            locations: self.location.clone(),
            cookies: self.cookie.clone(),
            error_pages: self.error_page.iter().filter_map(ErrorPageTable::page).collect(),
            store: self.store,
            set_cookie: self.set_cookie,
            early_data: self.early_data,
            finish_abandoned: self.finish_abandoned,
            compression: self.compression,
            compress_passed: self.compress_passed,
            key: self.key.clone(),
            lifetimes: self.lifetime.clone(),
            negative: self.negative,
            peers: self.peers,
        })
    }
}

#[cfg(test)]
mod tests;
