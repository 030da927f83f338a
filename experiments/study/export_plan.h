/// A plan in the words of a trainer, ready to start. What `orrery export` does.
#pragma once
#include <stdexcept>
#include <string>

#include "experiments/study/call.h"
#include "experiments/study/exports.h"
#include "experiments/study/inputs.h"
#include "models/check/trainer.h"

namespace orrery::experiments {

struct ExportSettings {
  JobSettings job;
  std::string plan;
  models::Trainer to = models::Trainer::megatron;
  Text output;
};
void describe(config::Visitor& v, ExportSettings& settings);

/// Throws NotExpressible with all that the trainer cannot do.
TextResult export_plan(const ExportSettings& settings, const Call& call);

/// A plan that the trainer cannot run; what() says why, a line for each reason.
struct NotExpressible : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace orrery::experiments
