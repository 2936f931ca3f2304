//! Spreading requests over the intervals of their lifetime.
//!
//! CPU time is used during the whole life of a request, so a request of ten seconds is a tenth of a
//! request in each of ten one-second intervals. Log lines are written at the end of a request, and
//! some servers write them late. An interval is therefore kept back for a while, and what arrives
//! even later is returned as an [`Amendment`] of an interval that has already been handed out.
//!
//! Invariant: at any moment, what was placed, what came before the first interval and what still
//! waits add up to everything that was given, up to rounding.

use std::collections::VecDeque;

use trial::Histogram;

use logs::{Class, Request};

/// How many handed-out intervals are remembered, which is how late a line may amend them.
const REMEMBERED_MAX: usize = 3600;

/// How far a stamp may be ahead of our clock, beyond its grain. Without a limit, a server with a
/// wrong clock would fill the memory.
const AHEAD_NS_MAX: i64 = 60_000_000_000;

/// The requests of one interval.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Each request counted by the fraction of its life in the interval.
    pub(crate) requests: f64,
    /// Requests that ended in it.
    pub(crate) ended: u64,
    /// Latencies of the requests that ended in it, us, if the log has them.
    pub(crate) latency_us: Option<Histogram<u64>>,
    /// The same requests by class: a few dozen classes in order of appearance.
    pub(crate) classes: Vec<OfClass>,
}

/// The requests of one class in one interval.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OfClass {
    pub(crate) class: Class,
    pub(crate) requests: f64,
    pub(crate) ended: u64,
    /// Bytes sent, spread as the requests are.
    pub(crate) bytes: f64,
}

impl Tally {
    #[cfg(any(bpf, test))]
    fn add(&mut self, other: Tally) {
        self.requests += other.requests;
        self.ended += other.ended;
        if let Some(us) = other.latency_us {
            let histogram = self.latency_us.get_or_insert_with(new_histogram);
            histogram.add(us).expect("a histogram grows to any life that is believed");
        }
        for OfClass { class, requests, ended, bytes } in other.classes {
            let sum = self.of_class(class);
            sum.requests += requests;
            sum.ended += ended;
            sum.bytes += bytes;
        }
    }

    fn of_class(&mut self, class: Class) -> &mut OfClass {
        let at = self.classes.iter().position(|known| known.class == class);
        let at = at.unwrap_or_else(|| {
            self.classes.push(OfClass { class, ..OfClass::default() });
            self.classes.len() - 1
        });
        &mut self.classes[at]
    }
}

/// An addition to an interval that has already been handed out.
#[derive(Clone, Debug)]
pub(crate) struct Amendment {
    pub(crate) index: u64,
    pub(crate) tally: Tally,
}

/// Requests that are in no interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Outside {
    /// Requests, in fractions, before the first interval or before the oldest remembered one.
    pub(crate) before: f64,
    /// Requests, in fractions, after the last interval. Known once it is the last.
    pub(crate) after: f64,
    /// Requests stamped too far in the future to wait for their interval.
    pub(crate) ahead: u64,
}

#[derive(Debug)]
struct Slot {
    index: u64,
    start_ns: i64,
    end_ns: i64,
    tally: Tally,
}

/// Assigns requests to intervals.
#[derive(Debug)]
pub(crate) struct Spread {
    /// Intervals in chronological order, without gaps. The first `handed_out` of them have been
    /// handed out, and their tallies contain what has arrived since.
    slots: VecDeque<Slot>,
    handed_out: usize,
    /// The end of the last interval.
    now_ns: i64,
    /// Requests that end after `now_ns`.
    waiting: Vec<Request>,
    outside: Outside,
    /// For a counter's requests: the fraction of a request that has not been counted as ended yet.
    ending: f64,
}

impl Spread {
    /// Begins the first interval.
    pub(crate) fn starting(now_ns: i64) -> Spread {
        Spread {
            slots: VecDeque::new(),
            handed_out: 0,
            now_ns,
            waiting: Vec::new(),
            outside: Outside::default(),
            ending: 0.0,
        }
    }

    /// Ends an interval and begins the next. Requests that waited for it are placed. If its end is
    /// before its beginning (the clock was set back), the interval is empty.
    pub(crate) fn close(&mut self, index: u64, end_ns: i64) {
        let start_ns = self.now_ns;
        self.now_ns = end_ns.max(start_ns);
        self.slots.push_back(Slot {
            index,
            start_ns,
            end_ns: self.now_ns,
            tally: Tally::default(),
        });
        for request in std::mem::take(&mut self.waiting) {
            self.place(request);
        }
    }

    /// Called after the last interval was closed. Requests that still wait are placed as far as
    /// they overlap an interval.
    pub(crate) fn finish(&mut self) {
        for request in std::mem::take(&mut self.waiting) {
            self.spread(request);
        }
    }

    /// Places a request.
    pub(crate) fn place(&mut self, request: Request) {
        if request.last_ns() < self.now_ns {
            self.spread(request);
        } else if request.end_ns - self.now_ns <= AHEAD_NS_MAX {
            self.waiting.push(request);
        } else {
            self.outside.ahead += 1;
        }
    }

    /// Places the requests by which a counter grew between two instants. They are spread evenly
    /// over the time between, and end, in whole numbers, as they are spread.
    pub(crate) fn place_many(&mut self, start_ns: i64, end_ns: i64, requests: f64) {
        let length_ns = (end_ns - start_ns).max(1) as f64;
        let mut left = requests;
        for slot in self.slots.iter_mut() {
            let overlap_ns = end_ns.min(slot.end_ns) - start_ns.max(slot.start_ns);
            if overlap_ns <= 0 {
                continue;
            }
            let here = requests * overlap_ns as f64 / length_ns;
            left -= here;
            slot.tally.requests += here;
            self.ending += here;
            slot.tally.ended += self.ending as u64;
            self.ending -= self.ending.floor();
        }
        let first_ns = self.slots.front().map_or(self.now_ns, |slot| slot.start_ns);
        let before = requests * (first_ns.min(end_ns) - start_ns).max(0) as f64 / length_ns;
        self.outside.before += before;
        self.outside.after += (left - before).max(0.0);
    }

    /// Adds a tally to the interval that was closed so many intervals ago.
    #[cfg(any(bpf, test))]
    pub(crate) fn add(&mut self, back: u64, tally: Tally) {
        let at = usize::try_from(back).unwrap_or(usize::MAX);
        match self.slots.iter_mut().rev().nth(at) {
            Some(slot) => slot.tally.add(tally),
            None => self.outside.before += tally.requests,
        }
    }

    /// The next interval to hand out, if more than `kept_back` are waiting.
    pub(crate) fn hand_out(&mut self, kept_back: usize) -> Option<Tally> {
        if self.slots.len() - self.handed_out <= kept_back {
            return None;
        }
        let tally = std::mem::take(&mut self.slots[self.handed_out].tally);
        self.handed_out += 1;
        Some(tally)
    }

    /// What arrived since the last call for intervals that had been handed out.
    pub(crate) fn amendments(&mut self) -> Vec<Amendment> {
        let mut found = Vec::new();
        for slot in self.slots.iter_mut().take(self.handed_out) {
            if slot.tally.requests > 0.0 || slot.tally.ended > 0 {
                let tally = std::mem::take(&mut slot.tally);
                found.push(Amendment { index: slot.index, tally });
            }
        }
        while self.handed_out > REMEMBERED_MAX {
            self.slots.pop_front();
            self.handed_out -= 1;
        }
        found
    }

    /// The requests that are in no interval.
    pub(crate) fn outside(&self) -> Outside {
        self.outside
    }

    fn spread(&mut self, request: Request) {
        let Request { start_ns, end_ns, elapsed_us, class, bytes, .. } = request;
        let last_ns = request.last_ns();
        // An instantaneous request counts fully where it is.
        let life_ns = (end_ns - start_ns).max(1);
        let from_ns = start_ns.min(last_ns);
        let mut left = 1.0;
        if last_ns >= self.now_ns {
            let after = (last_ns + 1 - from_ns.max(self.now_ns)) as f64 / life_ns as f64;
            self.outside.after += after;
            left -= after;
        }
        for slot in self.slots.iter_mut().rev() {
            if slot.end_ns <= from_ns {
                break;
            }
            if slot.start_ns <= last_ns && last_ns < slot.end_ns {
                slot.tally.ended += 1;
                slot.tally.of_class(class).ended += 1;
                if let Some(us) = elapsed_us {
                    let histogram = slot.tally.latency_us.get_or_insert_with(new_histogram);
                    // `saturating_record` would not let it grow.
                    histogram.record(us).expect("a histogram grows to any life that is believed");
                }
            }
            let overlap_ns = (last_ns + 1).min(slot.end_ns) - from_ns.max(slot.start_ns);
            if overlap_ns > 0 {
                let share = overlap_ns as f64 / life_ns as f64;
                slot.tally.requests += share;
                let of_class = slot.tally.of_class(class);
                of_class.requests += share;
                of_class.bytes += share * bytes as f64;
                left -= share;
            }
        }
        // Up to rounding, the remainder is before all intervals.
        if from_ns < self.slots.front().map_or(self.now_ns, |slot| slot.start_ns) {
            self.outside.before += left.max(0.0);
        }
    }
}

/// Of microseconds.
pub(crate) fn new_histogram() -> Histogram<u64> {
    Histogram::new(3).expect("three significant digits are allowed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of_life(start_ns: i64, end_ns: i64, elapsed_us: Option<u64>) -> Request {
        let class = Class::default();
        Request { stamp_ns: end_ns, start_ns, end_ns, elapsed_us, class, bytes: 0 }
    }

    fn request(start_ns: i64, end_ns: i64) -> Request {
        of_life(start_ns, end_ns, Some(7))
    }

    fn all(spread: &mut Spread) -> Vec<(f64, u64)> {
        std::iter::from_fn(|| spread.hand_out(0))
            .map(|tally| (tally.requests, tally.ended))
            .collect()
    }

    #[test]
    fn a_request_counts_in_each_interval_by_its_share() {
        let mut spread = Spread::starting(0);
        spread.close(0, 100);
        spread.place(request(50, 250));
        spread.place(request(90, 90));
        spread.close(1, 200);
        spread.close(2, 300);
        assert_eq!(all(&mut spread), [(1.25, 1), (0.5, 0), (0.25, 1)]);
    }

    #[test]
    fn latencies_are_in_the_interval_in_which_the_request_ended() {
        let mut spread = Spread::starting(0);
        spread.place(request(50, 150));
        spread.close(0, 100);
        spread.close(1, 200);
        assert!(spread.hand_out(0).unwrap().latency_us.is_none());
        assert_eq!(spread.hand_out(0).unwrap().latency_us.unwrap().max(), 7);
    }

    #[test]
    fn a_late_line_amends_what_was_handed_out() {
        let mut spread = Spread::starting(0);
        spread.close(4, 100);
        assert!(spread.hand_out(1).is_none());
        spread.hand_out(0).unwrap();
        assert!(spread.amendments().is_empty());
        spread.close(5, 200);
        spread.place(request(50, 150));
        let amendments = spread.amendments();
        assert_eq!((amendments.len(), amendments[0].index), (1, 4));
        assert_eq!((amendments[0].tally.requests, amendments[0].tally.ended), (0.5, 0));
        assert!(spread.amendments().is_empty(), "reported once");
        assert_eq!(spread.hand_out(0).unwrap().requests, 0.5);
    }

    #[test]
    fn a_counters_growth_is_spread_evenly() {
        let mut spread = Spread::starting(1000);
        spread.close(0, 2000);
        spread.close(1, 3000);
        spread.place_many(900, 2400, 15.0);
        spread.place_many(2400, 3100, 3.5);
        assert_eq!(all(&mut spread), [(10.0, 10), (7.0, 7)]);
        let outside = spread.outside();
        assert!((outside.before - 1.0).abs() < 1e-9 && (outside.after - 0.5).abs() < 1e-9);
    }

    #[test]
    fn sums_are_added_to_the_interval_that_was_so_many_ago() {
        let class = logs::Facts { method: 1, ..Default::default() }.class();
        let tally = |ended: u64| {
            let requests = ended as f64;
            let classes = vec![OfClass { class, requests, ended, bytes: 10.0 }];
            let mut latency_us = new_histogram();
            latency_us.record_n(7, ended).unwrap();
            Tally { requests, ended, latency_us: Some(latency_us), classes }
        };
        let mut spread = Spread::starting(0);
        spread.close(0, 100);
        spread.close(1, 200);
        for (back, ended) in [(0, 1), (0, 2), (1, 4), (2, 8)] {
            spread.add(back, tally(ended));
        }
        assert_eq!(spread.outside().before, 8.0);
        let first = spread.hand_out(0).unwrap();
        assert_eq!((first.requests, first.ended), (4.0, 4));
        let second = spread.hand_out(0).unwrap();
        let classes: Vec<_> =
            second.classes.iter().map(|c| (c.requests, c.ended, c.bytes)).collect();
        assert_eq!(classes, [(3.0, 3, 20.0)]);
        assert_eq!(second.latency_us.unwrap().len(), 3);
        spread.add(1, tally(5));
        assert_eq!(spread.amendments()[0].tally.ended, 5);
    }

    #[test]
    fn what_lies_outside_is_counted() {
        let mut spread = Spread::starting(1000);
        spread.close(0, 2000);
        spread.place(request(500, 1500));
        spread.place(request(1, 2));
        spread.place(request(1, 2001 + AHEAD_NS_MAX));
        spread.place(request(1500, 2500));
        spread.finish();
        assert_eq!(spread.outside(), Outside { before: 1.5, after: 0.5, ahead: 1 });
        assert_eq!(all(&mut spread), [(1.0, 1)]);
    }

    #[test]
    fn a_boundary_belongs_to_the_next_interval() {
        let mut spread = Spread::starting(0);
        spread.close(0, 100);
        spread.place(request(100, 100));
        spread.place(request(0, 100));
        spread.close(1, 200);
        assert_eq!(all(&mut spread), [(1.0, 1), (1.0, 1)]);
    }

    #[test]
    fn a_clock_that_was_set_back_makes_an_empty_interval() {
        let mut spread = Spread::starting(100);
        spread.close(0, 50);
        spread.place(request(100, 100));
        spread.close(1, 200);
        assert_eq!(all(&mut spread), [(0.0, 0), (1.0, 1)]);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
        cases: 200, failure_persistence: None, ..Default::default()
    })]

        /// Whatever the order of lines and intervals, no request is lost or counted twice.
        #[test]
        fn mass_is_conserved(
            lengths in proptest::collection::vec(0..2000i64, 1..20),
            requests in proptest::collection::vec((0..20_000i64, 0..30_000i64, 0..20usize), 0..100),
            kept_back in 0..4usize,
        ) {
            let mut spread = Spread::starting(5000);
            let (mut placed, mut ended, mut at) = (0.0, 0, 5000);
            for (index, length) in lengths.iter().enumerate() {
                for (start, life, when) in &requests {
                    if when % lengths.len() == index {
                        spread.place(request(*start, start + life));
                    }
                }
                at += length;
                spread.close(index as u64, at);
                while let Some(tally) = spread.hand_out(kept_back) {
                    placed += tally.requests;
                    ended += tally.ended;
                }
                for amendment in spread.amendments() {
                    placed += amendment.tally.requests;
                    ended += amendment.tally.ended;
                }
            }
            spread.finish();
            for amendment in spread.amendments() {
                placed += amendment.tally.requests;
                ended += amendment.tally.ended;
            }
            for (requests, more) in all(&mut spread) {
                placed += requests;
                ended += more;
            }
            let outside = spread.outside();
            let sum = placed + outside.before + outside.after + outside.ahead as f64;
            prop_assert!((sum - requests.len() as f64).abs() < 1e-6, "{} {}", sum, requests.len());
            let within = |(start, life, _): &&(i64, i64, usize)| {
                (5000..at).contains(&request(*start, start + life).last_ns())
            };
            prop_assert_eq!(ended, requests.iter().filter(within).count() as u64);
        }
    }
}
