/// Limits of formats, which keep a small file from asking for much time or memory.
#pragma once

namespace orrery {

/// `most`; a hundredth of it where readers are fuzzed (tests/fuzz), as inputs that go up to a limit
/// of many thousands would take most of the time and find nothing that a lower one hides.
template <typename T>
constexpr T limit(T most) {
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
  return most / 100;
#else
  return most;
#endif
}

}  // namespace orrery
