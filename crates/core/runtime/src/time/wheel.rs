//! The hierarchical timer wheel: set and cancel in O(1), whatever the number of timers.
//!
//! What: six levels of 64 slots. A slot of level 0 is one tick (the caller's resolution, a
//! millisecond here), a slot of level n is 64^n ticks. A timer is in the level of the highest
//! base-64 digit in which its deadline differs from the present, and moves down when the present
//! reaches its slot.
//! Why: a server sets a timer for nearly every wait and cancels nearly all of them; a heap would
//! pay a logarithm for each.
//! Who owns: one core. Timers live in one slab and are linked by index, so that setting one
//! allocates only when there are more timers than ever before.
//! What never happens: a timer is due before its tick, or the key of a timer that fired or was
//! cancelled affects the timer that now has its place (keys have a generation).
//!
//! After G. Varghese and T. Lauck, "Hashed and Hierarchical Timing Wheels", SOSP 1987.

const DIGIT_BITS: u32 = 6;
const SLOTS: usize = 1 << DIGIT_BITS;
const LEVELS: usize = 6;
/// Deadlines further away than this are in the last slot of the top level and are placed again when
/// the present reaches it: 63 * 64^5 ticks, two years of milliseconds.
const REACH: u64 = (SLOTS as u64 - 1) << (DIGIT_BITS * (LEVELS as u32 - 1));

const NIL: u32 = u32::MAX;
/// Places: `level * SLOTS + slot`, then these two.
const DUE: u16 = (LEVELS * SLOTS) as u16;
const FREE: u16 = DUE + 1;
const LISTS: usize = LEVELS * SLOTS + 1;

const _: () = assert!(SLOTS == u64::BITS as usize, "a level's occupancy is one word");
const _: () = assert!(DIGIT_BITS * (LEVELS as u32) < u64::BITS);

/// Names one timer until it fires or is cancelled; afterwards it names nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    index: u32,
    generation: u32,
}

#[derive(Debug)]
struct Entry<T> {
    deadline: u64,
    prev: u32,
    next: u32,
    generation: u32,
    place: u16,
    value: Option<T>,
}

/// First and last entry of one list.
#[derive(Debug, Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
}

#[derive(Debug)]
pub(crate) struct Wheel<T> {
    /// The present: every timer with `deadline <= now` is in the due list or gone.
    now: u64,
    occupied: [u64; LEVELS],
    lists: Box<[List; LISTS]>,
    entries: Vec<Entry<T>>,
    free: u32,
    len: usize,
}

impl<T> Wheel<T> {
    /// An empty wheel whose present is tick 0.
    pub(crate) fn new() -> Self {
        Wheel {
            now: 0,
            occupied: [0; LEVELS],
            lists: Box::new([List { head: NIL, tail: NIL }; LISTS]),
            entries: Vec::new(),
            free: NIL,
            len: 0,
        }
    }

    /// Timers that are set and have not been taken or cancelled.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Sets a timer for tick `deadline`; one in the past is due at once.
    pub(crate) fn set(&mut self, deadline: u64, value: T) -> Key {
        let index = self.take_entry(deadline, value);
        self.place(index);
        self.len += 1;
        debug_assert!(self.len <= self.entries.len(), "each timer has an entry");
        Key { index, generation: self.entries[index as usize].generation }
    }

    /// Cancels the timer. `None` if it has fired or been cancelled.
    pub(crate) fn cancel(&mut self, key: Key) -> Option<T> {
        self.live(key)?;
        self.unlink(key.index);
        self.give_back(key.index)
    }

    /// The timer's value, as long as it is set.
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.live(key)?;
        self.entries[key.index as usize].value.as_mut()
    }

    /// Moves the present to `now`. Take the timers that became due with [`Wheel::pop_due`].
    pub(crate) fn advance(&mut self, now: u64) {
        while let Some((tick, list)) = self.next_slot() {
            if tick > now {
                break;
            }
            debug_assert!(self.now < tick, "the present only moves forward");
            self.now = tick;
            self.empty_slot(list);
        }
        self.now = self.now.max(now);
        debug_assert!(self.next_slot().is_none_or(|(tick, _)| tick > now), "no timer is late");
    }

    /// One timer that is due. Timers due in different calls of `advance` come in order.
    pub(crate) fn pop_due(&mut self) -> Option<T> {
        let index = self.lists[DUE as usize].head;
        if index == NIL {
            return None;
        }
        debug_assert!(self.entries[index as usize].deadline <= self.now, "no timer is early");
        self.unlink(index);
        self.give_back(index)
    }

    /// The tick at which `advance` next has work; never later than the earliest deadline. `None` if
    /// no timer is set.
    pub(crate) fn next_tick(&self) -> Option<u64> {
        if self.lists[DUE as usize].head != NIL {
            return Some(self.now);
        }
        self.next_slot().map(|(tick, _)| tick)
    }

    /// The earliest occupied slot as (its first tick, its list). All timers of a level come before
    /// those of the levels above, so the first occupied level has it.
    fn next_slot(&self) -> Option<(u64, usize)> {
        let level = self.occupied.iter().position(|&bits| bits != 0)?;
        let shift = DIGIT_BITS * level as u32;
        let digit = (self.now >> shift) as u32 % SLOTS as u32;
        let ahead = u64::from(self.occupied[level].rotate_right(digit).trailing_zeros());
        let slot = (digit as usize + ahead as usize) % SLOTS;
        let start = ((self.now >> shift) + ahead) << shift;
        debug_assert!(ahead < SLOTS as u64 && start > self.now, "due timers are in the due list");
        Some((start, level * SLOTS + slot))
    }

    /// Places every timer of `list` again: into the due list or a lower level.
    fn empty_slot(&mut self, list: usize) {
        let mut index = self.lists[list].head;
        self.lists[list] = List { head: NIL, tail: NIL };
        self.occupied[list / SLOTS] &= !(1 << (list % SLOTS));
        while index != NIL {
            let next = self.entries[index as usize].next;
            self.place(index);
            index = next;
        }
    }

    /// Appends the unlinked entry to the list for its deadline.
    fn place(&mut self, index: u32) {
        let deadline = self.entries[index as usize].deadline;
        debug_assert!(self.entries[index as usize].value.is_some(), "a list has timers only");
        let place = if deadline <= self.now {
            DUE
        } else {
            let tick = deadline.min(self.now + REACH);
            let highest_bit = u64::BITS - 1 - (tick ^ self.now).leading_zeros();
            let level = (highest_bit / DIGIT_BITS).min(LEVELS as u32 - 1);
            let slot = (tick >> (DIGIT_BITS * level)) as usize % SLOTS;
            self.occupied[level as usize] |= 1 << slot;
            (level as usize * SLOTS + slot) as u16
        };
        let tail = self.lists[place as usize].tail;
        let entry = &mut self.entries[index as usize];
        (entry.place, entry.prev, entry.next) = (place, tail, NIL);
        self.lists[place as usize].tail = index;
        match tail {
            NIL => self.lists[place as usize].head = index,
            tail => {
                let before = &mut self.entries[tail as usize];
                debug_assert!(before.next == NIL && before.place == place, "it is the last");
                before.next = index;
            }
        }
    }

    fn unlink(&mut self, index: u32) {
        let Entry { prev, next, place, .. } = self.entries[index as usize];
        debug_assert!(place != FREE, "only a timer that is set is in a list");
        debug_assert!(prev == NIL || self.entries[prev as usize].next == index);
        debug_assert!(next == NIL || self.entries[next as usize].prev == index);
        debug_assert!((prev == NIL) == (self.lists[place as usize].head == index));
        debug_assert!((next == NIL) == (self.lists[place as usize].tail == index));
        match prev {
            NIL => self.lists[place as usize].head = next,
            prev => self.entries[prev as usize].next = next,
        }
        match next {
            NIL => self.lists[place as usize].tail = prev,
            next => self.entries[next as usize].prev = prev,
        }
        if place != DUE && self.lists[place as usize].head == NIL {
            self.occupied[place as usize / SLOTS] &= !(1 << (place as usize % SLOTS));
        }
    }

    fn live(&self, key: Key) -> Option<()> {
        let entry = self.entries.get(key.index as usize)?;
        (entry.generation == key.generation && entry.place != FREE).then_some(())
    }

    fn take_entry(&mut self, deadline: u64, value: T) -> u32 {
        if self.free == NIL {
            let index = self.entries.len() as u32;
            assert!(index < NIL, "timers are counted by 32 bits");
            let entry =
                Entry { deadline, prev: NIL, next: NIL, generation: 0, place: FREE, value: None };
            self.entries.push(Entry { value: Some(value), ..entry });
            return index;
        }
        let index = self.free;
        let entry = &mut self.entries[index as usize];
        debug_assert!(entry.place == FREE && entry.value.is_none(), "a free entry has no timer");
        self.free = entry.next;
        entry.deadline = deadline;
        entry.value = Some(value);
        index
    }

    fn give_back(&mut self, index: u32) -> Option<T> {
        let entry = &mut self.entries[index as usize];
        debug_assert!(entry.place != FREE && self.len > 0, "a timer is given back once");
        entry.generation = entry.generation.wrapping_add(1);
        entry.place = FREE;
        entry.next = self.free;
        self.free = index;
        self.len -= 1;
        entry.value.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn due(wheel: &mut Wheel<u64>) -> Vec<u64> {
        std::iter::from_fn(|| wheel.pop_due()).collect()
    }

    #[test]
    fn a_timer_is_due_at_its_tick_and_not_before() {
        for deadline in [1, 63, 64, 65, 4095, 4096, 4097, 1 << 18, (1 << 36) - 1, 1 << 36, 1 << 40]
        {
            let mut wheel = Wheel::new();
            wheel.set(deadline, deadline);
            wheel.advance(deadline - 1);
            assert_eq!(due(&mut wheel), [], "{deadline} is not due a tick earlier");
            wheel.advance(deadline);
            assert_eq!(due(&mut wheel), [deadline]);
            assert_eq!(wheel.next_tick(), None);
        }
    }

    #[test]
    fn a_stale_key_does_nothing() {
        let mut wheel = Wheel::new();
        let old = wheel.set(5, 5);
        assert_eq!(wheel.cancel(old), Some(5));
        let new = wheel.set(6, 6);
        assert_eq!(wheel.cancel(old), None, "its place now belongs to another timer");
        assert_eq!(wheel.get_mut(old), None);
        assert_eq!(wheel.get_mut(new), Some(&mut 6));
        assert_eq!(wheel.len(), 1);
    }

    #[test]
    fn a_due_timer_can_still_be_cancelled() {
        let mut wheel = Wheel::new();
        let key = wheel.set(5, 5);
        wheel.set(5, 6);
        wheel.advance(9);
        assert_eq!(wheel.cancel(key), Some(5));
        assert_eq!(due(&mut wheel), [6]);
    }

    #[test]
    fn a_past_deadline_is_due_at_once() {
        let mut wheel = Wheel::new();
        wheel.advance(100);
        wheel.set(7, 7);
        assert_eq!(wheel.next_tick(), Some(100));
        assert_eq!(due(&mut wheel), [7]);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Set(u64),
        Cancel(usize),
        Advance(u64),
        ToNext,
    }

    fn step() -> impl Strategy<Value = Step> {
        let distance = prop_oneof![0..80_u64, 0..5_000_u64, 0..(1_u64 << 20), 0..(1_u64 << 38)];
        prop_oneof![
            4 => distance.clone().prop_map(Step::Set),
            2 => any::<prop::sample::Index>().prop_map(|i| Step::Cancel(i.index(1 << 20))),
            2 => distance.prop_map(Step::Advance),
            2 => Just(Step::ToNext),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// The model is an ordered map of (deadline, name).
        #[test]
        fn it_behaves_as_an_ordered_map(steps in prop::collection::vec(step(), 1..200)) {
            let mut wheel = Wheel::new();
            let mut model = BTreeMap::new();
            let mut keys = Vec::new();
            let mut now = 0_u64;
            for step in steps {
                match step {
                    Step::Set(distance) => {
                        let name = keys.len() as u64;
                        keys.push((now + distance, wheel.set(now + distance, name)));
                        model.insert((now + distance, name), ());
                    }
                    Step::Cancel(index) if !keys.is_empty() => {
                        let name = index % keys.len();
                        let (deadline, key) = keys[name];
                        let there = model.remove(&(deadline, name as u64)).is_some();
                        prop_assert_eq!(wheel.cancel(key).is_some(), there);
                    }
                    Step::Cancel(_) => {}
                    Step::Advance(distance) => now += distance,
                    Step::ToNext => now = wheel.next_tick().unwrap_or(now).max(now),
                }
                wheel.advance(now);
                let later = model.split_off(&(now + 1, 0));
                let mut expected: Vec<u64> = model.keys().map(|&(_, name)| name).collect();
                model = later;
                let mut found = due(&mut wheel);
                expected.sort_unstable();
                found.sort_unstable();
                prop_assert_eq!(found, expected);
                prop_assert_eq!(wheel.len(), model.len());
                let first = model.keys().next().map(|&(deadline, _)| deadline);
                let next = wheel.next_tick();
                prop_assert_eq!(next.is_some(), first.is_some());
                if let (Some(next), Some(first)) = (next, first) {
                    prop_assert!(now < next && next <= first);
                }
            }
        }
    }
}
