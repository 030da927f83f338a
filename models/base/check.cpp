#include "models/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace orrery {

void check_failed(const char* file, int line, const char* condition, std::string_view detail) {
  fmt::print(stderr, "{}:{}: check failed: {}: {}\n", file, line, condition, detail);
  std::fflush(stderr);
  std::abort();
}

}  // namespace orrery
