/// The traces of a replay case: a file read once, or drawn from each seed, bound to the cluster.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "experiments/study/replay_settings.h"
#include "models/config/diagnostics.h"
#include "models/spec/cluster.h"
#include "traces/trace.h"

namespace orrery::experiments {

/// What policies are told about the future (planners::PolicyInput).
struct ExpectedInterruptions {
  double per_second = 0;  ///< 0: unknown; then policies count what they see.
  std::string source;     ///< In words.
};

class TraceSource {
 public:
  TraceSource() = default;
  /// Reads the file, or the generator's settings. Problems go to `diagnostics`; a file below
  /// $ORRERY_DATA that is not there is none: see absent().
  TraceSource(const ReplayCase& one, const std::string& folder, const models::Cluster& cluster,
              config::Diagnostics& diagnostics);

  /// The file that is not there; "" otherwise.
  const std::string& absent() const { return absent_; }
  /// Hash of the file's content, or of the generator's settings.
  const std::string& hash() const { return hash_; }
  /// "llama3", "p3-trace.csv".
  const std::string& name() const { return name_; }
  /// Which node of the cluster each node of a file is, in words; "" where the names say it.
  const std::string& mapping() const { return mapping_; }
  /// With the cluster's nodes, until the case's horizon. A generator draws from the seed, and so
  /// does the start of a window of a file.
  traces::Trace trace(std::uint64_t seed) const;
  /// Different seeds give different traces.
  bool varies() const { return generator_ != nullptr || windows_; }
  /// A generator's rate, the same for all seeds; `in_use`: share of the cluster's devices. A file
  /// names none: unknown, as before it is loaded.
  ExpectedInterruptions interruptions(double in_use) const;

 private:
  struct Generator;
  void set_file(const ReplayTrace& spec, const std::string& folder, const models::Cluster& cluster,
                config::Diagnostics& diagnostics);
  void set_generator(const ReplayTrace& spec, const std::string& folder,
                     const models::Cluster& cluster, config::Diagnostics& diagnostics);

  std::string absent_;
  std::string hash_;
  std::string name_;
  std::string mapping_;
  Nanoseconds horizon_;  ///< 0: the trace's.
  std::optional<traces::Trace> file_;
  bool windows_ = false;  ///< TraceStart::seed.
  std::shared_ptr<const Generator> generator_;
};

}  // namespace orrery::experiments
