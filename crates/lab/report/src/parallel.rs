//! Independent parts of an analysis, run on all CPUs.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::thread;

/// Applies `work` to each item; the results are in the order of the items.
pub fn in_parallel<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let cpus = thread::available_parallelism().map_or(1, NonZero::get);
    let share = items.len().div_ceil(cpus);
    let (mut items, work) = (items.into_iter(), &work);
    thread::scope(|scope| {
        let mut parts = Vec::with_capacity(cpus);
        while items.len() > 0 {
            let part: Vec<T> = items.by_ref().take(share).collect();
            parts.push(scope.spawn(move || part.into_iter().map(work).collect::<Vec<R>>()));
        }
        parts
            .into_iter()
            .flat_map(|part| part.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        for count in [0, 1, 2, 3, 64, 1_001] {
            let items: Vec<u64> = (0..count).collect();
            let expected: Vec<u64> = items.iter().map(|item| item * 3).collect();
            assert_eq!(in_parallel(items, |item| item * 3), expected);
        }
    }

    #[test]
    #[should_panic(expected = "of the work")]
    fn a_panic_of_the_work_reaches_the_caller() {
        in_parallel(vec![1, 2, 3], |_| panic!("a panic of the work"));
    }
}
