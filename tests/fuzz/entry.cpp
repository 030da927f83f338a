// Where libFuzzer comes in: ORRERY_FUZZ_TARGET names the target.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/fuzz/targets.h"

/// What libcrypto keeps for each thread goes with the threads of the store, after the check.
extern "C" const char* __lsan_default_suppressions() { return "leak:libcrypto\n"; }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const orrery::fuzz::Target* target = [] {
    const char* name = std::getenv("ORRERY_FUZZ_TARGET");
    for (const orrery::fuzz::Target& one : orrery::fuzz::targets()) {
      if (name != nullptr && std::string(name) == one.name) return &one;
    }
    std::fputs("set ORRERY_FUZZ_TARGET to one of:\n", stderr);
    for (const orrery::fuzz::Target& one : orrery::fuzz::targets()) {
      std::fprintf(stderr, "%s\t%s\n", one.name, one.what);
    }
    std::exit(2);
  }();
  target->run({data, size});
  return 0;
}
