//! What a request asks for, as ranges of kinds: full and paused routes are cut out before any row is read.

use std::collections::BTreeSet;

use outbox_core::{ClaimRequest, Pattern, PauseScope, Router};

use super::covers_destination;

pub(super) struct Plan<'r> {
    pub(super) request: &'r ClaimRequest,
    router: Router<usize>,
    pauses: Vec<PauseScope>,
    /// Ranges of kinds that a prefix or the default takes, in order: from, and up to before.
    pub(super) ranges: Vec<(String, Option<String>)>,
    /// Kinds outside of them that have a route of their own.
    pub(super) exact: Vec<String>,
}

impl<'r> Plan<'r> {
    pub(super) fn new(request: &'r ClaimRequest, pauses: Vec<PauseScope>) -> Self {
        let mut router = Router::default();
        for (at, route) in request.routes.iter().enumerate() {
            // Of two routes with one pattern the first stands.
            let _ = router.insert(route.pattern.clone(), at);
        }
        let mut plan = Self { request, router, pauses, ranges: Vec::new(), exact: Vec::new() };
        plan.ranges = plan.open_ranges();
        plan.exact = plan.open_kinds();
        plan
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.exact.is_empty()
    }

    /// Whether most kinds are taken, known or not.
    pub(super) fn takes_most(&self) -> bool {
        self.ranges.last().is_some_and(|(_, end)| end.is_none())
    }

    /// The route that takes this kind, when it has room and nobody has paused it.
    pub(super) fn route(&self, kind: &str) -> Option<usize> {
        let has_room = |route: &usize| self.request.routes[*route].limit > 0;
        self.router.get(kind).copied().filter(has_room).filter(|_| !self.is_paused(kind))
    }

    /// The most records for this destination by this route.
    pub(super) fn limit_for(&self, route: usize, destination: Option<&str>) -> usize {
        match destination {
            Some(name) if covers_destination(&self.pauses, name) => 0,
            _ => self.request.routes[route].limit_for(destination),
        }
    }

    /// Whether some destination may be closed to this request.
    pub(super) fn closes_destinations(&self) -> bool {
        self.pauses.iter().any(|pause| matches!(pause, PauseScope::Destination(_)))
            || self.request.routes.iter().any(|route| {
                route.destination_limit == 0 || route.destinations.values().any(|limit| *limit == 0)
            })
    }

    fn is_paused(&self, kind: &str) -> bool {
        self.pauses.iter().any(|pause| match pause {
            PauseScope::All => true,
            PauseScope::Kind(pattern) => pattern.matches(kind),
            _ => false,
        })
    }

    /// Between two borders of prefixes, one route takes every kind that has none of its own.
    fn open_ranges(&self) -> Vec<(String, Option<String>)> {
        let routed = self.request.routes.iter().map(|route| &route.pattern);
        let paused = self.pauses.iter().filter_map(|pause| match pause {
            PauseScope::Kind(pattern) => Some(pattern),
            _ => None,
        });
        let mut borders = BTreeSet::from([String::new()]);
        for pattern in routed.chain(paused) {
            if let Pattern::Prefix(prefix) = pattern {
                borders.insert(prefix.clone());
                borders.insert(behind(prefix));
            }
        }
        let borders: Vec<String> = borders.into_iter().collect();
        let mut ranges: Vec<(String, Option<String>)> = Vec::new();
        for (at, start) in borders.iter().enumerate() {
            if !self.is_open_at(start) {
                continue;
            }
            let end = borders.get(at + 1).cloned();
            match ranges.last_mut() {
                Some((_, last)) if last.as_ref() == Some(start) => *last = end,
                _ => ranges.push((start.clone(), end)),
            }
        }
        ranges
    }

    fn open_kinds(&self) -> Vec<String> {
        let kinds = self.request.routes.iter().filter_map(|route| match &route.pattern {
            Pattern::Exact(kind) => Some(kind),
            _ => None,
        });
        let in_a_range = |kind: &String| {
            self.ranges.iter().any(|(start, end)| start <= kind && end.as_ref().is_none_or(|end| kind < end))
        };
        kinds.filter(|kind| self.route(kind).is_some() && !in_a_range(kind)).cloned().collect()
    }

    /// Whether the route that takes kinds from this border on is open. Unlike [`route`](Self::route), a kind of the
    /// border's own name does not count.
    fn is_open_at(&self, border: &str) -> bool {
        let covers = |pattern: &Pattern| match pattern {
            Pattern::Exact(_) => false,
            Pattern::Prefix(prefix) => border.starts_with(prefix.as_str()),
            Pattern::Default => true,
        };
        let rank = |pattern: &Pattern| match pattern {
            Pattern::Prefix(prefix) => prefix.len(),
            _ => 0,
        };
        let routes = self.request.routes.iter().filter(|route| covers(&route.pattern));
        let is_paused = self.pauses.iter().any(|pause| match pause {
            PauseScope::All => true,
            PauseScope::Kind(pattern) => covers(pattern),
            _ => false,
        });
        // Of two routes with one pattern the first stands, and the last of equals is what `max_by_key` takes.
        let taken_by = routes.rev().max_by_key(|route| rank(&route.pattern));
        !is_paused && taken_by.is_some_and(|route| route.limit > 0)
    }
}

/// The first text behind all that start with `prefix`, which ends in a dot.
fn behind(prefix: &str) -> String {
    const AFTER_DOT: char = '/';
    let mut end = prefix.strip_suffix('.').unwrap_or(prefix).to_owned();
    end.push(AFTER_DOT);
    end
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use outbox_core::{Owner, RouteDemand};

    use super::*;

    fn request(routes: &[(&str, usize)]) -> ClaimRequest {
        let demand = |(pattern, limit): &(&str, usize)| RouteDemand::new(pattern.parse().unwrap(), *limit);
        ClaimRequest::new(
            Owner::from_random(1),
            Duration::from_secs(1),
            10,
            routes.iter().map(demand).collect(),
        )
    }

    fn check(routes: &[(&str, usize)], pauses: &[PauseScope], ranges: &[(&str, &str)], exact: &[&str]) {
        let request = request(routes);
        let plan = Plan::new(&request, pauses.to_vec());
        let found: Vec<(&str, &str)> =
            plan.ranges.iter().map(|(start, end)| (start.as_str(), end.as_deref().unwrap_or("∞"))).collect();
        assert_eq!(found, ranges, "{routes:?}");
        assert_eq!(plan.exact, exact, "{routes:?}");
    }

    #[test]
    fn full_and_paused_routes_are_cut_out() {
        check(&[("*", 1)], &[], &[("", "∞")], &[]);
        check(&[("a.x", 1), ("b", 0)], &[], &[], &["a.x"]);
        check(&[("a.*", 1), ("a.x", 1)], &[], &[("a.", "a/")], &[]);
        check(&[("*", 1), ("a.*", 0)], &[], &[("", "a."), ("a/", "∞")], &[]);
        check(
            &[("*", 1), ("a.*", 0), ("a.b.*", 1), ("a.x", 1)],
            &[],
            &[("", "a."), ("a.b.", "a.b/"), ("a/", "∞")],
            &["a.x"],
        );
        check(&[("*", 0), ("a.*", 1), ("a.*", 0)], &[], &[("a.", "a/")], &[]);
        let orders = PauseScope::Kind(Pattern::Prefix("a.".into()));
        check(&[("*", 1), ("a.x", 1)], &[orders], &[("", "a."), ("a/", "∞")], &[]);
        check(&[("*", 1), ("a.x", 1)], &[PauseScope::All], &[], &[]);
        check(&[("*", 1)], &[PauseScope::Destination("d".into())], &[("", "∞")], &[]);
    }
}
