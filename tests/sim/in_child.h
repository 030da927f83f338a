/// One process per simulation: a process can hold one flow engine in its life.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <variant>

#include "sim/flow/fork.h"

namespace orrery::sim {

/// Runs `work` in a child process and returns what it delivers; if the child fails, so does the
/// test, and the result is empty.
inline std::string in_child(const std::function<std::string()>& work) {
  ForkResult result = run_forked(work);
  if (const auto* failure = std::get_if<ChildFailure>(&result)) {
    ADD_FAILURE() << failure->message;
    return {};
  }
  return std::get<std::string>(std::move(result));
}

}  // namespace orrery::sim
