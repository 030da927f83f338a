/// What the search may do on a range of ranks: samples of the replicas under a data- and
/// tensor-parallel degree, and the numbers of Metis's cost model that follow from them.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "planners/kit/integers.h"
#include "planners/metis/placement.h"
#include "planners/metis/settings.h"
#include "planners/metis/tables.h"
#include "planners/planner.h"

namespace orrery::planners {

/// Metis's GB/s are 2^20 bytes per millisecond. [public code]
inline constexpr double kMetisBytesPerMillisecond = 1024.0 * 1024.0;

/// A data- and tensor-parallel degree on a range of ranks. [Metis, 4.2.2: "intra-stage plan"]
struct MetisStageChoice {
  bool valid = false;   ///< The search may use it.
  bool broken = false;  ///< The public code would stop with an error here.
  int data = 1;
  int tensor = 1;
  std::vector<int> samples;  ///< Of a micro-batch, for each replica.
  struct Kind {
    int type = 0;
    int samples = 0;
    std::vector<int> parts;  ///< That were measured and add up to `samples`.
    int memory = -1;         ///< Table of device_memory().
  };
  std::vector<Kind> kinds;  ///< Replicas that differ.
  /// Micro-batch sizes whose layer memory adds up to the stage's. [public code]
  std::vector<int> memory_parts;
  int nominal = 0;                ///< Samples of a replica as the network terms count them.
  double total_ms = 0;            ///< Whole model, slowest replica.
  double sync_ms = 0;             ///< Slowest type; kNever where the public code finds none.
  double reduce_ms_per_byte = 0;  ///< Gradient all-reduce, on the undivided gradients.
};

/// Makes choices as the paper says; the public code's way is in published.cpp.
class MetisChoices {
 public:
  /// Keeps references. `batches`: numbers of micro-batches.
  MetisChoices(const PlannerInput& input, const MetisSettings& settings, const MetisTables& tables,
               const MetisPlacement& placement, std::vector<std::int64_t> batches);
  virtual ~MetisChoices() = default;

  /// `batch` is a position in `batches`; `step` the exponent of the tensor-parallel degree.
  MetisStageChoice make(int first, int size, int batch, int step) const;
  /// Slowest replica on layers [begin, end), milliseconds.
  double time(const MetisStageChoice& choice, int begin, int end) const;

 protected:
  /// Fills a choice whose samples per replica and degree were measured.
  virtual void fill(MetisStageChoice& choice, int first, int size, int micro_batch) const;
  /// GPU types by rank.
  std::vector<int> types(int first, int size) const;
  /// Samples of each replica; empty where a type has no time for one sample.
  std::vector<int> divide(const std::vector<int>& types, int data, int tensor,
                          int micro_batch) const;
  /// Adds the kinds of replicas; false where samples were not measured.
  bool add_kinds(MetisStageChoice& choice, const std::vector<int>& types) const;

  const PlannerInput& input_;
  const MetisSettings& settings_;
  const MetisTables& tables_;
  const MetisPlacement& placement_;

 private:
  bool inside_nodes(int first, int size, int tensor) const;

  std::vector<std::int64_t> batches_;
};

/// The rules of the paper or of the public code, as the settings say.
std::unique_ptr<MetisChoices> make_metis_choices(const PlannerInput& input,
                                                 const MetisSettings& settings,
                                                 const MetisTables& tables,
                                                 const MetisPlacement& placement,
                                                 const std::vector<std::int64_t>& batches);

inline bool all_equal(std::span<const int> values) {
  return std::all_of(values.begin(), values.end(), [&](int v) { return v == values.front(); });
}

}  // namespace orrery::planners
