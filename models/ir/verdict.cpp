#include "models/ir/verdict.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::ir {

bool MemoryVerdict::fits() const {
  return (!host || host->fits()) && std::all_of(by_gpu_type.begin(), by_gpu_type.end(),
                                                [](const MemoryUse& use) { return use.fits(); });
}

std::string MemoryVerdict::explain() const {
  const MemoryUse* worst = nullptr;
  for (const MemoryUse& use : by_gpu_type) {
    if (use.fits()) continue;
    if (worst == nullptr || use.need / use.have > worst->need / worst->have) worst = &use;
  }
  if (worst == nullptr && host && !host->fits()) {
    return fmt::format("model states in host memory of node {} take {:.1f} GiB, it has {:.1f} GiB",
                       host->node, host->need / 1_GiB, host->have / 1_GiB);
  }
  if (worst == nullptr) return "fits";
  return fmt::format("stage {} of pipeline {} needs {:.1f} GiB, {} has {:.1f} GiB", worst->stage,
                     worst->pipeline, worst->need / 1_GiB, worst->gpu, worst->have / 1_GiB);
}

}  // namespace orrery::ir
