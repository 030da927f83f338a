#include "experiments/validation/sailor/data.h"

#include <fmt/format.h>

#include <filesystem>
#include <stdexcept>
#include <utility>

#include "calibration/importers/json_tree.h"

namespace orrery::experiments {
namespace {

using calibration::JsonReader;
using config::Value;

int whole(JsonReader& json, const std::string& path, int low) {
  constexpr int kMost = 1 << 24;
  const double value = json.number(path, low);
  if (value == static_cast<double>(static_cast<std::int64_t>(value)) && value <= kMost) {
    return static_cast<int>(value);
  }
  if (const Value* at = json.find(path)) {
    json.fail(*at, fmt::format("'{}' must be a whole number up to {}", path, kMost));
  }
  return low;
}

/// The list at `key`, not empty.
const std::vector<Value>& list_of(const Value& value, const std::string& key,
                                  config::Diagnostics& diagnostics) {
  static const std::vector<Value> kNone;
  const Value* list = JsonReader(value, diagnostics).find(key);
  if (list == nullptr) return kNone;
  if (!list->is_list() || list->items.empty()) {
    diagnostics.add(list->at, fmt::format("'{}' must be a list with entries", key));
    return kNone;
  }
  return list->items;
}

/// Null and absent values stay absent.
SailorValue read_value(const Value* value, config::Diagnostics& diagnostics) {
  SailorValue result;
  if (value == nullptr || !value->is_map()) return result;
  JsonReader json(*value, diagnostics);
  const auto present = [&](const char* key) {
    const Value* cell = value->find(key);
    return cell != nullptr && !cell->is_null();
  };
  if (present("iteration_s")) result.iteration = Seconds{json.positive("iteration_s")};
  if (present("peak_memory_bytes")) result.peak_memory = Bytes{json.positive("peak_memory_bytes")};
  return result;
}

SailorStage read_stage(const Value& value, config::Diagnostics& diagnostics) {
  JsonReader json(value, diagnostics);
  SailorStage stage;
  stage.first_layer = whole(json, "first_layer", 0);
  stage.last_layer = whole(json, "last_layer", stage.first_layer);
  for (const Value& run : list_of(value, "replicas", diagnostics)) {
    JsonReader cell(run, diagnostics);
    const SailorReplica replica = {cell.text("gpu"), whole(cell, "tp", 1)};
    const auto count = static_cast<std::size_t>(whole(cell, "count", 1));
    stage.replicas.insert(stage.replicas.end(), count, replica);
  }
  return stage;
}

/// What the plan says must fit together; lowering relies on it.
void check_plan(const SailorPlan& plan, const SailorData& data, const Value& at,
                config::Diagnostics& diagnostics) {
  const auto fail = [&](const std::string& what) {
    diagnostics.add(at.at, fmt::format("{}: {}", plan.id, what));
  };
  const auto model = data.models.find(plan.model);
  if (model == data.models.end()) return fail(fmt::format("unknown model '{}'", plan.model));
  if (plan.global_batch !=
      static_cast<double>(plan.micro_batch) * plan.micro_batches * plan.data_parallel) {
    fail("micro-batches do not add up to the global batch");
  }
  int next = 0;
  for (const SailorStage& stage : plan.stages) {
    if (stage.first_layer != next) fail(fmt::format("layer {} is missing or twice", next));
    next = stage.last_layer + 1;
    if (static_cast<int>(stage.replicas.size()) != plan.data_parallel) {
      fail(fmt::format("a stage has {} replicas, not {}", stage.replicas.size(),
                       plan.data_parallel));
    }
    for (const SailorReplica& replica : stage.replicas) {
      const auto node = data.nodes.find(replica.gpu);
      if (node == data.nodes.end()) {
        fail(fmt::format("unknown GPU type '{}'", replica.gpu));
      } else if (replica.tensor_parallel > node->second.gpus) {
        fail(fmt::format("a node has {} GPUs, not {}", node->second.gpus, replica.tensor_parallel));
      }
      if (replica.tensor_parallel != plan.tensor_parallel()) {
        fail("tensor-parallel degrees differ, and with them the padded vocabulary");
      }
    }
  }
  if (next != model->second.layers + 2) {
    fail(fmt::format("has {} layers, the model {}", next, model->second.layers + 2));
  }
}

void read_plans(const std::string& path, SailorData& data, config::Diagnostics& diagnostics) {
  Value root;
  if (!calibration::load_json(path, root, diagnostics)) return;
  for (const Value& value : list_of(root, "plans", diagnostics)) {
    const std::size_t before = diagnostics.problems().size();
    JsonReader json(value, diagnostics);
    SailorPlan plan;
    plan.id = json.text("id");
    plan.cluster = json.text("cluster");
    plan.model = json.text("model");
    plan.micro_batch = whole(json, "micro_batch", 1);
    plan.global_batch = whole(json, "global_batch", 1);
    plan.micro_batches = whole(json, "micro_batches_per_pipeline", 1);
    const auto& pipelines = list_of(value, "pipelines", diagnostics);
    if (pipelines.size() > 1) {
      diagnostics.add(value.at, fmt::format("{}: more than one pipeline shape", plan.id));
    }
    if (!pipelines.empty()) {
      JsonReader shape(pipelines.front(), diagnostics);
      plan.data_parallel = whole(shape, "data_parallel", 1);
      for (const Value& stage : list_of(pipelines.front(), "stages", diagnostics)) {
        plan.stages.push_back(read_stage(stage, diagnostics));
      }
    }
    if (const Value* score = value.find("score")) plan.score = score->text == "true";
    plan.measured = read_value(value.find("measured"), diagnostics);
    plan.earlier_run = read_value(value.find("earlier_run"), diagnostics);
    if (const Value* others = value.find("other_simulators")) {
      for (const Value::Entry& entry : others->entries) {
        plan.others[entry.key] = read_value(&entry.value, diagnostics);
      }
    }
    if (diagnostics.problems().size() == before) check_plan(plan, data, value, diagnostics);
    if (diagnostics.problems().size() == before) data.plans.push_back(std::move(plan));
  }
}

void read_models(const std::string& path, SailorData& data, config::Diagnostics& diagnostics) {
  Value root;
  if (!calibration::load_json(path, root, diagnostics)) return;
  const Value* models = JsonReader(root, diagnostics).find("models");
  if (models == nullptr) return;
  for (const Value::Entry& entry : models->entries) {
    JsonReader json(entry.value, diagnostics);
    SailorModel model;
    model.layers = whole(json, "transformer_layers", 1);
    model.hidden = whole(json, "hidden", 1);
    model.ffn = whole(json, "ffn_hidden", 1);
    model.heads = whole(json, "heads", 1);
    model.head_dim = entry.value.find("head_dim") != nullptr ? whole(json, "head_dim", 1)
                                                             : model.hidden / model.heads;
    model.sequence = whole(json, "sequence", 1);
    model.positions = whole(json, "positions", 0);
    model.vocabulary = whole(json, "vocab_unpadded", 1);
    data.models[entry.key] = model;
  }
}

void read_nodes(const std::string& path, SailorData& data, config::Diagnostics& diagnostics) {
  Value root;
  if (!calibration::load_json(path, root, diagnostics)) return;
  const Value* clusters = JsonReader(root, diagnostics).find("clusters");
  if (clusters == nullptr) return;
  const auto node = [&](const Value& value) {
    JsonReader json(value, diagnostics);
    return SailorNode{whole(json, "gpus_per_node", 1),
                      Bytes{json.positive("memory_bytes_per_gpu")}};
  };
  for (const Value::Entry& entry : clusters->entries) {
    if (const Value* types = entry.value.find("node_types")) {
      for (const Value::Entry& type : types->entries) data.nodes[type.key] = node(type.value);
    } else {
      data.nodes[JsonReader(entry.value, diagnostics).text("gpu")] = node(entry.value);
    }
  }
}

}  // namespace

SailorData read_sailor_data(const std::string& folder, config::Diagnostics& diagnostics) {
  const std::filesystem::path root(folder);
  SailorData data;
  data.tables = calibration::read_sailor_tables(folder, diagnostics);
  read_models((root / "models.json").string(), data, diagnostics);
  read_nodes((root / "clusters.json").string(), data, diagnostics);
  if (!diagnostics.empty()) return data;
  read_plans((root / "measured.json").string(), data, diagnostics);
  read_plans((root / "unmeasured_plans.json").string(), data, diagnostics);
  return data;
}

int padded_vocabulary(const SailorModel& model, int tensor_parallel) {
  const int multiple = 128 * tensor_parallel;
  return (model.vocabulary + multiple - 1) / multiple * multiple;
}

const calibration::SailorLayerMemory& layer_memory(const SailorData& data, const std::string& model,
                                                   int tensor_parallel, int layer) {
  for (const calibration::SailorLayerMemory& row : data.tables.layer_memory) {
    if (row.model == model && row.tensor_parallel == tensor_parallel && row.first_layer <= layer &&
        layer <= row.last_layer) {
      return row;
    }
  }
  throw std::runtime_error(fmt::format("layer_memory.csv has no layer {} of {} with degree {}",
                                       layer, model, tensor_parallel));
}

}  // namespace orrery::experiments
