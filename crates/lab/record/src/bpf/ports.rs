//! The ports on which the server listens, for programs that distinguish its clients from others.

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::program::Program;
use crate::error::Unsupported;
use crate::listeners;

/// The map `ports` of a program, as in `clients.h`.
pub(super) struct Ports {
    map: MapHandle,
    /// The processes whose ports were looked up. New ones may listen on other ports.
    looked: Vec<u32>,
}

impl Ports {
    pub(super) fn of(program: &Program) -> Result<Ports, Unsupported> {
        Ok(Ports { map: program.map("ports")?, looked: Vec::new() })
    }

    /// Looks up the ports of these processes. `again`: also if these were the last processes,
    /// because they may have opened more ports.
    pub(super) fn follow(&mut self, pids: &[u32], again: bool) {
        if self.looked == pids && !again {
            return;
        }
        pids.clone_into(&mut self.looked);
        for (word, bits) in (0u32..).zip(port_bits(&listeners::ports(pids))) {
            if bits != 0 {
                // An entry of an array can always be written.
                let (word, bits) = (word.to_ne_bytes(), bits.to_ne_bytes());
                let _ = self.map.update(&word, &bits, MapFlags::ANY);
            }
        }
    }
}

/// A bit for each port.
fn port_bits(ports: &[u16]) -> [u64; 1024] {
    let mut bits = [0; 1024];
    for &port in ports {
        bits[usize::from(port) / 64] |= 1 << (port % 64);
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_port_has_its_bit() {
        let bits = port_bits(&[0, 80, 65_535]);
        assert_eq!((bits[0], bits[1], bits[1023]), (1, 1 << 16, 1 << 63));
        assert_eq!(bits.iter().map(|word| word.count_ones()).sum::<u32>(), 3);
    }
}
