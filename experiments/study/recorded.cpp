#include "experiments/study/recorded.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "experiments/study/execute.h"
#include "experiments/study/files.h"
#include "experiments/study/hardware.h"
#include "experiments/study/run_tasks.h"
#include "models/base/check.h"
#include "models/base/file.h"
#include "models/base/ids.h"
#include "models/config/document.h"
#include "models/cost/device_share.h"
#include "models/cost/pricer.h"
#include "models/ir/op_traits.h"
#include "models/ir/wire.h"
#include "models/spec/topology.h"
#include "sim/iteration/iteration.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRecordedFile = "recorded.yaml";

template <class T, class Parse>
T read_recorded(const fs::path& path, Parse parse, config::Diagnostics& diagnostics) {
  std::string bytes;
  if (const auto problem = read_file(path.string(), bytes)) {
    diagnostics.add({path.string(), 0, 0}, *problem);
    return {};
  }
  auto parsed = parse(bytes);
  if (const auto* problem = std::get_if<std::string>(&parsed)) {
    diagnostics.add({path.string(), 0, 0}, *problem);
    return {};
  }
  return std::move(std::get<T>(parsed));
}

struct Recorded {
  RecordedFolder folder;
  ir::Program program;
  ir::RunLog log;
};

Recorded load_recorded(const std::string& path, config::Diagnostics& diagnostics) {
  const std::size_t before = diagnostics.problems().size();
  Recorded out;
  const fs::path folder = path;
  out.folder = config::load_file<RecordedFolder>((folder / kRecordedFile).string(), diagnostics);
  if (diagnostics.problems().size() != before) return out;
  out.program = read_recorded<ir::Program>(
      folder / out.folder.program, [](const auto& bytes) { return ir::parse_program(bytes); },
      diagnostics);
  out.log = read_recorded<ir::RunLog>(
      folder / out.folder.log, [](const auto& bytes) { return ir::parse_run_log(bytes); },
      diagnostics);
  if (diagnostics.problems().size() != before) return out;
  const config::Position at{(folder / out.folder.program).string(), 0, 0};
  if (const std::string defect = ir::find_defect(out.program); !defect.empty()) {
    diagnostics.add(at, defect);
  } else if (out.log.program_hash != ir::program_hash(out.program) ||
             out.log.spans.size() != out.program.ops.size()) {
    diagnostics.add({(folder / out.folder.log).string(), 0, 0}, "is the log of another program");
  }
  for (const ir::Op& op : out.program.ops) {
    const bool known = op.kind == ir::OpKind::kernel || op.kind == ir::OpKind::host ||
                       op.kind == ir::OpKind::collective || ir::is_transfer(op.kind);
    if (known) continue;
    diagnostics.add(at, "is no program of a recorded run");
    break;
  }
  return out;
}

FlopsPerSecond speed_of(const models::GpuType& gpu) {
  const auto dtype = models::supported_dtype(gpu, ir::Dtype::bf16);
  if (!dtype) return {};
  return gpu.efficiency * gpu.peak.at(*dtype);
}

/// Recorded times on other GPUs.
std::vector<Seconds> times_on(const Recorded& recorded, const models::Cluster& from,
                              const models::Cluster& to) {
  std::vector<Seconds> times = calibration::recorded_times(recorded.program, recorded.log);
  for (std::size_t i = 0; i < times.size(); ++i) {
    const ir::Op& op = recorded.program.ops[i];
    if (op.kind != ir::OpKind::kernel) continue;
    const DeviceId device = recorded.program.rank_of(op).device;
    times[i] *= speed_of(from.gpu(device)) / speed_of(to.gpu(device));
  }
  return times;
}

/// A rank's kernels and communication one after the other.
ir::Program without_overlap(ir::Program program, const ir::RunLog& log) {
  const std::vector<std::size_t> place = calibration::common_order(program, log);
  std::vector<std::vector<OpId>> after(program.ops.size());
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const auto before = program.dependencies_of({static_cast<std::int32_t>(i)});
    after[i].assign(before.begin(), before.end());
  }
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    std::vector<OpId> order;
    for (std::size_t i = program.stream_begin[r * ir::kStreams];
         i < program.stream_begin[(r + 1) * ir::kStreams]; ++i) {
      if (program.ops[i].kind != ir::OpKind::host) order.push_back({static_cast<std::int32_t>(i)});
    }
    std::sort(order.begin(), order.end(),
              [&](OpId a, OpId b) { return place[a.index()] < place[b.index()]; });
    for (std::size_t i = 1; i < order.size(); ++i) after[order[i].index()].push_back(order[i - 1]);
  }
  program.dependencies.clear();
  program.dependency_begin.assign(1, 0);
  for (const std::vector<OpId>& before : after) {
    program.dependencies.insert(program.dependencies.end(), before.begin(), before.end());
    program.dependency_begin.push_back(static_cast<std::uint32_t>(program.dependencies.size()));
  }
  return program;
}

ReplayedParts parts_of(const std::vector<ir::RankBreakdown>& ranks) {
  ReplayedParts mean;
  const double weight = 1.0 / static_cast<double>(ranks.size());
  for (const ir::RankBreakdown& rank : ranks) {
    mean.compute += weight * to_seconds(rank.compute);
    mean.messages += weight * to_seconds(rank.pipeline);
    mean.collectives += weight * to_seconds(rank.data_parallel);
    mean.idle += weight * to_seconds(rank.bubble);
  }
  return mean;
}

struct Replay {
  const Recorded& recorded;
  const models::Cluster& own;      ///< That it ran on.
  const models::Cluster& cluster;  ///< That it is replayed on.
  const ir::Profile& profile;
  const sim::IterationOptions& options;
  const Exports& exports;
};

ReplayOnce replay_once(const std::string& name, const ir::Program& program, const Replay& replay) {
  return run_in_child<ReplayOnce>(name, [&] {
    const models::Topology topology(replay.cluster, replay.profile);
    sim::IterationSimulator simulator(replay.cluster, topology);
    sim::IterationOptions options = replay.options;
    options.record_spans = replay.exports.any();
    options.record_memory = false;
    sim::IterationResult result = simulator.run(
        program, models::ProgramPrices(times_on(replay.recorded, replay.own, replay.cluster)),
        options);
    result.log.program_hash = ir::program_hash(program);
    write_exports(replay.exports, replay.cluster, program, result.log);
    return ReplayOnce{result.iteration_time, parts_of(result.ranks),
                      busiest_links(result.log, result.iteration_time)};
  });
}

/// Settings that a recorded run has no use for.
void refuse_settings(const JobSettings& job, const JudgeSettings& judge,
                     config::Diagnostics& diagnostics) {
  const auto refuse = [&](const std::string& key) {
    diagnostics.add(at_setting(key), "has no meaning for a recorded run");
  };
  if (job.model) refuse("model");
  if (job.job) refuse("job");
  if (job.scale_profile) refuse("scale_profile");
  for (const auto& [key, path] : job_keys()) {
    if (job.gives(path)) refuse(key);
  }
  for (const char* key : {"cost", "inner", "expanded"}) {
    const auto& given = judge.given;
    if (std::find(given.begin(), given.end(), key) != given.end()) refuse(key);
  }
  if (!judge.hardware.without.empty()) refuse("without");
}

void check_devices(const Recorded& recorded, const models::Cluster& cluster,
                   const config::Position& at, config::Diagnostics& diagnostics) {
  for (const ir::Rank& rank : recorded.program.ranks) {
    if (rank.device.value >= cluster.size()) {
      diagnostics.add(at, fmt::format("the run used device {}, {} has {}", rank.device.value,
                                      cluster.name, cluster.size()));
      return;
    }
    const models::GpuType& gpu = cluster.gpu(rank.device);
    if (!(speed_of(gpu).value > 0)) {
      diagnostics.add(at, fmt::format("nothing says how fast {} computes", gpu.name));
      return;
    }
  }
}

}  // namespace

std::vector<std::pair<Overlap, const char*>> enum_names(Overlap) {
  return {{Overlap::recorded, "recorded"}, {Overlap::none, "none"}};
}

void describe(config::Visitor& v, RecordedFolder& folder) {
  v.schema("orrery/recorded_run", 1);
  v.title("Recorded run");
  v.required("source", folder.source, "chakra or kineto");
  v.required("cluster", folder.cluster, "file: what it ran on");
  v.required("program", folder.program, "file: what its ranks did, and what waited for what");
  v.required("log", folder.log, "file: when");
  v.required("steps", folder.steps, "training steps in it");
  v.optional("notes", folder.notes, "what was left out or guessed");
}

void describe(config::Visitor& v, ReplayedParts& parts) {
  v.title("Where the time of a replay goes");
  v.required("compute_seconds", parts.compute, "kernels; mean over ranks, as all below");
  v.required("message_seconds", parts.messages, "sends and receives while no kernel runs");
  v.required("collective_seconds", parts.collectives, "collectives while no kernel runs");
  v.required("idle_seconds", parts.idle, "waiting for the host, or for other ranks to compute");
}

void describe(config::Visitor& v, ReplayOnce& once) {
  v.title("Replay");
  v.required("seconds", once.time, "all steps");
  v.required("parts", once.parts, "where they go");
  v.optional("busiest_links", once.busiest_links, "by share of the time");
}

void describe(config::Visitor& v, RecordedReplay& replay) {
  v.title("Replay of a recorded run");
  v.required("source", replay.source, "chakra or kineto");
  v.required("cluster", replay.cluster, "that it ran on");
  v.required("ranks", replay.ranks, "one trace each");
  v.required("operations", replay.ops, "of all ranks, times of the host among them");
  v.required("steps", replay.steps, "training steps in all times below");
  v.optional("recorded_seconds", replay.recorded, "absent: the trace has no start times");
  v.required("as_recorded_seconds", replay.as_recorded,
             "replayed with everything as long as it was; without start times, communication "
             "takes none");
  v.optional("as_recorded_error", replay.as_recorded_error, "as a share of the recorded time");
  v.required("simulated", replay.simulated, "with the network of its cluster");
  v.optional("simulated_error", replay.simulated_error, "as a share of the recorded time");
  v.optional("what_if", replay.what_if, "with what the settings change");
  v.optional("what_if_cluster", replay.what_if_cluster, "that it was replayed on");
  v.optional("change", replay.change, "of what_if against simulated, as a share");
  v.optional("expected_seconds", replay.expected, "the recorded time, changed by that");
  v.optional("notes", replay.notes, "of the import: what was left out or guessed");
}

void write_recorded(const std::string& folder, const calibration::RecordedRun& run,
                    const calibration::RecordedProgram& program, const std::string& cluster,
                    const models::Library& library) {
  RecordedFolder out;
  out.source = run.source;
  out.steps = run.steps;
  out.notes = run.notes;
  make_folders(folder);
  const auto known = library.clusters.find(cluster);
  const std::string path = known == library.clusters.end() ? cluster : known->second;
  const fs::path to = folder;
  replace_text_file((to / out.cluster).string(), read_text_file(path));
  replace_text_file((to / out.program).string(), ir::serialize(program.program));
  replace_text_file((to / out.log).string(), ir::serialize(program.log));
  replace_text_file((to / kRecordedFile).string(), config::dump(out));
}

bool is_recorded_run(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(fs::path(path) / kRecordedFile, error);
}

RecordedReplay replay_recorded(const std::string& folder, const JobSettings& job,
                               const JudgeSettings& judge, Overlap overlap, const Exports& exports,
                               const Call& call, config::Diagnostics problems) {
  config::Diagnostics diagnostics = std::move(problems);
  refuse_settings(job, judge, diagnostics);
  const Recorded recorded = load_recorded(folder, diagnostics);
  const models::Library library = open_library(diagnostics);
  diagnostics.raise();
  const std::string own_file = (fs::path(folder) / recorded.folder.cluster).string();
  const config::Position own_at{own_file, 0, 0};
  const models::Cluster own = models::load_cluster(own_file, library, own_at, diagnostics);
  const config::Position at = job.cluster ? at_setting("cluster") : own_at;
  models::Cluster changed =
      job.cluster ? models::load_cluster(*job.cluster, library, at, diagnostics) : own;
  const ir::Profile profile =
      job.profile ? models::load_profile(*job.profile, diagnostics) : ir::Profile{};
  diagnostics.raise();
  apply(judge.hardware, changed, diagnostics);
  check_devices(recorded, own, own_at, diagnostics);
  if (job.cluster) check_devices(recorded, changed, at, diagnostics);
  diagnostics.raise();
  const sim::IterationOptions& options = judge.simulation;
  for (const std::string& problem :
       sim::find_problems(options, changed, models::Topology(changed, profile))) {
    diagnostics.add(own_at, problem);
  }
  const ir::Program serial =
      overlap == Overlap::none ? without_overlap(recorded.program, recorded.log) : ir::Program{};
  diagnostics.raise();

  RecordedReplay result;
  result.source = recorded.folder.source;
  result.cluster = own.name;
  result.ranks = static_cast<std::int64_t>(recorded.program.ranks.size());
  result.ops = static_cast<std::int64_t>(recorded.program.ops.size());
  result.steps = recorded.folder.steps;
  result.notes = recorded.folder.notes;
  result.as_recorded = calibration::replayed_as_recorded(recorded.program, recorded.log);
  if (!recorded.log.iterations.empty()) {
    const ir::IterationMark& mark = recorded.log.iterations.front();
    result.recorded = to_seconds(mark.end - mark.start);
    if (result.recorded->value > 0) {
      result.as_recorded_error = result.as_recorded / *result.recorded - 1;
    }
  }
  sim::IterationOptions plain;
  plain.ring = options.ring;
  const bool asks = !judge.hardware.none() || job.cluster || overlap != Overlap::recorded ||
                    options.noisy() || !options.stragglers.empty() || !options.slow_links.empty();
  result.simulated = replay_once(folder, recorded.program,
                                 {recorded, own, own, profile, plain, asks ? Exports{} : exports});
  if (result.recorded && result.recorded->value > 0) {
    result.simulated_error = result.simulated.time / *result.recorded - 1;
  }
  if (asks && !call.cancellation.requested()) {
    result.what_if = replay_once(folder, overlap == Overlap::none ? serial : recorded.program,
                                 {recorded, own, changed, profile, options, exports});
    result.what_if_cluster = changed.name;
    if (result.simulated.time.value > 0) {
      result.change = result.what_if->time / result.simulated.time - 1;
      if (result.recorded) result.expected = (1 + *result.change) * *result.recorded;
    }
  }
  return result;
}

}  // namespace orrery::experiments
