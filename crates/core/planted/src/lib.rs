//! Bugs planted on purpose: each is a mistake that a cache or the preloaded library could make,
//! placed where it would be made, and the tests must find every one.
//!
//! Why: a green test suite says little about what it would catch. `cargo xtask planted` builds with
//! the feature `switch`, runs for each bug the ordinary test that the list names, and fails if a
//! bug is not found.
//!
//! Without the feature, [`is`] is a constant `false`: the compiler removes the check and the code
//! behind it, so that a release has neither the bug nor the cost of the check. With the feature,
//! the environment variable `PLIMSOLL_PLANTED` enables one bug.
//!
//! What never happens: a bug is missing from this list, or is in two places; `cargo xtask tidy`
//! checks that.

#![forbid(unsafe_code)]

macro_rules! bugs {
    ($($variant:ident = $name:literal, $what:literal, $found_by:literal;)*) => {
        /// One of the planted bugs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug {
            $(#[doc = $what] $variant,)*
        }

        impl Bug {
            /// All of them.
            pub const ALL: &'static [Bug] = &[$(Bug::$variant,)*];

            /// Its name in `PLIMSOLL_PLANTED`.
            pub const fn name(self) -> &'static str {
                match self { $(Bug::$variant => $name,)* }
            }

            /// The test that finds it: its suite and its name.
            pub const fn found_by(self) -> &'static str {
                match self { $(Bug::$variant => $found_by,)* }
            }
        }
    };
}

// `xtask` reads this: a variant, what it is called, what it is, and the test that finds it.
bugs! {
    KeyWithoutHost = "key-without-host", "a key of the store without the host",
        "twin: caching_rules::hosts_are_kept_apart";
    KeyPartsJoined = "key-parts-joined", "the parts of a key are hashed without their lengths",
        "cache: key::tests::no_two_divisions_of_the_same_bytes_share_a_key";
    PurgeAsRequested = "purge-as-requested", "a purge uses the requested URL, not the stored one",
        "twin: keys::a_purge_removes_what_any_form_of_the_url_stored";
    VaryIgnored = "vary-ignored", "a response that varies is stored as if it did not",
        "twin: caching_rules::variants_are_kept_apart";
    CollapsedAcrossVary = "collapsed-across-vary", "a waiting request gets the variant of another",
        "twin: caching_rules::variants_are_kept_apart";
    HitLeavesBody = "hit-leaves-body", "a hit leaves the request's body on the connection",
        "twin: bodies::the_body_of_a_get_is_not_the_next_request";
    AgeTwice = "age-twice", "the age of a response is counted twice",
        "twin: caching_rules::a_hit_is_the_response_of_the_origin_and_sends_no_request";
    HopByHopPassedOn = "hop-by-hop", "fields that Connection names are passed on",
        "twin: caching_rules::a_hit_is_the_response_of_the_origin_and_sends_no_request";
    UpdateForgotten = "update-forgotten", "a 304 does not update the stored response",
        "caching: update::tests::rfc9111_3_2_the_update_replaces_all_lines_of_a_name";
    AuthorizationIgnored = "authorization", "a response to Authorization is stored",
        "twin: caching_rules::a_response_to_an_authorized_request_is_not_for_others";
    PrivateForOthers = "private", "a private response is given to waiting requests",
        "twin: collapsing::a_response_that_is_private_releases_all_waiting_requests_at_once";
    MustRevalidateIgnored = "must-revalidate", "must-revalidate is ignored",
        "twin: stale::a_cache_that_is_cut_off_serves_stale_unless_a_directive_forbids";
    NothingInvalidated = "invalidation", "an unsafe method invalidates nothing",
        "twin: caching_rules::a_post_removes_the_responses_that_it_changes";
    ChangeOvertaken = "overtaken", "a response requested before a change is stored after it",
        "twin: changes::after_an_answered_change_no_client_gets_an_older_version";
    OldestOfSeveral = "oldest-of-several", "of several that match, the oldest is served",
        "twin: variants::the_most_recent_of_several_matching_variants_is_used";
    CodingNotAccepted = "coding-not-accepted", "a coded form is sent to a client that refuses it",
        "twin: coding_forms::each_client_gets_a_form_that_it_accepts";
    StrongTagOfForm = "strong-tag-of-form", "a coded form keeps the strong tag of the original",
        "coding: fields::tests::rfc9110_8_8_3_3_no_two_forms_share_a_strong_tag";
    LengthBesideEncoding = "length-beside-encoding", "a length beside chunks is not refused",
        "suite: refusals::request_framing";
    ChunkEndUnchecked = "chunk-end", "the end of a chunk is not checked",
        "suite: refusals::chunks";
    ShortBodyWhole = "short-body", "a truncated body is taken for complete",
        "twin: faults::a_body_that_breaks_off_is_never_taken_for_whole";
    BytesLeftOnPooled = "bytes-left", "a connection with bytes left on it is used again",
        "twin: faults::a_connection_with_bytes_after_the_response_is_not_reused";
    UnaskedAnswer = "unasked-answer", "bytes on an idle connection are taken for a response",
        "twin: faults::an_unsolicited_response_reaches_no_client";
    UnsafeRepeated = "unsafe-repeated", "a request that must not be repeated is repeated",
        "twin: faults::a_request_that_may_not_be_repeated_is_not";
    SecondMember = "second-member", "a request that came from a member goes to another one",
        "twin: cluster::members_that_disagree_pass_a_request_on_once";
    PurgeOnce = "purge-once", "members of a cluster purge once only",
        "twin: cluster::what_a_member_gave_away_during_a_purge_is_purged_too";
    MixedBodies = "mixed-bodies", "a body is continued with that of another version",
        "twin: cluster_losses::the_rest_of_another_version_is_not_sent";
    DoubtIgnored = "doubt-ignored", "peers are trusted with what was purged here",
        "twin: parents::a_purge_is_not_undone_by_the_parent";
    ForgedHitTaken = "forged-hit", "an answer to a query counts from any sender",
        "twin: siblings::a_forged_hit_changes_nothing";
    Http2WindowNotTaken = "http2-window", "content does not use up a stream's window",
        "model: rules::rfc9113_6_9_2_content_waits_for_the_window";
    Http2WindowUnnoticed = "http2-wake", "a window that opens wakes no stream",
        "twin: bodies::many_pipelined_hits_are_all_answered";
    Http2EndLost = "http2-end", "the last content of a response does not end its stream",
        "twin: bodies::every_framing_of_the_origin_reaches_every_client_whole";
    Http2LengthUnchecked = "http2-length", "content that is not as long as announced is accepted",
        "model: rules::rfc9113_8_1_1_content_length_agrees_with_the_content";
    Http2ContinuationsUnlimited = "http2-continuations", "CONTINUATION frames are not limited",
        "model: rules::rfc9113_10_5_field_blocks_have_limits";
    Http2ResetForgotten = "http2-reset", "a response is sent on a stream that was reset",
        "model: rules::rfc9113_5_1_nothing_is_sent_on_a_stream_that_was_reset";
    DiskSumUnchecked = "disk-sum", "a block's checksum is not compared",
        "store: disk::record::tests::a_block_is_valid_only_in_its_place";
    DiskLifeUnchecked = "disk-life", "a block of a segment's older life is taken",
        "store: disk::record::tests::a_block_is_valid_only_in_its_place";
    DiskKeyUnchecked = "disk-key", "the key in a record is not compared",
        "simulation: fresh_seeds";
    DiskAckBeforeSync = "disk-ack", "a delete is acknowledged before its sync",
        "disk: durability::an_acknowledged_delete_or_purge_survives_a_power_cut";
    DiskFailedSyncTrusted = "disk-failed-sync", "a failed sync is taken for a successful one",
        "disk: durability::a_failing_disk_is_bypassed_and_used_again";
    DiskDeleteForgotten = "disk-delete", "a delete is not written to the journal",
        "disk: durability::an_acknowledged_delete_or_purge_survives_a_power_cut";
    DiskPurgeForgotten = "disk-purge", "a purge is not written to the journal",
        "disk: durability::an_acknowledged_delete_or_purge_survives_a_power_cut";
    DiskTornJournal = "disk-torn-journal", "a torn batch of the journal is replayed",
        "store: disk::journal::tests::a_batch_is_valid_only_after_its_predecessor";
    DiskMoveOverNewer = "disk-move", "a moved record takes the place of a newer one",
        "simulation: seeds_that_failed_before";
    DiskUnfinishedFound = "disk-unfinished", "a body that never ended is stored as complete",
        "disk: objects::a_body_that_does_not_end_leaves_nothing";
    DiskUpdateOther = "disk-update", "a head is rewritten for another body",
        "disk: objects::an_update_rewrites_the_head_and_keeps_the_body";
    StoreOverBound = "store-over-bound", "the store does not make room for what it takes",
        "store: tests::many_threads_share_a_store_within_its_bound";
    BoostStaleDup = "boost-dup2", "a file that dup2 has replaced is taken for the new one",
        "differential: random_programs_do_the_same_boosted";
    BoostEdge = "boost-edge", "a descriptor that is still ready is not reported again",
        "differential: random_programs_do_the_same_boosted";
    BoostTimeoutSign = "boost-sign", "a negative time-out is none instead of endless",
        "differential: random_programs_do_the_same_boosted";
    BoostNvalForgotten = "boost-nval", "a closed descriptor is not reported",
        "differential: random_programs_do_the_same_boosted";
    BoostHupMasked = "boost-hup", "a hang-up that was not requested is not reported",
        "differential: random_programs_do_the_same_boosted";
    BoostDuplicateOnce = "boost-duplicate", "of two entries with one descriptor one is answered",
        "differential: random_programs_do_the_same_boosted";
    BoostForkShares = "boost-fork", "a child waits on the set of its parent",
        "differential: random_programs_do_the_same_boosted";
    BoostAuditOff = "boost-audit", "no audit finds a close that was not seen",
        "differential: an_unseen_close_does_not_hang";
    BoostTimeoutKept = "boost-select-time", "select leaves its time-out as it was",
        "differential: random_programs_do_the_same_boosted";
    QuotaForgotten = "quota-forgotten", "a client gets a full bucket in the place of a spent one",
        "policy: quota::table::tests::strangers_who_fill_a_small_table_gain_nothing";
    EncodedSlashKept = "encoded-slash-kept", "no reading of a path has an encoded slash decoded",
        "policy: routes::tests::no_spelling_of_a_path_bypasses_a_route_that_denies";
    StraysKept = "strays-kept", "datagrams of the process before are not given to it",
        "end_to_end: http3::a_restart_completes_the_requests_and_handshakes_of_http3";
    PanicSurvived = "panic-survived", "the process goes on without a core that has panicked",
        "real: panics::a_panic_of_each_core_in_turn_ends_the_process_under_load";
    BoostMaskNotPassed = "boost-mask", "a wait does not pass on its signal mask",
        "differential: random_programs_do_the_same_boosted";
    PartOverWhole = "part-over-whole", "a part replaces a whole response that may be used",
        "twin: histories::no_history_breaks_a_rule";
    OlderOverNewer = "older-over-newer", "an older response replaces a newer one",
        "twin: histories::no_history_breaks_a_rule";
    PurgedOverNewer = "purged-over-newer", "what a soft purge overtook replaces what came after it",
        "twin: histories::no_history_breaks_a_rule";
    UnstorableDrops = "unstorable-drops", "an answer that may not be stored removes the stored one",
        "twin: histories::no_history_breaks_a_rule";
    HitForPass = "hit-for-pass", "nothing is stored for a while after such an answer",
        "twin: histories::no_history_breaks_a_rule";
    RangeErrorStored = "range-error-stored", "an error that a range drew is stored for all",
        "twin: histories::no_history_breaks_a_rule";
    CookieShared = "cookie-shared", "a response that sets a cookie is stored with it",
        "twin: histories::no_history_breaks_a_rule";
    ShortLifeRefetched = "short-life-refetched", "a response with a short life is fetched twice",
        "twin: histories::no_history_breaks_a_rule";
    SlowReaderWaits = "slow-reader-waits", "a body on its way to the disk waits for slow readers",
        "twin: histories::no_history_breaks_a_rule";
}

/// Whether this bug is enabled.
#[cfg(not(feature = "switch"))]
#[inline(always)]
pub const fn is(_bug: Bug) -> bool {
    false
}

/// Whether this bug is enabled.
#[cfg(feature = "switch")]
pub fn is(bug: Bug) -> bool {
    static PLANTED: std::sync::OnceLock<Option<Bug>> = std::sync::OnceLock::new();
    *PLANTED.get_or_init(asked_for) == Some(bug)
}

#[cfg(feature = "switch")]
fn asked_for() -> Option<Bug> {
    let name = std::env::var("PLIMSOLL_PLANTED").ok().filter(|name| !name.is_empty())?;
    let bug = Bug::ALL.iter().copied().find(|bug| bug.name() == name);
    Some(bug.unwrap_or_else(|| panic!("PLIMSOLL_PLANTED names no bug: {name:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct() {
        let mut names: Vec<_> = Bug::ALL.iter().map(|bug| bug.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Bug::ALL.len());
        assert!(names.len() >= 10);
        assert!(Bug::ALL.iter().all(|bug| bug.found_by().contains(": ")));
    }

    #[cfg(not(feature = "switch"))]
    #[test]
    fn none_is_there_without_the_switch() {
        const NONE: bool = !is(Bug::KeyWithoutHost);
        assert!(NONE && Bug::ALL.iter().all(|&bug| !is(bug)));
    }
}
