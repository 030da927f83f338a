#include "executor/launcher/settings.h"

#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <sstream>
#include <stdexcept>

#include "executor/cuda/backend.h"

namespace orrery::executor {
namespace {

using std::chrono::milliseconds;

/// Fields of the settings by name, each as text, in both directions.
template <class Settings, class Visit>
void visit_fields(Settings& s, Visit visit) {
  visit("run", s.run);
  visit("backend", s.backend);
  visit("library", s.library);
  visit("transport", s.transport);
  visit("precision", s.precision);
  visit("steps", s.steps);
  visit("learning_rate", s.learning_rate);
  visit("data", s.data);
  visit("least_data_bytes", s.least_data_bytes);
  visit("data_seed", s.data_seed);
  visit("elastic", s.elastic);
  visit("checkpoint_every", s.checkpoint_every);
  visit("local_checkpoints", s.local_checkpoints);
  visit("cloud_checkpoints", s.cloud_checkpoints);
  visit("prune_checkpoints", s.prune_checkpoints);
  visit("log_steps", s.log_steps);
  visit("connect", s.connect);
  visit("deadline", s.deadline);
  visit("heartbeat", s.heartbeat);
  visit("silence", s.silence);
}

std::string text_of(const std::string& value) { return value; }
std::string text_of(std::int64_t value) { return std::to_string(value); }
std::string text_of(std::uint64_t value) { return std::to_string(value); }
std::string text_of(double value) { return fmt::format("{}", value); }
std::string text_of(bool value) { return value ? "1" : "0"; }
std::string text_of(milliseconds value) { return std::to_string(value.count()); }
std::string text_of(Precision value) { return name_of(value); }

void read(const std::string& text, std::string& value) { value = text; }
void read(const std::string& text, std::int64_t& value) { value = std::stoll(text); }
void read(const std::string& text, std::uint64_t& value) { value = std::stoull(text); }
void read(const std::string& text, double& value) { value = std::stod(text); }
void read(const std::string& text, bool& value) { value = text == "1"; }
void read(const std::string& text, milliseconds& value) { value = milliseconds(std::stoll(text)); }
void read(const std::string& text, Precision& value) { value = precision_of(text).value(); }

}  // namespace

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

std::string to_text(const RunSettings& settings) {
  std::string text;
  visit_fields(settings, [&](const char* name, const auto& value) {
    text += fmt::format("{} {}\n", name, text_of(value));
  });
  for (const FaultInjection& fault : settings.faults) {
    text += fmt::format("fault {} {} {} {} {} {} {}\n", fault.device, fault.step, fault.seed,
                        fault.stop ? 1 : 0, static_cast<int>(fault.point), fault.hold.count(),
                        fault.after);
  }
  for (const auto& [device, factor] : settings.slowdowns) {
    text += fmt::format("slowdown {} {}\n", device, factor);
  }
  return text;
}

RunSettings settings_from(const std::string& text) {
  RunSettings settings;
  std::map<std::string, std::string> values;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t blank = line.find(' ');
    if (blank == std::string::npos) throw std::runtime_error("settings: no value in: " + line);
    const std::string name = line.substr(0, blank);
    std::istringstream words(line.substr(blank + 1));
    if (name == "slowdown") {
      std::int32_t device = -1;
      words >> device;
      words >> settings.slowdowns[device];
      continue;
    }
    if (name != "fault") {
      values[name] = line.substr(blank + 1);
      continue;
    }
    FaultInjection fault;
    int point = 0;
    std::int64_t hold = 0;
    words >> fault.device >> fault.step >> fault.seed >> fault.stop >> point >> hold >> fault.after;
    fault.point = static_cast<FaultPoint>(point);
    fault.hold = milliseconds(hold);
    settings.faults.push_back(fault);
  }
  visit_fields(settings, [&](const char* name, auto& value) {
    const auto it = values.find(name);
    if (it == values.end()) throw std::runtime_error(fmt::format("settings: no '{}'", name));
    try {
      read(it->second, value);
    } catch (const std::exception&) {
      throw std::runtime_error(fmt::format("settings: {} cannot be '{}'", name, it->second));
    }
  });
  return settings;
}

const char* name_of(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return "fp32";
    case Precision::fp64:
      return "fp64";
    case Precision::bf16:
      return "bf16";
  }
  return "?";
}

std::optional<Precision> precision_of(const std::string& name) {
  for (const Precision precision : {Precision::fp32, Precision::fp64, Precision::bf16}) {
    if (name == name_of(precision)) return precision;
  }
  return std::nullopt;
}

std::unique_ptr<Backend> make_backend(const RunSettings& settings, int number) {
  if (settings.backend == "cuda") {
    return make_cuda_backend(settings.precision, cuda_device_for(number));
  }
  if (settings.backend == "cpu") return make_cpu_backend(settings.precision, settings.library);
  throw std::runtime_error(
      fmt::format("back end '{}' is not part of this build (cpu, cuda)", settings.backend));
}

}  // namespace orrery::executor
