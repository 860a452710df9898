//! How many machines a number of users takes, from what calls were measured to cost.
//!
//! ```text
//! users × concurrent × share of a region  =  calls at once
//! calls / length × peak                   =  set-ups a second
//! busy cores = calls × (time of a call) + set-ups × (time of a set-up)
//! machines   = busy cores / (cores of a machine × what headroom leaves), or as many as its link needs; and those that may fail
//! ```
//!
//! What was measured is in [`Costs`], what was not in [`Assumptions`]; both are printed with the plan, which is arithmetic between the two:
//! pure. A machine has twice the cores and carries twice the calls: programs share nothing between cores but the network, which is counted
//! apart. Cores are those that were measured: on a faster machine fewer do.

use firsthop_shared::trunk::{DATAGRAM_HEADER_LEN, RECORD_HEADER_MIN};
use serde::Serialize;

mod assumptions;
mod capacity;
mod costs;
pub mod quantity;
mod told;

pub use assumptions::{Assumptions, Told};
pub use costs::{Costs, CostsError, Figure, Fitted};

use costs::{MEASURED_RATE, WORKS, words};

/// Machines of one kind in a region.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Machines {
    /// How many, those that may fail included.
    pub machines: f64,
    /// Cores that are busy, all machines together.
    pub busy_cores: f64,
    /// Cores of all machines.
    pub cores: f64,
    /// What asks for as many machines: `cores` or `link`.
    pub needed_for: &'static str,
    /// Memory that calls take on each when as many have failed as may, in bytes; nothing where calls leave none.
    pub bytes_each: Option<f64>,
}

/// Bits a second, each way.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize)]
pub struct Bandwidth {
    /// Between clients and relays.
    pub public: f64,
    /// Between relays and transceivers.
    pub internal: f64,
    /// Between transceivers and model servers.
    pub models: f64,
}

/// What the Redis of a region's relays has to do.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize)]
pub struct Redis {
    /// Writes a second: each flow when it is proven, and its renewals.
    pub writes: f64,
    /// Questions at once when a relay fails and another takes its clients.
    pub questions: f64,
    /// Memory for the flows, in bytes.
    pub bytes: f64,
}

/// One region.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Place {
    /// Its name.
    pub name: String,
    /// Calls at once.
    pub calls: f64,
    /// Set-ups a second at the worst moment.
    pub set_ups: f64,
    /// Relays.
    pub relays: Machines,
    /// Transceivers.
    pub transceivers: Machines,
    /// Signaling.
    pub signaling: Machines,
    /// What goes over the network.
    pub bandwidth: Bandwidth,
    /// What is asked of Redis.
    pub redis: Redis,
}

/// A plan, with all that it was made of.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Plan {
    /// Each region.
    pub regions: Vec<Place>,
    /// All of them together.
    pub total: Place,
    /// Processor time of each program for one call, in microseconds a second, set-ups apart: relay, transceiver.
    pub micros_per_call: [f64; 2],
    /// What was measured, and where it stands.
    pub measured: Vec<Figure>,
    /// The lines that were fitted to what was measured.
    pub fitted: Vec<Fitted>,
    /// What was taken for granted.
    pub assumed: Vec<Told>,
    /// What to know before believing it.
    pub cautions: Vec<String>,
}

impl Plan {
    /// Plans.
    #[must_use]
    pub fn of(assumptions: &Assumptions, costs: &Costs) -> Self {
        let per_call = PerCall::of(assumptions, costs);
        let calls = assumptions.users.value * assumptions.concurrent.value;
        let regions: Vec<Place> = assumptions
            .regions
            .list
            .iter()
            .map(|region| {
                place(
                    &region.name,
                    calls * region.share,
                    assumptions,
                    costs,
                    &per_call,
                )
            })
            .collect();
        Self {
            total: total(&regions),
            regions,
            micros_per_call: [per_call.relay, per_call.transceiver].map(|cores| cores * 1e6),
            measured: costs.figures().into_iter().cloned().collect(),
            fitted: costs.fitted.clone(),
            assumed: assumptions.told(),
            cautions: cautions(costs),
        }
    }
}

/// What one call of the mix takes.
struct PerCall {
    /// Busy cores of relays.
    relay: f64,
    /// Busy cores of transceivers.
    transceiver: f64,
    /// Bytes a second, each way, between client and relay.
    public: f64,
    /// The same between relay and transceiver.
    internal: f64,
    /// The same to a model server.
    models: f64,
    /// Memory of a transceiver.
    bytes: f64,
}

impl PerCall {
    fn of(assumptions: &Assumptions, costs: &Costs) -> Self {
        let decoded = assumptions.transcoding.value;
        let mixed =
            |through: f64, transcoded: f64| through * (1.0 - decoded) + transcoded * decoded;
        let of = |figures: &[Figure; 2]| mixed(figures[0].value, figures[1].value);
        let rate = assumptions.packet_rate.value;
        let media = mixed(assumptions.g711_bytes.value, assumptions.opus_bytes.value)
            + assumptions.media_header.value;
        let packet = assumptions.packet_header.value;
        // The trunk's headers come once for all records of a datagram.
        let shared = (DATAGRAM_HEADER_LEN as f64 + packet) / costs.packing.value;
        let [through, transcoded] = &costs.transceiver_calls;
        Self {
            relay: costs.relay_call.value / 1e6 * rate / MEASURED_RATE,
            transceiver: mixed(1.0 / through.value, 1.0 / transcoded.value),
            public: rate * (media + packet),
            internal: rate * (media + RECORD_HEADER_MIN as f64 + shared),
            models: mixed(
                assumptions.model_rate_g711.value,
                assumptions.model_rate_pcm.value,
            ),
            bytes: of(&costs.transceiver_bytes),
        }
    }
}

fn place(
    name: &str,
    calls: f64,
    assumptions: &Assumptions,
    costs: &Costs,
    each: &PerCall,
) -> Place {
    let set_ups = calls / assumptions.call_length.value * assumptions.set_up_peak.value;
    let micros = |figure: &Option<Figure>| figure.as_ref().map_or(0.0, |figure| figure.value) / 1e6;
    // A call from afar passes the relay of its region, and one in that of its transceiver.
    let passed = calls * (1.0 + assumptions.far.value);
    let left = 1.0 - assumptions.headroom.value;
    let failures = assumptions.failures.value;
    let need = |busy: f64, cores: f64| (busy / (cores * left)).ceil().max(1.0);

    let busy = passed * each.relay + set_ups * micros(&costs.relay_set_up);
    let cores = assumptions.relay_cores.value;
    let bits = 8.0 * passed * (each.public + each.internal);
    let for_link = (bits / (assumptions.relay_link.value * left)).ceil();
    let for_cores = need(busy, cores);
    let needed = for_cores.max(for_link);
    let relays = Machines {
        machines: needed + failures,
        busy_cores: busy,
        cores: (needed + failures) * cores,
        needed_for: if for_link > for_cores {
            "link"
        } else {
            "cores"
        },
        bytes_each: Some(passed / needed * costs.relay_flow.value),
    };
    let flows_of_one = passed / needed;

    let busy = calls * each.transceiver + set_ups * micros(&costs.transceiver_set_up);
    let cores = assumptions.transceiver_cores.value;
    let needed = need(busy, cores);
    let transceivers = Machines {
        machines: needed + failures,
        busy_cores: busy,
        cores: (needed + failures) * cores,
        needed_for: "cores",
        bytes_each: Some(calls / needed * each.bytes),
    };

    let busy = set_ups * (costs.signaling_set_up.value / 1e6 + assumptions.tls_handshake.value);
    let cores = assumptions.signaling_cores.value;
    let needed = need(busy, cores);
    let signaling = Machines {
        machines: needed + failures,
        busy_cores: busy,
        cores: (needed + failures) * cores,
        needed_for: "cores",
        bytes_each: None,
    };

    Place {
        name: name.to_owned(),
        calls,
        set_ups,
        relays,
        transceivers,
        signaling,
        bandwidth: Bandwidth {
            public: 8.0 * calls * each.public,
            internal: 8.0 * passed * each.internal,
            models: 8.0 * calls * each.models,
        },
        redis: Redis {
            // Only the relay that the client reaches keeps its flow there.
            writes: set_ups + calls * assumptions.redis_renewals.value / 60.0,
            questions: flows_of_one,
            bytes: calls * assumptions.redis_entry.value,
        },
    }
}

fn total(regions: &[Place]) -> Place {
    let sum = |of: &dyn Fn(&Place) -> f64| regions.iter().map(of).sum::<f64>();
    let machines = |of: fn(&Place) -> &Machines| {
        let worst = regions.iter().filter_map(|region| of(region).bytes_each);
        let link = regions.iter().any(|region| of(region).needed_for == "link");
        Machines {
            machines: sum(&|region| of(region).machines),
            busy_cores: sum(&|region| of(region).busy_cores),
            cores: sum(&|region| of(region).cores),
            needed_for: if link { "link" } else { "cores" },
            bytes_each: worst.reduce(f64::max),
        }
    };
    Place {
        name: "all".to_owned(),
        calls: sum(&|region| region.calls),
        set_ups: sum(&|region| region.set_ups),
        relays: machines(|region| &region.relays),
        transceivers: machines(|region| &region.transceivers),
        signaling: machines(|region| &region.signaling),
        bandwidth: Bandwidth {
            public: sum(&|region| region.bandwidth.public),
            internal: sum(&|region| region.bandwidth.internal),
            models: sum(&|region| region.bandwidth.models),
        },
        redis: Redis {
            writes: sum(&|region| region.redis.writes),
            questions: regions
                .iter()
                .map(|region| region.redis.questions)
                .fold(0.0, f64::max),
            bytes: sum(&|region| region.redis.bytes),
        },
    }
}

fn cautions(costs: &Costs) -> Vec<String> {
    let mut cautions = Vec::new();
    let figures = costs.figures();
    let mut machines: Vec<&str> = Vec::new();
    for figure in &figures {
        if !machines.contains(&figure.machine.as_str()) {
            machines.push(&figure.machine);
        }
    }
    if machines.len() > 1 {
        cautions.push(format!(
            "the costs were measured on different machines, whose cores are not alike: {}",
            machines.join("; ")
        ));
    }
    if figures.iter().any(|figure| figure.quick) {
        cautions.push(
            "some of the costs are of the short form: plan with those of a whole run".to_owned(),
        );
    }
    for (program, figure) in [
        ("relay", &costs.relay_set_up),
        ("transceiver", &costs.transceiver_set_up),
    ] {
        if figure.is_none() {
            cautions.push(format!(
                "what a set-up costs a {program} is not in the results (`scripts/bench calls` measures it) and not in the plan"
            ));
        }
    }
    for (work, by_time) in WORKS.into_iter().zip(costs.transceiver_by_time) {
        if by_time {
            cautions.push(format!(
                "no limit of a transceiver was found with calls {}: the plan fills its cores by the time that a call takes, so calls may be late or have gaps \
                 before as many are up (`scripts/bench calls` searches)",
                words(work)
            ));
        }
    }
    cautions
}

#[cfg(test)]
mod tests;
