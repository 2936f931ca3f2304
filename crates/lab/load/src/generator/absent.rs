//! Replaces HTTP/3 in a build without TLS, where no plan has it.

use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;

use http2::RequestFields;

use super::lanes::{Cause, Lanes, Requests};
use crate::plan::Plan;
use crate::tls::Tls;

pub(super) struct Quic(Infallible);

impl Quic {
    pub(super) fn new(_: &Plan, tls: &Tls) -> Result<Quic, String> {
        match tls.0 {}
    }

    pub(super) fn next_due(&self) -> Option<(u64, u32)> {
        match self.0 {}
    }

    pub(super) fn connect(&mut self, _: &OwnedFd, _: usize, _: u64) -> io::Result<Http3> {
        match self.0 {}
    }
}

pub(super) struct Http3 {
    never: Infallible,
    pub(super) is_connected: bool,
    pub(super) goes_away: bool,
}

impl Http3 {
    pub(super) fn send_request<'f>(
        &mut self,
        _: &RequestFields<'_>,
        _: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
        _: usize,
        _: &mut Vec<u8>,
    ) -> Option<u64> {
        match self.never {}
    }

    pub(super) fn cancel(&mut self, _: u64) {
        match self.never {}
    }

    pub(super) fn turn(
        &mut self,
        _: Cause,
        _: &mut Quic,
        _: &OwnedFd,
        _: &mut Requests,
        _: &mut Lanes,
        _: u64,
    ) -> io::Result<()> {
        match self.never {}
    }

    pub(super) fn transmit(&mut self, _: u32, _: &mut Quic, _: &OwnedFd, _: u64) {
        match self.never {}
    }

    pub(super) fn close(self, _: u32, _: &mut Quic, _: &OwnedFd, _: u64) {
        match self.never {}
    }
}
