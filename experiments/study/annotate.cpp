#include "experiments/study/annotate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "experiments/study/plan_text.h"
#include "models/reshard/link_ranks.h"
#include "models/sharding/pipelines.h"
#include "models/sharding/transformer.h"
#include "models/spec/topology.h"

namespace orrery::experiments {
namespace {

using models::CommunicationKind;
using models::CommunicationStep;
using models::Frequency;
using models::Graph;
using models::GraphProblem;
using models::SpecializedGraph;

std::string ranges(const std::vector<int>& devices) {
  std::vector<DeviceId> ids;
  for (const int device : devices) ids.push_back({device});
  return id_ranges(std::move(ids));
}

/// "12.mlp.down" is layer 12's "mlp.down".
struct LayerName {
  std::optional<int> layer;
  std::string name;
};

LayerName split_name(const std::string& name) {
  const std::size_t dot = name.find('.');
  const bool number = dot != std::string::npos && dot > 0 &&
                      std::all_of(name.begin(), name.begin() + static_cast<std::ptrdiff_t>(dot),
                                  [](unsigned char c) { return std::isdigit(c) != 0; });
  if (!number) return {{}, name};
  return {std::stoi(name.substr(0, dot)), name.substr(dot + 1)};
}

std::string word(Frequency frequency) {
  switch (frequency) {
    case Frequency::micro_batch:
      return "micro-batch";
    case Frequency::pass:
      return "pass";
    case Frequency::step:
      return "step";
  }
  return "";
}

/// Records that are equal but for their layer, in the order of the first of each; their layers as
/// ranges.
template <class Record>
class Folder {
 public:
  void add(std::optional<int> layer, std::string key, Record record) {
    const auto [at, fresh] = places_.try_emplace(std::move(key), records_.size());
    if (fresh) records_.push_back({std::move(record), {}});
    if (layer) records_[at->second].second.insert(*layer);
  }
  std::vector<Record> take() {
    std::vector<Record> out;
    for (auto& [record, layers] : records_) {
      record.layers = layers.empty() ? "" : ranges({layers.begin(), layers.end()});
      out.push_back(std::move(record));
    }
    return out;
  }

 private:
  std::map<std::string, std::size_t> places_;
  std::vector<std::pair<Record, std::set<int>>> records_;
};

std::vector<PlacedTensor> placed_tensors(const Graph& graph, const SpecializedGraph& special) {
  Folder<PlacedTensor> folder;
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const LayerName name = split_name(graph.operators[i].name);
    PlacedTensor record{"", name.name,
                        std::holds_alternative<models::Leaf>(graph.operators[i].type),
                        special.shapes[i], to_string(graph.tensors[i].type.annotation)};
    std::string key =
        fmt::format("{} {} {}", record.tensor, record.annotation, fmt::join(record.shape, ","));
    folder.add(name.layer, std::move(key), std::move(record));
  }
  return folder.take();
}

std::string group_text(CommunicationKind kind, const std::vector<int>& group) {
  if (is_collective(kind) || group.size() != 2) return ranges(group);
  return fmt::format("{} -> {}", group[0], group[1]);
}

std::vector<AnnotatedStep> annotated_steps(const std::vector<CommunicationStep>& steps) {
  std::map<std::pair<int, CommunicationKind>, AnnotatedStep> found;
  for (const CommunicationStep& step : steps) {
    AnnotatedStep& record = found[{step.phase, step.kind}];
    record.phase = step.phase;
    record.kind = models::to_string(step.kind);
    record.tier = step.tier == models::Tier::top ? "top" : "bottom";
    for (const std::vector<int>& group : groups(step)) {
      std::string text = group_text(step.kind, group);
      if (std::find(record.groups.begin(), record.groups.end(), text) == record.groups.end()) {
        record.groups.push_back(std::move(text));
      }
    }
    for (const models::SliceMove& move : step.moves) record.elements += volume(move.box);
  }
  std::vector<AnnotatedStep> out;
  for (auto& [key, record] : found) out.push_back(std::move(record));
  return out;
}

std::vector<PlacedCommunication> placed_communications(const Graph& graph,
                                                       const SpecializedGraph& special) {
  Folder<PlacedCommunication> folder;
  for (const models::ResolvedCommunication& one : special.communications) {
    const LayerName name = split_name(graph.operators[one.operation].name);
    PlacedCommunication record{"",
                               name.name,
                               word(one.frequency),
                               to_string(one.from),
                               to_string(one.to),
                               annotated_steps(one.steps)};
    std::string key =
        fmt::format("{} {} {} {}", record.operation, record.frequency, record.from, record.to);
    for (const AnnotatedStep& step : record.steps) {
      key += fmt::format(" {} {} {}", step.kind, step.elements, fmt::join(step.groups, ";"));
    }
    folder.add(name.layer, std::move(key), std::move(record));
  }
  return folder.take();
}

void add_pipelines(const SpecializedGraph& special, AnnotateResult& result) {
  const auto built = build_pipelines(special);
  if (const auto* none = std::get_if<models::NoPipelines>(&built)) {
    result.no_pipelines = none->reason;
    return;
  }
  for (const models::DevicePipeline& pipeline :
       std::get<std::vector<models::DevicePipeline>>(built)) {
    PlacedPipeline& placed = result.pipelines.emplace_back();
    for (const std::vector<int>& stage : pipeline.stages) placed.stages.push_back(ranges(stage));
  }
}

}  // namespace

void describe(config::Visitor& v, AnnotateSettings& settings) {
  v.required("plan", settings.plan, "plan file", {.positional = true});
  describe(v, settings.job);
}

void describe(config::Visitor& v, PlacedTensor& tensor) {
  v.title("Tensor");
  v.required("layers", tensor.layers, "that it is equal in: 1-60; empty outside of the layers");
  v.required("tensor", tensor.tensor, "its name");
  v.required("leaf", tensor.leaf, "an input or a parameter");
  v.required("shape", tensor.shape, "with the samples of all pipelines in one step");
  v.required("annotation", tensor.annotation, "where it lies");
}

void describe(config::Visitor& v, AnnotatedStep& step) {
  v.title("Step of a communication");
  v.required("phase", step.phase, "from 0");
  v.required("kind", step.kind, "collective or transfer");
  v.required("tier", step.tier, "top or bottom");
  v.required("groups", step.groups, "devices: 0-3; of sends 0 -> 4");
  v.required("elements", step.elements, "of the slices, for each layer");
}

void describe(config::Visitor& v, PlacedCommunication& communication) {
  v.title("Communication");
  v.required("layers", communication.layers, "that it is equal in");
  v.required("operator", communication.operation, "its name");
  v.required("frequency", communication.frequency, "micro-batch, pass or step");
  v.required("from", communication.from, "annotation before");
  v.required("to", communication.to, "annotation behind");
  v.required("steps", communication.steps, "what it resolves to");
}

void describe(config::Visitor& v, PlacedPipeline& pipeline) {
  v.title("Pipeline");
  v.required("stages", pipeline.stages, "devices of each: 0-3");
}

void describe(config::Visitor& v, AnnotateResult& result) {
  v.title("Annotated graph");
  v.required("cluster", result.cluster, "its name");
  v.required("model", result.model, "its name");
  v.required("plan", result.plan, "its file");
  v.required("samples", result.samples, "of one step");
  v.required("sequence_length", result.sequence_length, "tokens");
  v.required("tensors", result.tensors, "where they lie");
  v.required("communications", result.communications, "in the order of the graph");
  v.required("pipelines", result.pipelines, "that the communication makes");
  v.required("no_pipelines", result.no_pipelines, "why there are none");
}

AnnotateResult annotate(const AnnotateSettings& settings, const Call&) {
  const std::vector<LoadedRun> runs = load_plans({settings.plan}, settings.job, {});
  const LoadedRun& run = runs.front();
  const ir::ModelShape& shape = run.workload.shape;
  const std::int64_t length = run.spec.job.sequence_length;
  const models::Topology topology(run.cluster, run.profile);
  models::LinkRanks ranks(run.cluster, topology);
  const auto refuse = [&](const GraphProblem& problem) {
    throw NoGraph(fmt::format("{}: {}", settings.plan, problem.reason));
  };
  auto made = models::transformer_graph(shape, *run.plan);
  if (const auto* problem = std::get_if<GraphProblem>(&made)) refuse(*problem);
  const Graph& graph = std::get<Graph>(made);
  const std::int64_t rows = models::rows_per_expert(shape, length);
  const auto special =
      models::specialize(graph, models::binding_of(*run.plan, length, rows), ranks.heuristics());
  if (const auto* problem = std::get_if<GraphProblem>(&special)) refuse(*problem);

  AnnotateResult result;
  result.cluster = run.cluster.name;
  result.model = run.workload.name;
  result.plan = settings.plan;
  result.samples = ir::global_batch(*run.plan);
  result.sequence_length = length;
  result.tensors = placed_tensors(graph, std::get<SpecializedGraph>(special));
  result.communications = placed_communications(graph, std::get<SpecializedGraph>(special));
  add_pipelines(std::get<SpecializedGraph>(special), result);
  result.inputs = run;
  return result;
}

}  // namespace orrery::experiments
