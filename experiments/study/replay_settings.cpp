#include "experiments/study/replay_settings.h"

namespace orrery::experiments {

std::vector<std::pair<TraceStart, const char*>> enum_names(TraceStart) {
  return {{TraceStart::file, "file"}, {TraceStart::seed, "seed"}};
}
std::vector<std::pair<PlanningTime, const char*>> enum_names(PlanningTime) {
  return {{PlanningTime::fixed, "fixed"}, {PlanningTime::measured, "measured"}};
}
std::vector<std::pair<Prices, const char*>> enum_names(Prices) {
  return {{Prices::on_demand, "on_demand"}, {Prices::spot, "spot"}};
}
std::vector<std::pair<BackgroundTransfers, const char*>> enum_names(BackgroundTransfers) {
  return {{BackgroundTransfers::ignored, "ignored"}, {BackgroundTransfers::simulated, "simulated"}};
}

void describe(config::Visitor& v, ReplayTrace& trace) {
  v.title("Trace");
  v.optional("file", trace.file, "trace file next to this one, or $ORRERY_DATA/...");
  v.optional("format", trace.format, "of the file, as for `orrery trace import`; absent: our own");
  v.optional("generator", trace.generator, "instead of a file");
  v.optional("settings", trace.settings, "of the generator, or of the reader of the format");
  v.optional("repeat", trace.repeat, "a file that ends before the horizon starts again");
  v.optional(
      "start", trace.start,
      "where in a file a replay begins: with the file (default), or at a time drawn from the "
      "seed, so that each seed sees another stretch of it");
  if (!v.reading() || !v.good()) return;
  if (trace.file.has_value() == trace.generator.has_value()) {
    v.problem("", "a trace has either `file` or `generator`");
  } else if (trace.format && !trace.file) {
    v.problem("format", "`format` is for files");
  } else if (trace.start && !trace.file) {
    v.problem("start", "`start` is for files");
  }
}

void describe(config::Visitor& v, ReplayCase& one) {
  describe_job(v, one);
  describe_profile(v, one);
  v.optional("plan", one.plan,
             "plan file to begin with; absent, and without `planner`: the policy's own");
  v.optional("planner", one.planner,
             "makes the plan that all policies begin with; one that cannot run it begins with its "
             "own, and the result says so");
  v.required("trace", one.trace, "what happens to the cluster");
  v.optional("runtime", one.runtime,
             "what it takes to notice, to start, to connect and to plan, for every policy");
  v.optional("nodes", one.nodes, "so many of the cluster's nodes, the first ones; absent: all");
  v.optional("horizon", one.horizon, "how long is replayed; absent: the whole trace");
  v.optional("expected_mtbf", one.expected_mtbf,
             "mean time between interruptions that policies count on for checkpoint intervals and "
             "the like; absent: the generator's, or for a trace file what was seen so far");
  v.optional("ignore_leaves", one.ignore_leaves,
             "nodes of different leaves are simulated as interchangeable: for large clusters");
  if (v.reading() && one.plan && one.planner) {
    v.problem("planner", "`plan` and `planner` exclude each other");
  }
  if (one.nodes) v.positive("nodes", *one.nodes);
  if (one.expected_mtbf) v.between("expected_mtbf", *one.expected_mtbf, kLeastTime, kLongestTime);
  if (one.horizon) v.between("horizon", *one.horizon, kLeastTime, kLongestTime);
}

void describe(config::Visitor& v, ReplayRun& run) {
  v.title("Replay");
  v.doc("A recovery policy on a trace: what it keeps of the time, and what it costs.");
  describe(v, run.what);
  v.required("policy", run.policy, "by its name, or with options");
  v.optional("planning_time", run.how.planning_time,
             "of policies that search plans: what they say, or what it took (not reproducible)");
  v.optional("prices", run.how.prices, "of GPUs for which the trace names none");
  v.optional("background_transfers", run.how.background_transfers,
             "copies of checkpoints during training: simulated, they slow the iterations of their "
             "time; ignored halves the simulations and flatters policies that copy much");
  v.optional("seed", run.how.seed, "of the trace, and of searches");
}

}  // namespace orrery::experiments
