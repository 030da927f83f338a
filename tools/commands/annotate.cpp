/// orrery annotate: a plan as an annotated graph, what its communication operators resolve to, and
/// the pipelines that follow from them.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "models/reshard/link_ranks.h"
#include "models/sharding/pipelines.h"
#include "models/sharding/transformer.h"
#include "tools/cli/command.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/commands/inputs.h"
#include "tools/commands/tables.h"

namespace orrery::tools {
namespace {

/// A plan as an annotated graph.
struct AnnotateSettings {
  JobSettings job;
  std::string plan;
  bool json = false;
};

void describe(config::Visitor& v, AnnotateSettings& settings) {
  v.required("plan", settings.plan, "plan file", {.positional = true});
  describe_json(v, settings.json);
  describe(v, settings.job, BatchDefault::of_the_plan);
}

using models::CommunicationKind;
using models::CommunicationStep;
using models::Frequency;
using models::Graph;
using models::GraphOperator;
using models::GraphProblem;
using models::SpecializedGraph;

constexpr int kCannotAnnotate = 1;
constexpr std::size_t kGroupsShown = 3;
constexpr std::size_t kGroupCharacters = 24;
constexpr std::size_t kPipelinesShown = 16;

/// Layers whose tensor of this name lies equally.
struct TensorRecord {
  std::string layers;  ///< "1-60"; "" outside of the layers.
  std::string tensor;
  bool leaf = false;
  std::vector<std::int64_t> shape;  ///< Samples of all pipelines in one step.
  std::string annotation;
};

/// Steps of one kind in one phase.
struct AnnotatedStep {
  int phase = 0;
  std::string kind;
  std::string tier;
  std::vector<std::string> groups;  ///< "0-3"; of sends "0 -> 4".
  std::int64_t elements = 0;        ///< Of the slices, for each layer.
};

struct CommunicationRecord {
  std::string layers;
  std::string operation;
  std::string frequency;
  std::string from;
  std::string to;
  std::vector<AnnotatedStep> steps;
};

/// Devices of each stage: "0-3".
struct PipelineRecord {
  std::vector<std::string> stages;
};

/// What `--json` prints.
struct AnnotateDocument {
  std::string cluster;
  std::string model;
  std::string plan;
  std::int64_t samples = 0;
  std::int64_t sequence_length = 0;
  std::vector<TensorRecord> tensors;
  std::vector<CommunicationRecord> communications;
  std::vector<PipelineRecord> pipelines;
  std::string no_pipelines;  ///< Why there are none.
};

void describe(config::Visitor& v, TensorRecord& tensor) {
  v.required("layers", tensor.layers, "");
  v.required("tensor", tensor.tensor, "");
  v.required("leaf", tensor.leaf, "");
  v.required("shape", tensor.shape, "");
  v.required("annotation", tensor.annotation, "");
}

void describe(config::Visitor& v, AnnotatedStep& step) {
  v.required("phase", step.phase, "");
  v.required("kind", step.kind, "");
  v.required("tier", step.tier, "");
  v.required("groups", step.groups, "");
  v.required("elements", step.elements, "");
}

void describe(config::Visitor& v, CommunicationRecord& communication) {
  v.required("layers", communication.layers, "");
  v.required("operator", communication.operation, "");
  v.required("frequency", communication.frequency, "");
  v.required("from", communication.from, "");
  v.required("to", communication.to, "");
  v.required("steps", communication.steps, "");
}

void describe(config::Visitor& v, PipelineRecord& pipeline) {
  v.required("stages", pipeline.stages, "");
}

void describe(config::Visitor& v, AnnotateDocument& document) {
  v.title("Annotated graph");
  v.required("cluster", document.cluster, "");
  v.required("model", document.model, "");
  v.required("plan", document.plan, "");
  v.required("samples", document.samples, "");
  v.required("sequence_length", document.sequence_length, "");
  v.required("tensors", document.tensors, "");
  v.required("communications", document.communications, "");
  v.required("pipelines", document.pipelines, "");
  v.required("no_pipelines", document.no_pipelines, "");
}

// ---- names and lists ----

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

// ---- records ----

std::vector<TensorRecord> tensor_records(const Graph& graph, const SpecializedGraph& special) {
  Folder<TensorRecord> folder;
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const LayerName name = split_name(graph.operators[i].name);
    TensorRecord record{"", name.name,
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

std::vector<AnnotatedStep> step_records(const std::vector<CommunicationStep>& steps) {
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

std::vector<CommunicationRecord> communication_records(const Graph& graph,
                                                       const SpecializedGraph& special) {
  Folder<CommunicationRecord> folder;
  for (const models::ResolvedCommunication& one : special.communications) {
    const LayerName name =
        split_name(graph.operators[static_cast<std::size_t>(one.operation)].name);
    CommunicationRecord record{"",
                               name.name,
                               word(one.frequency),
                               to_string(one.from),
                               to_string(one.to),
                               step_records(one.steps)};
    std::string key =
        fmt::format("{} {} {} {}", record.operation, record.frequency, record.from, record.to);
    for (const AnnotatedStep& step : record.steps) {
      key += fmt::format(" {} {} {}", step.kind, step.elements, fmt::join(step.groups, ";"));
    }
    folder.add(name.layer, std::move(key), std::move(record));
  }
  return folder.take();
}

void add_pipelines(const SpecializedGraph& special, AnnotateDocument& document) {
  const auto built = build_pipelines(special);
  if (const auto* none = std::get_if<models::NoPipelines>(&built)) {
    document.no_pipelines = none->reason;
    return;
  }
  for (const models::DevicePipeline& pipeline :
       std::get<std::vector<models::DevicePipeline>>(built)) {
    PipelineRecord& record = document.pipelines.emplace_back();
    for (const std::vector<int>& stage : pipeline.stages) record.stages.push_back(ranges(stage));
  }
}

// ---- text ----

std::string groups_cell(const AnnotatedStep& step) {
  const std::size_t count = step.groups.size();
  std::vector<std::string> shown(
      step.groups.begin(),
      step.groups.begin() + static_cast<std::ptrdiff_t>(std::min(count, kGroupsShown)));
  for (std::string& group : shown) {
    if (group.size() > kGroupCharacters) {
      group = group.substr(0, group.rfind(',', kGroupCharacters)) + ",...";
    }
  }
  const char* more = count > kGroupsShown ? "; ..." : "";
  return fmt::format("{}: {}{}", count, fmt::join(shown, "; "), more);
}

/// Names that share the other cells of their row.
using Rows = std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>>;

void add_row(Rows& rows, std::vector<std::string> cells, std::string name) {
  const auto same =
      std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row.first == cells; });
  auto& names = same == rows.end()
                    ? rows.emplace_back(std::move(cells), std::vector<std::string>{}).second
                    : same->second;
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
}

/// Operators with the same communication share a row; what needs none is left out.
std::string communication_table(const AnnotateDocument& document, const std::string& frequency) {
  Rows rows;
  for (const CommunicationRecord& one : document.communications) {
    if (one.frequency != frequency) continue;
    for (const AnnotatedStep& step : one.steps) {
      if (step.kind == models::to_string(CommunicationKind::identity)) continue;
      add_row(rows, {one.layers, std::to_string(step.phase + 1), step.kind, groups_cell(step)},
              one.operation);
    }
  }
  if (rows.empty()) return "";
  Table table;
  table.column("layers").number("phase").column("kind").column("groups or sends");
  table.column("operators");
  for (const auto& [cells, names] : rows) {
    table.row({cells[0], cells[1], cells[2], cells[3], fmt::format("{}", fmt::join(names, ", "))});
  }
  return table.text(0, colors());
}

/// Inputs and parameters; tensors that lie alike share a row.
std::string leaf_table(const AnnotateDocument& document) {
  constexpr std::size_t kMost = 72;
  constexpr const char* kSummands = ".summands";  // what gradients are before they are added up
  Rows rows;
  for (const TensorRecord& tensor : document.tensors) {
    if (!tensor.leaf || tensor.tensor.find(kSummands) != std::string::npos) continue;
    std::string annotation = tensor.annotation;
    if (annotation.size() > kMost) annotation = annotation.substr(0, kMost) + " ...";
    add_row(rows, {tensor.layers, std::move(annotation)}, tensor.tensor);
  }
  Table table;
  table.column("layers").column("annotation").column("tensors");
  for (const auto& [cells, names] : rows) {
    table.row({cells[0], cells[1], fmt::format("{}", fmt::join(names, ", "))});
  }
  return table.text(0, colors());
}

std::string pipelines_text(const AnnotateDocument& document) {
  if (!document.no_pipelines.empty()) return "none: " + document.no_pipelines + "\n";
  std::string text;
  const std::size_t count = document.pipelines.size();
  for (std::size_t i = 0; i < std::min(count, kPipelinesShown); ++i) {
    text += fmt::format("{}: {}\n", i, fmt::join(document.pipelines[i].stages, " -> "));
  }
  if (count > kPipelinesShown) {
    text +=
        fmt::format("and {} (--json shows all)\n", counted(count - kPipelinesShown, "pipeline"));
  }
  return text;
}

std::string document_text(const AnnotateDocument& document, const experiments::LoadedRun& run) {
  std::string text = fmt::format(
      "{}{}: D duplicate, P partial, S0 split along dimension 0, | between subgroups; HDim -1 "
      "duplicate, -2 partial\n\n{}\n",
      job_line(run), document.plan, section("Inputs and parameters", leaf_table(document)));
  const std::pair<const char*, const char*> kinds[] = {
      {"micro-batch", "Communication of the forward pass, for each micro-batch"},
      {"pass", "Before each pass: gathers of sharded parameters"},
      {"step", "Once per step: gradients and parameters"}};
  for (const auto& [frequency, title] : kinds) {
    const std::string table = communication_table(document, frequency);
    if (!table.empty()) text += section(title, table) + "\n";
  }
  return text + section("Pipelines that the communication makes", pipelines_text(document));
}

}  // namespace

namespace {

int run(const AnnotateSettings& args) {
  const std::vector<experiments::LoadedRun> runs = load_plans({args.plan}, args.job, {});
  const experiments::LoadedRun& run = runs.front();
  const ir::ModelShape& shape = run.workload.shape;
  const std::int64_t length = run.spec.job.sequence_length;
  const models::Topology topology(run.cluster, run.profile);
  models::LinkRanks ranks(run.cluster, topology);
  const auto refuse = [&](const GraphProblem& problem) {
    fmt::print(stderr, "orrery: {}: {}\n", args.plan, problem.reason);
    return kCannotAnnotate;
  };
  auto made = models::transformer_graph(shape, *run.plan);
  if (const auto* problem = std::get_if<GraphProblem>(&made)) return refuse(*problem);
  const Graph& graph = std::get<Graph>(made);
  const std::int64_t rows = models::rows_per_expert(shape, length);
  const auto special =
      models::specialize(graph, models::binding_of(*run.plan, length, rows), ranks.heuristics());
  if (const auto* problem = std::get_if<GraphProblem>(&special)) return refuse(*problem);

  AnnotateDocument document;
  document.cluster = run.cluster.name;
  document.model = run.workload.name;
  document.plan = args.plan;
  document.samples = ir::global_batch(*run.plan);
  document.sequence_length = length;
  document.tensors = tensor_records(graph, std::get<SpecializedGraph>(special));
  document.communications = communication_records(graph, std::get<SpecializedGraph>(special));
  add_pipelines(std::get<SpecializedGraph>(special), document);
  print(args.json ? to_json(document) : document_text(document, run));
  return 0;
}

}  // namespace

extern const Command kAnnotate;
const Command kAnnotate = printing_command<AnnotateSettings, run>(
    "annotate", "Show a plan's sharding annotations and what its communication resolves to",
    "annotate experiments/hetu/plans/c2.yaml --cluster hetu_32h20 --model hetu_32b "
    "--sequence-length 4096",
    "Exit code 1: the plan has no annotated graph; the reason is printed.");

}  // namespace orrery::tools
