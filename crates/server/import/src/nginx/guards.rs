//! `auth_basic`, `auth_request` and `satisfy`: who may use a location.

use super::Nginx;
use super::actions::wanted;
use super::blocks::{Directive, named};
use super::scope::{Scope, Server};
use imported::route::Path;
use imported::table::is_one;
use imported::tree::Section;

/// The guard of a location.
#[derive(Clone, Debug, Default)]
pub(super) struct Guard {
    /// The file of users, and the realm.
    users: Option<(String, String)>,
    /// The upstream that is asked, and the path.
    service: Option<(String, String)>,
    /// The networks that need no login.
    networks: Option<Vec<String>>,
}

/// The guard of a location. Writes the notes. `Err`: a part of the guard is not carried.
pub(super) fn of<'d>(
    scope: &Scope<'d>,
    server: &Server<'d>,
    nginx: &mut Nginx<'d>,
) -> Result<Guard, ()> {
    let mut guard = Guard::default();
    if let Some(one) = scope.on("auth_basic") {
        let file = scope.get("auth_basic_user_file").map_or("", |file| file.word(0));
        if file.is_empty() || file.contains('$') || one.word(0).contains('$') {
            nginx.notes.unprotected(&one.at, "the realm and the file of users are fixed");
            return Err(());
        }
        let file = match file.starts_with('/') {
            true => file.to_owned(),
            false => format!("/etc/nginx/{file}"),
        };
        if let Some(one) = scope.get("auth_basic_user_file") {
            nginx.notes.carried(&one.at);
            nginx.users.push((one.at.clone(), file.clone()));
        }
        nginx.notes.carried(&one.at);
        guard.users = Some((file, one.word(0).to_owned()));
    }
    if let Some(one) = scope.on("auth_request") {
        guard.service = service(one, server, nginx);
        if guard.service.is_none() {
            let text = "the location that is asked is not carried, or sends fields by which its \
                        service may decide (ours gets X-Forwarded-Method and -Uri)";
            nginx.notes.unprotected(&one.at, text);
            return Err(());
        }
        let text = "the service gets Authorization, Cookie and the fields X-Forwarded-*, and its \
                    redirect or 401 is the answer";
        nginx.notes.different(&one.at, text);
    }
    let has_login = guard.users.is_some() || guard.service.is_some();
    let any = scope.get("satisfy").filter(|one| one.word(0) == "any");
    if let Some(any) = any {
        match scope.only_from() {
            _ if !has_login || scope.is_open() => nginx.notes.carried(&any.at),
            Some(networks) if guard.service.is_none() => {
                nginx.notes.carried(&any.at);
                guard.networks = Some(networks);
            }
            _ => {
                let text = "networks and logins are alternatives only as `allow …; deny all`, and \
                            with auth_basic";
                nginx.notes.unprotected(&any.at, text);
                return Err(());
            }
        }
    }
    Ok(guard)
}

impl Guard {
    /// Whether the networks are a part of it, and refuse no client by themselves.
    pub(super) fn has_networks(&self) -> bool {
        self.networks.is_some()
    }

    /// Writes it into a route.
    pub(super) fn write(&self, section: &mut Section, stores: bool, from: &str) {
        if let Some((file, realm)) = &self.users {
            section.set("users", file.clone(), from);
            section.set("realm", realm.clone(), from);
            let forwards = section.get("upstream").is_some() && !stores;
            section.set_some("forward_login", forwards.then_some(true), "nginx sends the login on");
        }
        if let Some(networks) = &self.networks {
            section.set("allow_from", networks.clone(), from);
            section.set("satisfy", "any", from);
        }
        if let Some((upstream, path)) = &self.service {
            let auth = section.below("route.auth");
            auth.set("upstream", upstream.clone(), from);
            auth.set("path", path.clone(), from);
        }
    }
}

/// The upstream and the path of `auth_request URI`.
fn service<'d>(
    one: &Directive,
    server: &Server<'d>,
    nginx: &mut Nginx<'d>,
) -> Option<(String, String)> {
    let uri = one.word(0);
    let all = server.directive.inner();
    let is_asked = |location: &&Directive| match &location.words[..] {
        [sign, path] => sign == "=" && path == uri,
        [path] => path == uri,
        _ => false,
    };
    let location = named(all, "location").find(is_asked)?;
    let scope = server.scope.inside(location.inner(), &mut nginx.notes);
    let pass = named(location.inner(), "proxy_pass").next()?;
    // A service may decide by what the location sends, and our file does not send it.
    let sends = "host content-length connection x-forwarded-for x-forwarded-proto \
                 x-forwarded-host x-real-ip";
    let is_sent = |one: &&Directive| is_one(sends, &one.word(0).to_ascii_lowercase());
    let asks_more = named(location.inner(), "if").next().is_some();
    if asks_more || !scope.all("proxy_set_header").iter().all(is_sent) {
        return None;
    }
    let asked = Path::Exact(uri.to_owned());
    let constants = nginx.constants.at(location.inner());
    let (wanted, path) = wanted(pass, &asked, &scope, &constants).ok()?;
    let path = path.unwrap_or_else(|| uri.to_owned());
    let name = nginx.upstreams.name(&wanted, &mut nginx.tree, &mut nginx.notes)?;
    let carried = [location].into_iter().chain(location.inner());
    carried.for_each(|one| nginx.notes.carried(&one.at));
    Some((name, path))
}
