//! The key of a request that is explained, and the settings that made it.

use cache::key::{KeyParts, KeySettings, StoredUri};
use config::Role;
use policy::routes::Route;
use store::Key;

use super::model::Setting;
use crate::request::requested_uri;
use crate::routing::RequestContext;

/// The key of a request.
pub(super) struct Keyed {
    /// The key of its URI, if it has one.
    pub(super) uri: Option<Key>,
    /// The index of its route.
    route: Option<usize>,
}

impl Keyed {
    pub(super) fn of(context: &RequestContext<'_>) -> Keyed {
        let Some(uri) = requested_uri(context.listener, context.head) else {
            return Keyed { uri: None, route: None };
        };
        let route = match context.listener.role {
            Role::Reverse => context.snapshot.routes.find(uri.reading()).ok(),
            Role::Forward => None,
        };
        let route = route.map(|chosen| chosen.at);
        let path = context.stored_path(uri.reading());
        let stored = StoredUri::new(uri.realm, uri.authority, &path);
        let key = context.worker.cache.uri_key(stored);
        Keyed { uri: Some(key), route }
    }

    fn route<'c>(&self, context: &'c RequestContext<'_>) -> Option<&'c Route> {
        context.snapshot.routes.get(self.route?)
    }

    fn key<'c>(&self, context: &'c RequestContext<'_>) -> Option<&'c KeySettings> {
        self.route(context)?.key.as_ref()
    }

    /// The parts of the key besides the URI.
    pub(super) fn parts<'c>(&self, context: &'c RequestContext<'_>) -> Option<KeyParts<'c>> {
        self.key(context)?.parts()
    }

    /// The settings that concern the request.
    pub(super) fn settings(&self, context: &RequestContext<'_>) -> Vec<Setting> {
        let (Some(at), Some(settings)) = (self.route, self.key(context)) else { return Vec::new() };
        if self.route(context).is_none_or(|route| !route.config.store) {
            return Vec::new();
        }
        let requested = requested_uri(context.listener, context.head);
        let path = requested.map_or(&b""[..], |uri| uri.path);
        let named = |applied: cache::key::Applied| Setting {
            key: format!("route[{at}].{}", applied.setting),
            effect: applied.effect,
        };
        settings.applied(path, context.head.fields).into_iter().map(named).collect()
    }
}
