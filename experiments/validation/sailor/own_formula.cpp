#include "experiments/validation/sailor/own_formula.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

namespace orrery::experiments {
namespace {

using calibration::SailorBandwidth;

constexpr Bytes kBucket{5e8};
constexpr Bytes kMemoryBeyond{5.06e9};
constexpr double kStateBytes = 24;

Seconds send_time(const SailorData& data, const SailorReplica& from, const SailorReplica& to,
                  int from_pairs, int to_pairs, Bytes message) {
  for (const SailorBandwidth& row : data.tables.bandwidths) {
    if (row.inter_node && row.sender_gpu == from.gpu && row.receiver_gpu == to.gpu &&
        row.sender_pairs == from_pairs && row.receiver_pairs == to_pairs) {
      return message / calibration::sailor_rate(row, message);
    }
  }
  throw std::runtime_error(
      fmt::format("no bandwidth from {} x {} to {} x {}", from.gpu, from_pairs, to.gpu, to_pairs));
}

Seconds passes(const SailorPlan& plan, const SailorData& data, const SailorStage& stage,
               const SailorReplica& replica) {
  Seconds time;
  for (const calibration::SailorLayerTime& row : data.tables.layer_times) {
    if (row.model != plan.model || row.gpu != replica.gpu ||
        row.tensor_parallel != replica.tensor_parallel ||
        row.micro_batch_size != plan.micro_batch) {
      continue;
    }
    const int layers = std::min(row.last_layer, stage.last_layer) -
                       std::max(row.first_layer, stage.first_layer) + 1;
    time += std::max(0, layers) * (row.forward + row.backward);
  }
  return time;
}

/// Time of the slowest replica to send `size` between the stages of these numbers.
Seconds crossing(const SailorPlan& plan, const SailorData& data, std::size_t from, std::size_t to,
                 Bytes size) {
  Seconds slowest;
  for (std::size_t j = 0; j < plan.stages[from].replicas.size(); ++j) {
    const SailorReplica& a = plan.stages[from].replicas[j];
    const SailorReplica& b = plan.stages[to].replicas[j];
    slowest = std::max(slowest, send_time(data, a, b, a.tensor_parallel, b.tensor_parallel, size));
  }
  return slowest;
}

Seconds sends(const SailorPlan& plan, const SailorData& data, std::size_t i) {
  const std::size_t stages = plan.stages.size();
  if (stages == 1) return {};
  const SailorStage& stage = plan.stages[i];
  const auto memory = [&](int layer) {
    return layer_memory(data, plan.model, stage.replicas.front().tensor_parallel, layer);
  };
  const Bytes activation = plan.micro_batch * memory(stage.last_layer).output;
  const Bytes gradient = plan.micro_batch * memory(stage.first_layer).input;
  if (i == 0) return (stages > 3 ? 2.0 : 1.0) * crossing(plan, data, 0, 1, activation);
  if (i + 1 == stages) return 2 * crossing(plan, data, i, i - 1, gradient);
  return crossing(plan, data, i, i + 1, activation) + crossing(plan, data, i, i - 1, gradient);
}

Seconds synchronization(const SailorPlan& plan, const SailorData& data, const SailorStage& stage) {
  double parameters = 0;
  for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
    parameters += layer_memory(data, plan.model, 1, layer).parameters;
  }
  Bytes left{4 * parameters / std::min(plan.tensor_parallel(), 4)};
  Seconds total;
  while (left > Bytes{}) {
    const Bytes bucket = std::min(left, kBucket);
    left -= bucket;
    Seconds slowest;
    for (std::size_t j = 0; j + 1 < stage.replicas.size(); ++j) {
      slowest = std::max(slowest, send_time(data, stage.replicas[j], stage.replicas[j + 1], 1, 1,
                                            bucket / plan.data_parallel));
    }
    total += 2 * (plan.data_parallel - 1) * slowest;
  }
  return total;
}

}  // namespace

Seconds sailor_formula_time(const SailorPlan& plan, const SailorData& data) {
  Seconds slowest, sum, step, sync;
  for (std::size_t i = 0; i < plan.stages.size(); ++i) {
    Seconds stage;
    for (const SailorReplica& replica : plan.stages[i].replicas) {
      stage = std::max(stage, passes(plan, data, plan.stages[i], replica));
      for (const calibration::SailorOptimizerTime& row : data.tables.optimizer_times) {
        if (row.model == plan.model && row.gpu == replica.gpu &&
            row.tensor_parallel == replica.tensor_parallel &&
            row.micro_batch_size == plan.micro_batch) {
          step = std::max(step, row.step);
        }
      }
    }
    stage += sends(plan, data, i);
    slowest = std::max(slowest, stage);
    sum += stage;
    sync = std::max(sync, synchronization(plan, data, plan.stages[i]));
  }
  return (plan.micro_batches - 1) * slowest + sum + step + sync;
}

Bytes sailor_formula_memory(const SailorPlan& plan, const SailorData& data) {
  Bytes most;
  const auto stages = static_cast<int>(plan.stages.size());
  for (int i = 0; i < stages; ++i) {
    const SailorStage& stage = plan.stages[static_cast<std::size_t>(i)];
    double parameters = 0;
    Bytes saved;
    for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
      const auto& row = layer_memory(data, plan.model, plan.tensor_parallel(), layer);
      parameters += row.parameters;
      saved += row.saved_activations;
    }
    most = std::max(most, Bytes{kStateBytes * parameters} +
                              static_cast<double>(plan.micro_batch) * (stages - i) * saved +
                              kMemoryBeyond);
  }
  return most;
}

}  // namespace orrery::experiments
