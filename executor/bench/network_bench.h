/// Micro-benchmarks between ranks: messages and the executor's own collectives, on any transport.
///
/// A repetition's time is from the last member's start (of one-way messages and broadcasts the
/// sender's: the others wait) to the last member's end, on the clock of the first device of the
/// case, which also decides how often it is repeated. Clocks of other machines are compared by the
/// exchange with the shortest way there and back [Cristian 1989] just before a case; processes of
/// one machine share a clock.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "executor/bench/compute_bench.h"
#include "executor/net/transport.h"

namespace orrery::executor {

/// Rank of the transport by device.
using RankOfDevice = std::map<DeviceId, int>;

/// Kinds point_to_point and collective. All devices of the case call it with the same case and
/// `number`, which no other case of this transport has (modulo 2^20). `rule`, `before` and `sink`
/// matter on the first device only. Collectives are on fp32 numbers: bytes are rounded down to
/// whole ones. Throws TransportError.
void time_transfer(const BenchCase& one, std::uint64_t number, Transport& transport,
                   const RankOfDevice& ranks, const SamplingRule& rule,
                   const std::vector<ir::Measurement>& before, const BenchSink& sink);

}  // namespace orrery::executor
