#include "executor/launcher/settings.h"

#include <fmt/format.h>

#include <stdexcept>

#include "executor/cuda/backend.h"
#include "executor/net/message.h"

namespace orrery::executor {

std::vector<std::pair<Precision, const char*>> enum_names(Precision) {
  return {{Precision::fp32, "fp32"}, {Precision::fp64, "fp64"}, {Precision::bf16, "bf16"}};
}

const char* name_of(Precision precision) {
  for (const auto& [each, name] : enum_names(Precision{})) {
    if (each == precision) return name;
  }
  return "?";
}

std::optional<Precision> precision_of(const std::string& name) {
  for (const auto& [precision, its_name] : enum_names(Precision{})) {
    if (name == its_name) return precision;
  }
  return std::nullopt;
}

std::vector<std::pair<FaultPoint, const char*>> enum_names(FaultPoint) {
  return {{FaultPoint::op, "op"},
          {FaultPoint::before_update, "before_update"},
          {FaultPoint::after_update, "after_update"}};
}

void describe(config::Visitor& v, FaultInjection& fault) {
  v.required("device", fault.device, "whose process the fault strikes");
  v.required("step", fault.step, "in which it strikes");
  describe_field(v, "seed", fault.seed, "draws the op");
  v.required("stop", fault.stop, "the process is stopped, not killed");
  v.required("point", fault.point, "of the step");
  describe_field(v, "hold", fault.hold, "the process only waits for this long, ms");
  v.required("after", fault.after, "device whose hold is waited for; -1: none");
}

void describe(config::Visitor& v, RunSettings& s) {
  v.required("run", s.run, "name of the run");
  v.required("backend", s.backend, "cpu or cuda");
  v.required("library", s.library, "of the cpu back end");
  v.required("transport", s.transport, "tcp or nccl");
  v.required("precision", s.precision, "of weights and activations");
  v.required("steps", s.steps, "to train");
  v.required("learning_rate", s.learning_rate, "of the optimizer");
  v.required("data", s.data, "text file; empty: synthetic tokens");
  v.required("least_data_bytes", s.least_data_bytes, "that the file must have");
  describe_field(v, "data_seed", s.data_seed, "draws the samples");
  v.required("elastic", s.elastic, "survivors keep the state before each update");
  v.required("checkpoint_every", s.checkpoint_every, "steps; 0: never");
  v.required("local_checkpoints", s.local_checkpoints, "folder on each node; empty: none");
  v.required("cloud_checkpoints", s.cloud_checkpoints, "folder that all nodes see; empty: none");
  v.required("prune_checkpoints", s.prune_checkpoints, "remove those of earlier runs");
  v.required("log_steps", s.log_steps, "steps with spans and memory samples");
  describe_field(v, "connect", s.connect, "limit for connecting, ms");
  describe_field(v, "deadline", s.deadline, "limit for a wait, ms");
  describe_field(v, "heartbeat", s.heartbeat, "between signs of life, ms");
  describe_field(v, "silence", s.silence, "without a sign of life until a process is lost, ms");
  v.required("faults", s.faults, "that strike");
  std::map<std::string, double> slowdowns;
  for (const auto& [device, factor] : s.slowdowns) slowdowns[std::to_string(device)] = factor;
  v.required("slowdowns", slowdowns, "factors of compute time by device");
  if (!v.reading()) return;
  s.slowdowns.clear();
  for (const auto& [device, factor] : slowdowns) s.slowdowns[std::stoi(device)] = factor;
}

TcpOptions RunSettings::transport_options(const std::string& token,
                                          std::uint32_t generation) const {
  TcpOptions options;
  options.token = token;
  options.generation = generation;
  options.connect = connect;
  options.deadline = deadline;
  options.heartbeat = heartbeat;
  options.silence = silence;
  return options;
}

WorkerOptions RunSettings::worker_options(std::int32_t device) const {
  WorkerOptions options;
  options.adam.learning_rate = learning_rate;
  if (const auto slow = slowdowns.find(device); slow != slowdowns.end()) {
    options.slowdown = slow->second;
  }
  return options;
}

std::unique_ptr<Backend> make_backend(const RunSettings& settings, int number) {
  if (settings.backend == "cuda") {
    return make_cuda_backend(settings.precision, cuda_device_for(number));
  }
  if (settings.backend == "cpu") return make_cpu_backend(settings.precision, settings.library);
  throw std::runtime_error(
      fmt::format("back end '{}' is not part of this build (cpu, cuda)", settings.backend));
}

std::unique_ptr<TokenSource> make_tokens(const RunSettings& settings,
                                         const ir::ProgramHeader& header) {
  const int vocabulary = header.model.vocabulary;
  if (settings.data.empty()) return make_synthetic_tokens(settings.data_seed, vocabulary);
  return make_text_tokens(settings.data, settings.data_seed, vocabulary, header.sequence_length);
}

}  // namespace orrery::executor
