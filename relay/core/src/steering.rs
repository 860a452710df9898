//! Which core owns a client: one function, in Rust and as a classic BPF program for the kernel.
//!
//! The kernel runs the program on a public SO_REUSEPORT group and gives the packet to the socket with the number that it
//! returns. Every core, and every later process with the same seed and number of cores, can compute the same from the
//! client's address. So a flow that is restored from a downlink record goes to the core that the client's packets reach.
//!
//! There is one program per address family, because header words sit at fixed places only within one. Offsets from
//! `SKF_NET_OFF` count from the IP header; at offset 0 the program would see the UDP payload. An IPv4 header may have
//! options (its length is read). An IPv6 source port is read right behind the fixed header: packets with extension headers
//! are steered by other bytes, so a client that sends them reaches one core all the same, but not always the one that
//! [`Steering::core_for`] says. IPv6 sockets must be V6ONLY, or they would see IPv4 headers.
//!
//! The mixing is two rounds of multiply and shift per word, a function of the seed that spreads addresses evenly; it is not
//! a secret. Somebody who can choose many addresses could load one core, as they could with the kernel's own hash.

use std::net::IpAddr;

use firsthop_shared::address::ClientAddr;
use firsthop_shared::limits::CORES_MAX;

/// One instruction of a classic BPF program, laid out like `struct sock_filter` (linux/filter.h).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// Jump when true.
    pub jt: u8,
    /// Jump when false.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

/// The rule by which clients are spread over the cores of one relay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Steering {
    seed: u32,
    cores: u16,
}

const MULTIPLIER: u32 = 0x9e37_79b1;
const FINISHER: u32 = 0x85eb_ca6b;
const SHIFT: u32 = 15;
const FINAL_SHIFT: u32 = 13;

impl Steering {
    /// A rule for `cores` cores. Processes that share a seed agree.
    ///
    /// # Panics
    /// With no core, or with more than [`CORES_MAX`].
    #[must_use]
    pub fn new(seed: u32, cores: u16) -> Self {
        assert!(
            (1..=CORES_MAX).contains(&cores),
            "a relay runs on 1 to {CORES_MAX} cores, not on {cores}"
        );
        Self { seed, cores }
    }

    /// How many cores the rule spreads over.
    #[must_use]
    pub fn cores(&self) -> u16 {
        self.cores
    }

    /// The core, below [`Steering::cores`], that a client's packets reach.
    #[must_use]
    pub fn core_for(&self, client: &ClientAddr) -> u16 {
        let mut hash = self.seed;
        match client.ip() {
            IpAddr::V4(ip) => hash = mix(hash, ip.to_bits()),
            IpAddr::V6(ip) => {
                let bits = ip.to_bits();
                for word in [96, 64, 32, 0] {
                    hash = mix(hash, (bits >> word) as u32);
                }
            }
        }
        hash = mix(hash, u32::from(client.port())).wrapping_mul(FINISHER);
        hash ^= hash >> FINAL_SHIFT;
        (hash % u32::from(self.cores)) as u16
    }

    /// The program for a group of IPv4 sockets.
    #[must_use]
    pub fn program_v4(&self) -> Vec<Instruction> {
        let mut program = self.start();
        push_mix(&mut program, load_word(IPV4_SOURCE));
        program.push(instruction(LDX | B | MSH, NET_OFF));
        push_mix(&mut program, instruction(LD | H | IND, NET_OFF));
        self.finish(program)
    }

    /// The program for a group of IPv6 sockets.
    #[must_use]
    pub fn program_v6(&self) -> Vec<Instruction> {
        let mut program = self.start();
        for word in 0..4 {
            push_mix(&mut program, load_word(IPV6_SOURCE + 4 * word));
        }
        push_mix(
            &mut program,
            instruction(LD | H | ABS, NET_OFF + IPV6_HEADER_LEN),
        );
        self.finish(program)
    }

    fn start(&self) -> Vec<Instruction> {
        vec![instruction(LD | IMM, self.seed), instruction(ST, HASH)]
    }

    fn finish(&self, mut program: Vec<Instruction>) -> Vec<Instruction> {
        program.extend([
            instruction(LD | MEM, HASH),
            instruction(ALU | MUL | K, FINISHER),
        ]);
        push_xor_shift(&mut program, FINAL_SHIFT);
        program.extend([
            instruction(ALU | MOD | K, u32::from(self.cores)),
            instruction(RET | A, 0),
        ]);
        program
    }
}

fn mix(hash: u32, word: u32) -> u32 {
    let product = (hash ^ word).wrapping_mul(MULTIPLIER);
    product ^ product >> SHIFT
}

/// `HASH = mix(HASH, word)`, where `load` brings the word into A.
fn push_mix(program: &mut Vec<Instruction>, load: Instruction) {
    program.extend([
        load,
        instruction(LDX | MEM, HASH),
        instruction(ALU | XOR | X, 0),
        instruction(ALU | MUL | K, MULTIPLIER),
    ]);
    push_xor_shift(program, SHIFT);
    program.push(instruction(ST, HASH));
}

/// `A ^= A >> shift`. X is lost.
fn push_xor_shift(program: &mut Vec<Instruction>, shift: u32) {
    program.extend([
        instruction(TAX, 0),
        instruction(ALU | RSH | K, shift),
        instruction(ALU | XOR | X, 0),
    ]);
}

fn load_word(offset: u32) -> Instruction {
    instruction(LD | W | ABS, NET_OFF + offset)
}

fn instruction(code: u16, k: u32) -> Instruction {
    Instruction {
        code,
        jt: 0,
        jf: 0,
        k,
    }
}

/// `SKF_NET_OFF`: offsets from here on count from the network header.
const NET_OFF: u32 = (-0x10_0000i32) as u32;
const IPV4_SOURCE: u32 = 12;
const IPV6_SOURCE: u32 = 8;
const IPV6_HEADER_LEN: u32 = 40;
/// Scratch memory word that holds the running hash.
const HASH: u32 = 0;

// linux/bpf_common.h and linux/filter.h.
const LD: u16 = 0x00;
const LDX: u16 = 0x01;
const ST: u16 = 0x02;
const ALU: u16 = 0x04;
const RET: u16 = 0x06;
const TAX: u16 = 0x07;
const W: u16 = 0x00;
const H: u16 = 0x08;
const B: u16 = 0x10;
const IMM: u16 = 0x00;
const ABS: u16 = 0x20;
const IND: u16 = 0x40;
const MEM: u16 = 0x60;
const MSH: u16 = 0xa0;
const MUL: u16 = 0x20;
const RSH: u16 = 0x70;
const MOD: u16 = 0x90;
const XOR: u16 = 0xa0;
const K: u16 = 0x00;
const X: u16 = 0x08;
const A: u16 = 0x10;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

    /// Runs a program as the kernel does on a packet whose IP header starts at `packet[0]`.
    fn run(program: &[Instruction], packet: &[u8]) -> u32 {
        let (mut a, mut x, mut memory) = (0u32, 0u32, [0u32; 16]);
        let byte = |offset: u32| {
            let at = offset
                .checked_sub(NET_OFF)
                .expect("only header words are read");
            u32::from(packet[at as usize])
        };
        let half = |offset| byte(offset) << 8 | byte(offset + 1);
        let word = |offset| half(offset) << 16 | half(offset + 2);
        for i in program {
            match i.code {
                0x00 => a = i.k,                       // ld #k
                0x20 => a = word(i.k),                 // ld [k]
                0x28 => a = half(i.k),                 // ldh [k]
                0x48 => a = half(x.wrapping_add(i.k)), // ldh [x + k]
                0x60 => a = memory[i.k as usize],      // ld M[k]
                0x61 => x = memory[i.k as usize],      // ldx M[k]
                0xb1 => x = 4 * (byte(i.k) & 0xf),     // ldxb 4*([k]&0xf)
                0x02 => memory[i.k as usize] = a,      // st M[k]
                0x24 => a = a.wrapping_mul(i.k),       // mul #k
                0x74 => a >>= i.k,                     // rsh #k
                0x94 => a %= i.k,                      // mod #k
                0xac => a ^= x,                        // xor x
                0x07 => x = a,                         // tax
                0x16 => return a,                      // ret a
                other => panic!("the program has an instruction of another kind: {other:#x}"),
            }
        }
        panic!("the program has no end");
    }

    fn ipv4_packet(ip: Ipv4Addr, port: u16, options: usize) -> Vec<u8> {
        let mut packet = vec![0xee; 20 + 4 * options + 8];
        packet[0] = 0x40 | (5 + options) as u8;
        packet[12..16].copy_from_slice(&ip.octets());
        let udp = 20 + 4 * options;
        packet[udp..udp + 2].copy_from_slice(&port.to_be_bytes());
        packet
    }

    fn ipv6_packet(ip: Ipv6Addr, port: u16) -> Vec<u8> {
        let mut packet = vec![0xee; 48];
        packet[0] = 0x60;
        packet[8..24].copy_from_slice(&ip.octets());
        packet[40..42].copy_from_slice(&port.to_be_bytes());
        packet
    }

    proptest! {
        #[test]
        fn the_kernel_program_and_the_function_agree_on_ipv4(
            ip: u32, port: u16, options in 0usize..=10, seed: u32, cores in 1u16..=CORES_MAX,
        ) {
            let steering = Steering::new(seed, cores);
            let ip = Ipv4Addr::from(ip);
            let core = run(&steering.program_v4(), &ipv4_packet(ip, port, options));
            prop_assert_eq!(core, u32::from(steering.core_for(&ClientAddr::new(SocketAddr::from((ip, port))))));
        }

        #[test]
        fn the_kernel_program_and_the_function_agree_on_ipv6(
            ip: u128, port: u16, seed: u32, cores in 1u16..=CORES_MAX,
        ) {
            // A mapped address is an IPv4 client, and never on an IPv6 socket that is V6ONLY.
            let ip = Ipv6Addr::from(ip | 1 << 127);
            let steering = Steering::new(seed, cores);
            let core = run(&steering.program_v6(), &ipv6_packet(ip, port));
            prop_assert_eq!(core, u32::from(steering.core_for(&ClientAddr::new(SocketAddr::from((ip, port))))));
        }
    }

    #[test]
    #[should_panic(expected = "not on 257")]
    fn more_cores_than_a_relay_may_have_are_our_bug() {
        // Cut silently, the cores beyond would believe that no client is theirs.
        let _ = Steering::new(0, CORES_MAX + 1);
    }

    #[test]
    fn one_client_address_spreads_its_ports_evenly() {
        let steering = Steering::new(7, 8);
        let mut counts = [0u32; 8];
        for port in 20_000..60_000u16 {
            let client = ClientAddr::new(SocketAddr::from(([203, 0, 113, 9], port)));
            counts[usize::from(steering.core_for(&client))] += 1;
        }
        assert!(
            counts.iter().all(|n| (4_500..5_500).contains(n)),
            "{counts:?}"
        );
    }

    #[test]
    fn clients_on_one_port_spread_evenly() {
        let steering = Steering::new(99, 5);
        let mut counts = [0u32; 5];
        for host in 0..20_000u32 {
            let client = ClientAddr::new(SocketAddr::from((
                Ipv4Addr::from(0x0a00_0000 + host),
                5_060,
            )));
            counts[usize::from(steering.core_for(&client))] += 1;
        }
        assert!(
            counts.iter().all(|n| (3_500..4_500).contains(n)),
            "{counts:?}"
        );
    }
}
