/// Which NCCL the transport takes. The library is loaded at run time and need not be the one whose
/// header the build had. Private to executor/cuda.
#pragma once
#include <fmt/format.h>

#include <string>

namespace orrery::executor {

/// 2.17.1, as ncclGetVersion says it: 10000 major + 100 minor + patch. The first whose ncclConfig_t
/// limits the blocks of a kernel (minCTAs, maxCTAs) and names a network.
inline constexpr int kOldestNccl = 21701;

/// Why a library that says this version is not taken; empty: it is.
inline std::string nccl_version_problem(int version) {
  const int major = version / 10000;
  if (version >= kOldestNccl && major == 2) return {};
  const std::string named =
      version < 10000 ? fmt::format("of version code {}", version)
                      : fmt::format("{}.{}.{}", major, version / 100 % 100, version % 100);
  return fmt::format("NCCL {} is loaded, and 2.17.1 or a later 2.x is needed", named);
}

}  // namespace orrery::executor
