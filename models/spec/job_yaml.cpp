#include <fmt/format.h>

#include <optional>
#include <vector>

#include "models/config/document.h"
#include "models/ir/names.h"
#include "models/spec/job.h"
#include "models/spec/lengths.h"
#include "models/spec/library.h"
#include "models/spec/ranges.h"

namespace orrery::models {
namespace {

/// A list is read as such, so that its problems have their own positions; a name is looked up.
void describe_lengths(config::Visitor& v, Job& job) {
  config::Value value;
  if (job.lengths) value = config::to_value(job.lengths->buckets);
  v.optional("lengths", value,
             "sequences of mixed lengths: a distribution of models/library/lengths, a file, or "
             "shares of sequences up to lengths, ascending, [{longest, share}]; longer ones than "
             "sequence_length are cut. Only `orrery mixed-length` takes such jobs");
  if (!v.reading()) return;
  job.lengths.reset();
  if (value.is_null()) return;
  if (value.is_list()) {
    std::vector<LengthDistribution::Bucket> buckets;
    v.optional("lengths", buckets, "");
    if (!v.good()) return;
  }
  config::Diagnostics found;
  job.lengths = read_lengths(value, default_library_root(), found).distribution;
  if (found.empty()) return;
  const config::Problem& first = found.problems().front();
  const bool here = first.at.file == value.at.file;
  v.problem("lengths", here ? first.what : config::to_string(first), here ? first.hint : "");
}

constexpr const char* kEvery = "every_micro_batch";
constexpr std::int64_t kMostSynchronizations = 1 << 20;

/// A number or a word. Left out of dumps where it is 1, so that hashes of jobs that do not ask for
/// rounds do not depend on it.
void describe_synchronizations(config::Visitor& v, Job& job) {
  config::Value value;
  if (v.dumping() && job.gradient_synchronizations == 1) return;
  if (job.gradient_synchronizations != 1) {
    value = config::Value::scalar(job.gradient_synchronizations == kEveryMicroBatch
                                      ? kEvery
                                      : fmt::format("{}", job.gradient_synchronizations));
  }
  v.optional("gradient_synchronizations", value,
             "rounds of gradient synchronization in a step, at most one for each micro-batch, or "
             "every_micro_batch; 1, the default, accumulates gradients over the whole step");
  if (!v.reading()) return;
  job.gradient_synchronizations = 1;
  if (value.is_null()) return;
  if (value.is_scalar() && value.text == kEvery) {
    job.gradient_synchronizations = kEveryMicroBatch;
  } else {
    config::TextError error;
    const auto rounds = value.is_scalar()
                            ? config::parse_integer(value.text, 1, kMostSynchronizations, error)
                            : std::nullopt;
    if (!rounds) {
      return v.problem(
          "gradient_synchronizations",
          fmt::format("expected a number from 1 or {}, got {}", kEvery, config::kind_text(value)));
    }
    job.gradient_synchronizations = static_cast<int>(*rounds);
  }
  if (job.gradient_synchronizations != 1 && job.lengths) {
    v.problem("gradient_synchronizations", "steps of mixed lengths synchronize once",
              "leave it or `lengths` out");
  }
}

/// Dumps of jobs made in code have all names, so that whoever reads them finds the wrong ones.
void describe_hidden(config::Visitor& v, Job& job) {
  constexpr const char* kKey = "hidden_collectives";
  constexpr const char* kDoc =
      "collectives inside of passes that run beside their kernels: tensor_parallel, "
      "sequence_parallel, expert_parallel, zero";
  std::vector<ir::Purpose>& all = job.hidden_collectives;
  if (v.dumping() && !all.empty()) v.optional(kKey, all, kDoc);
  if (v.dumping()) return;
  std::vector<HideablePurpose> hidden;
  for (const ir::Purpose purpose : all) hidden.push_back(static_cast<HideablePurpose>(purpose));
  v.optional(kKey, hidden, kDoc);
  if (!v.reading()) return;
  all.clear();
  for (const HideablePurpose purpose : hidden) all.push_back(static_cast<ir::Purpose>(purpose));
}

}  // namespace

bool can_hide(ir::Purpose purpose) {
  using enum ir::Purpose;
  return purpose == tensor_parallel || purpose == sequence_parallel || purpose == expert_parallel ||
         purpose == zero;
}

std::vector<std::pair<HideablePurpose, const char*>> enum_names(HideablePurpose) {
  std::vector<std::pair<HideablePurpose, const char*>> names;
  for (const auto& [purpose, name] : ir::enum_names(ir::Purpose{})) {
    if (can_hide(purpose)) names.emplace_back(static_cast<HideablePurpose>(purpose), name);
  }
  return names;
}

void describe(config::Visitor& v, LengthDistribution::Bucket& bucket) {
  v.title("Length bucket");
  v.required("longest", bucket.longest, "tokens");
  v.required("share", bucket.share, "of sequences");
  v.at_least("longest", bucket.longest, std::int64_t{1});
  v.between("share", bucket.share, 0.0, 1.0);
}

void describe(config::Visitor& v, StateBytes& bytes) {
  v.title("State bytes");
  v.doc("Bytes per parameter of the model states.");
  v.optional("weight", bytes.weight, "parameters that the passes use");
  v.optional("gradient", bytes.gradient, "gradients");
  v.optional("master", bytes.master, "master copy of the parameters");
  v.optional("moments", bytes.moments, "first and second moment");
  v.positive("weight", bytes.weight);
  v.positive("gradient", bytes.gradient);
  v.not_negative("master", bytes.master);
  v.not_negative("moments", bytes.moments);
  for (const auto& [key, each] : {std::pair{"weight", bytes.weight},
                                  {"gradient", bytes.gradient},
                                  {"master", bytes.master},
                                  {"moments", bytes.moments}}) {
    v.between(key, each, 0.0, kMostBytesPerParameter);
  }
}

void describe(config::Visitor& v, Allowed& allowed) {
  v.title("Allowed");
  v.doc("What planners may use.");
  v.optional("recompute", allowed.recompute, "kinds of recomputation");
  v.optional("zero_stages", allowed.zero_stages, "ZeRO stages, 0 to 3");
  v.optional("sequence_parallel", allowed.sequence_parallel, "sequence parallelism");
  v.optional("max_tensor_parallel", allowed.max_tensor_parallel, "0: bounded by the node only");
  v.optional("max_micro_batch_size", allowed.max_micro_batch_size, "samples");
  v.optional("schedules", allowed.schedules, "pipeline schedules");
  // Left out of dumps where it is 0, so that hashes of jobs without it do not depend on it.
  if (!v.dumping() || allowed.max_optimizer_offload != 0) {
    v.optional("max_optimizer_offload", allowed.max_optimizer_offload,
               "largest share of the optimizer states in host memory");
  }
  v.not_negative("max_tensor_parallel", allowed.max_tensor_parallel);
  v.at_least("max_micro_batch_size", allowed.max_micro_batch_size, 1);
  v.between("max_optimizer_offload", allowed.max_optimizer_offload, 0.0, 1.0);
  v.not_empty("recompute", allowed.recompute, "nothing is allowed");
  v.not_empty("zero_stages", allowed.zero_stages, "nothing is allowed");
  v.not_empty("schedules", allowed.schedules, "nothing is allowed");
  for (const int stage : allowed.zero_stages) v.between("zero_stages", stage, 0, 3);
}

void describe(config::Visitor& v, Job& job) {
  v.schema("orrery/job", 1);
  v.title("Job");
  v.doc("What is trained on what batch, in which numbers, and what planners may use.");
  v.required("global_batch", job.global_batch, "samples per optimizer step");
  v.required("sequence_length", job.sequence_length, "tokens per sample (of the longest)");
  v.at_least("global_batch", job.global_batch, std::int64_t{1});
  v.at_least("sequence_length", job.sequence_length, std::int64_t{1});
  describe_lengths(v, job);
  v.optional("dtype", job.dtype, "of matrix products and activations");
  v.optional("state_bytes", job.state_bytes, "bytes per parameter");
  v.optional("optimizer", job.optimizer, "what a step runs");
  describe_synchronizations(v, job);
  // Left out of dumps where it is true, as above.
  if (!v.dumping() || !job.cuda_graphs) {
    v.optional("cuda_graphs", job.cuda_graphs,
               "kernels of a pass are launched as one CUDA graph; without, a block that is priced "
               "by its kernels takes at least `launch` of the GPU type for each of them");
  }
  describe_hidden(v, job);
  v.optional("allowed", job.allowed, "what planners may use");
}

Job load_job(const std::string& path, config::Diagnostics& diagnostics) {
  return config::load_file<Job>(path, diagnostics);
}

}  // namespace orrery::models
