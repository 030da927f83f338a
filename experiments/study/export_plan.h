/// A plan in the words of a trainer, ready to start, or of another simulator. What `orrery export`
/// does.
#pragma once
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "experiments/study/call.h"
#include "experiments/study/exports.h"
#include "experiments/study/inputs.h"

namespace orrery::experiments {

enum class ExportTarget {
  megatron,  ///< models::Trainer, as the next three.
  flagscale,
  torchtitan,
  deepspeed,
  hexiscale,  ///< HexiScale's public code (FlashFlex): uneven pipelines and degrees.
  torchrun,   ///< Any plan: ranks, nodes and GPUs for a trainer of one's own.
  chakra,     ///< Execution traces, one for each rank.
  astra_sim,  ///< These, with the network.
};
std::vector<std::pair<ExportTarget, const char*>> enum_names(ExportTarget);

struct ExportSettings {
  JobSettings job;
  std::string plan;
  ExportTarget to = ExportTarget::megatron;
  Text output;  ///< A file; of chakra and astra_sim a folder.
};
void describe(config::Visitor& v, ExportSettings& settings);

/// Throws NotExpressible with all that the target cannot do.
TextResult export_plan(const ExportSettings& settings, const Call& call);

/// A plan that the target cannot run; what() says why, a line for each reason.
struct NotExpressible : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace orrery::experiments
