//! Rows by kind, destination and due time, so that what a relay cannot take is passed over at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::row::Row;

type Lane = BTreeSet<(Duration, i64)>;

/// Rows by kind and destination, each lane in the order in which its rows fall due.
#[derive(Default)]
pub(super) struct Lanes(BTreeMap<String, BTreeMap<Option<String>, Lane>>);

impl Lanes {
    pub(super) fn insert(&mut self, row: &Row) {
        let place = (row.send_after, row.seq);
        if let Some(lane) = self.0.get_mut(&row.kind).and_then(|lanes| lanes.get_mut(&row.destination)) {
            lane.insert(place);
            return;
        }
        let lanes = self.0.entry(row.kind.clone()).or_default();
        lanes.entry(row.destination.clone()).or_default().insert(place);
    }

    pub(super) fn remove(&mut self, row: &Row) {
        let Some(lanes) = self.0.get_mut(&row.kind) else { return };
        let Some(lane) = lanes.get_mut(&row.destination) else { return };
        lane.remove(&(row.send_after, row.seq));
        if lane.is_empty() {
            lanes.remove(&row.destination);
        }
        if lanes.is_empty() {
            self.0.remove(&row.kind);
        }
    }

    /// Every kind that has rows, with its lanes.
    pub(super) fn kinds(&self) -> impl Iterator<Item = (&str, &BTreeMap<Option<String>, Lane>)> {
        self.0.iter().map(|(kind, lanes)| (kind.as_str(), lanes))
    }
}
