//! What a recording of requests on sockets may lose.

use trial::Trial;

/// No request was lost. On a busy machine an interval may have been sampled late.
pub(crate) fn assert_nothing_lost(trial: &Trial) {
    let mut others = trial.losses().iter().filter(|loss| loss.kind != "interval: sampled late");
    assert_eq!(others.next(), None, "{:?}", trial.losses());
}
