/// The traces of a replay case: a file read once, or drawn from each seed, bound to the cluster.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "experiments/runner/replay_file.h"
#include "models/config/diagnostics.h"
#include "models/spec/cluster.h"
#include "traces/trace.h"

namespace orrery::experiments {

class TraceSource {
 public:
  TraceSource() = default;
  /// Reads the file, or the generator's settings. Problems go to `diagnostics`; a file below
  /// $ORRERY_DATA that is not there is none: see absent().
  TraceSource(const ReplayCase& one, const std::string& folder, const models::Cluster& cluster,
              config::Diagnostics& diagnostics);

  /// The file that is not there; "" otherwise.
  const std::string& absent() const { return absent_; }
  /// Of the file's content, or of the settings.
  const std::string& hash() const { return hash_; }
  /// "llama3", "p3-trace.csv".
  const std::string& name() const { return name_; }
  /// With the cluster's nodes, until the case's horizon. A generator draws from the seed.
  traces::Trace trace(std::uint64_t seed) const;

 private:
  struct Generator;
  void set_file(const ReplayTrace& spec, const std::string& folder, const models::Cluster& cluster,
                config::Diagnostics& diagnostics);
  void set_generator(const ReplayTrace& spec, const std::string& folder,
                     const models::Cluster& cluster, config::Diagnostics& diagnostics);

  std::string absent_;
  std::string hash_;
  std::string name_;
  Nanoseconds horizon_;  ///< 0: the trace's.
  std::optional<traces::Trace> file_;
  std::shared_ptr<const Generator> generator_;
};

/// Instants per second at which devices or the job fail or devices leave: what a user would expect
/// who knows how often such a cluster is interrupted, and nothing about when.
double interruptions_per_second(const traces::Trace& trace);

}  // namespace orrery::experiments
