/// Activations and their gradients between the ops of a rank, by (pipeline, micro-batch, block).
/// Each lives from its first use to its last in the step. Private to executor/engine.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>

#include "executor/compute/backend.h"
#include "executor/engine/rank_view.h"

namespace orrery::executor {

class ActivationStore {
 public:
  ActivationStore(const RankView& view, Backend& backend);

  /// All ops of the step are yet to come.
  void reset();
  /// Rows [first, last) of the micro-batch, which are tokens; allocated at the first use.
  Tensor rows(const ActivationKey& key, std::int64_t first, std::int64_t last);
  /// The tensor holds all rows of the micro-batch and takes the place of what is there.
  void adopt(const ActivationKey& key, const Tensor& tensor);
  std::int64_t rows_of(const ActivationKey& key) const;
  /// The op will not touch its activations any more.
  void release(const ir::Op& op);

 private:
  struct Entry {
    Tensor tensor;
    int uses = 0;
  };
  const RankView& view_;
  Backend& backend_;
  std::map<ActivationKey, int> uses_;
  std::mutex mutex_;
  std::map<ActivationKey, Entry> entries_;
};

}  // namespace orrery::executor
