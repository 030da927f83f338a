/// What the library and this build know: planners, policies, schedules, GPUs, links, models,
/// clusters, profiles and experiments. What `orrery list` does.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "experiments/study/call.h"
#include "models/base/units.h"
#include "models/config/visitor.h"
#include "models/schedule/schedule.h"
#include "planners/catalog.h"
#include "planners/mixed_length/step_planner.h"
#include "planners/recovery/catalog.h"

namespace orrery::experiments {

struct ListSettings {
  std::string what;
  std::vector<std::string> names;  ///< Of planners, step planners or policies; empty: all.
  std::optional<std::string> cluster =
      std::nullopt;  ///< Whose links and GPUs are listed, instead of the library's.
};
void describe(config::Visitor& v, ListSettings& settings);

/// An entry of a catalog. A default one describes itself as the first of its catalog.
template <class Entry>
struct Known {
  const Entry* entry = nullptr;
  const Entry* operator->() const { return entry; }
};
using KnownPlanner = Known<planners::PlannerEntry>;
using KnownStepPlanner = Known<planners::StepPlannerEntry>;
using KnownPolicy = Known<planners::RecoveryEntry>;
using KnownSchedule = Known<models::ScheduleEntry>;
void describe(config::Visitor& v, KnownPlanner& planner);
void describe(config::Visitor& v, KnownStepPlanner& planner);
void describe(config::Visitor& v, KnownPolicy& policy);
void describe(config::Visitor& v, KnownSchedule& schedule);

/// How a step planner comes by its strategies.
inline constexpr const char* kStepStrategies = "given, or searched";

struct GpuRow {
  std::string name;
  std::string vendor;
  Bytes memory;
  BytesPerSecond memory_bandwidth;
  std::map<std::string, double> peak;
  double efficiency = 0;
  std::optional<double> dollars_per_hour;
  std::optional<Watts> power;
  std::string source;
};

struct LinkRow {
  std::string name;
  BytesPerSecond bandwidth;
  Seconds latency;
  double efficiency = 0;
  bool shared = false;
  bool mesh = false;
  std::string source;
};

struct ModelRow {
  std::string name;
  double parameters = 0;
  int layers = 0;
  std::int64_t hidden = 0;
  std::string path;
};

struct ClusterRow {
  std::string name;
  int gpus = 0;
  int nodes = 0;
  std::string types;
  std::string path;
};

/// Measured numbers for `--profile`.
struct ProfileRow {
  std::string name;
  std::string gpus;  ///< Types that it has kernels, pass times or efficiencies of.
  std::int64_t kernels = 0;
  std::int64_t times = 0;  ///< Of passes.
  std::int64_t links = 0;  ///< Classes with measured segments.
  std::string path;
};

struct ExperimentRow {
  std::string path;
  std::string title;
  std::int64_t runs = 0;
};

void describe(config::Visitor& v, GpuRow& row);
void describe(config::Visitor& v, LinkRow& row);
void describe(config::Visitor& v, ModelRow& row);
void describe(config::Visitor& v, ClusterRow& row);
void describe(config::Visitor& v, ProfileRow& row);
void describe(config::Visitor& v, ExperimentRow& row);

struct ListResult {
  std::variant<std::vector<KnownPlanner>, std::vector<KnownStepPlanner>, std::vector<KnownPolicy>,
               std::vector<KnownSchedule>, std::vector<GpuRow>, std::vector<LinkRow>,
               std::vector<ModelRow>, std::vector<ClusterRow>, std::vector<ProfileRow>,
               std::vector<ExperimentRow>>
      rows;
};
/// The rows: a list, not a struct.
config::Slot described(ListResult& result);

ListResult list(const ListSettings& settings, const Call& call);

}  // namespace orrery::experiments
