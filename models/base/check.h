/// Internal consistency checks: they guard against our own bugs and abort with what was expected.
/// No user input may reach one; user errors are config::ConfigError, infeasible plans are values.
#pragma once
#include <fmt/format.h>

#include <string_view>

namespace orrery {

/// Prints "file:line: check failed: condition: detail" to stderr and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               std::string_view detail);

}  // namespace orrery

/// ORRERY_CHECK(a == b, "a is {}, b is {}", a, b): aborts when the condition does not hold.
#define ORRERY_CHECK(condition, ...)                                                      \
  do {                                                                                    \
    if (!(condition))                                                                     \
      ::orrery::check_failed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
  } while (false)
