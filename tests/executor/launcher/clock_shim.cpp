#include "tests/executor/launcher/clock_shim.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>

namespace {

using orrery::executor::SharedClock;

SharedClock* map_clock() {
  const char* path = std::getenv(orrery::executor::kClockFile);
  if (path == nullptr) return nullptr;
  const int file = ::open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  void* memory = ::mmap(nullptr, sizeof(SharedClock), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory == MAP_FAILED) return nullptr;
  auto* clock = static_cast<SharedClock*>(memory);
  ++clock->processes;
  return clock;
}

time_t offset() {
  const SharedClock* clock = orrery_shared_clock();
  return clock == nullptr ? 0 : static_cast<time_t>(clock->offset_seconds.load());
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

__attribute__((constructor)) void begin() { orrery_shared_clock(); }

}  // namespace

extern "C" {

SharedClock* orrery_shared_clock() {
  static SharedClock* clock = map_clock();
  return clock;
}

int clock_gettime(clockid_t id, timespec* out) noexcept {
  static const auto kReal = next<int (*)(clockid_t, timespec*)>("clock_gettime");
  const int result = kReal(id, out);
  if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
    out->tv_sec += offset();
  }
  return result;
}

int gettimeofday(timeval* __restrict out, void* __restrict zone) noexcept {
  static const auto kReal = next<int (*)(timeval*, void*)>("gettimeofday");
  const int result = kReal(out, zone);
  if (result == 0) out->tv_sec += offset();
  return result;
}

time_t time(time_t* out) noexcept {
  static const auto kReal = next<time_t (*)(time_t*)>("time");
  const time_t now = kReal(nullptr) + offset();
  if (out != nullptr) *out = now;
  return now;
}
}
