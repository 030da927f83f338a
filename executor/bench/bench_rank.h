/// A process of the micro-benchmarks: one device. It joins a mesh with the others, takes the cases
/// that it has a part in one after the other from the store, and ends when the driver says so or is
/// gone. Its environment is that of rank processes (executor/launcher/rank.h).
///
///   settings              RunSettings: back end, precision, folders, deadlines
///   bench/members         devices that take part, in the order of their ranks
///   bench/program         a Program with nothing but the header: the model
///   bench/rule            SamplingRule
///   bench/endpoint/<d>    where device d listens
///   bench/joined/<d>      device d is in the mesh
///   bench/case/<n>        the n-th case and the samples that are there already; or "end"
///   bench/out/<n>/<i>     its i-th new sample; by its first device, as all that follow
///   bench/done/<n>        it has ended
///   bench/error/<d>       why device d ended
#pragma once
#include <string>
#include <vector>

#include "executor/bench/cases.h"
#include "executor/bench/sampling.h"

namespace orrery::executor {

/// The name of the subcommand that runs run_bench_rank_process().
inline constexpr const char* kBenchRankCommand = "calibrate-rank";

/// A case and the samples of it that exist.
struct BenchOrder {
  BenchCase what;
  std::vector<ir::Measurement> before;
};
void describe(config::Visitor& v, BenchOrder& order);

/// What a process tells the driver.
struct BenchSample {
  ir::Measurement sample;
};
void describe(config::Visitor& v, BenchSample& one);

/// The whole process. Returns the exit status: 0 as ordered, 1 with the reason on standard error
/// and in the store, 2 when the environment says nothing useful, kStoreLost.
int run_bench_rank_process();

}  // namespace orrery::executor
