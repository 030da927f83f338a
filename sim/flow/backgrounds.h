/// Delays that advance more slowly while something else runs beside them, as a GPU computes more
/// slowly while a collective takes multiprocessors and memory bandwidth from it. Private to
/// sim/flow.
#pragma once
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "sim/flow/engine.h"

namespace orrery::sim {

/// Knows for how long each background has run. A delay that is due is given what it owes for the
/// time in which its background ran, again and again until it owes nothing: the sum of a geometric
/// series, from below, so that no event ever has to be taken back.
class Backgrounds {
 public:
  BackgroundId add();
  /// FlowEngine::run_beside and slow_down, of tasks that are waiting.
  void run(BackgroundId background, std::size_t first, std::size_t last);
  void slow_down(std::size_t delay, BackgroundId background, double share);

  void began(std::size_t task, double now);
  void ended(std::size_t task, double now);
  /// Seconds that a delay which is due now still has to go.
  double owed(std::size_t delay, double now);

  std::size_t size() const { return backgrounds_.size(); }
  std::size_t uses() const { return uses_.size(); }
  std::size_t slowed() const { return slowed_.size(); }
  /// Forgets all that was added after `mark`; none of it may be running.
  void rewind(const FlowEngine::Mark& mark);

 private:
  struct Background {
    int running = 0;  ///< Uses that are.
    double since = 0;
    double total = 0;  ///< Seconds before `since`.
    double elapsed(double now) const { return running > 0 ? total + (now - since) : total; }
  };
  struct Slowed {
    std::size_t task;
    BackgroundId background;
    double share;
    double before = 0;  ///< Seconds of the background when the delay began.
    double given = 0;   ///< Seconds by which it was lengthened.
  };
  struct Use {
    BackgroundId background;
    bool running = false;
  };
  using UsesOfTask = std::unordered_map<std::size_t, std::vector<std::uint32_t>>;

  std::vector<Background> backgrounds_;
  std::vector<Slowed> slowed_;
  std::vector<std::uint32_t> slowed_of_task_;  ///< 1 + index into slowed_; 0, or too short: none.
  std::vector<Use> uses_;
  UsesOfTask first_;  ///< By the task with whose start they begin.
  UsesOfTask last_;   ///< By the task with whose end they end.
};

}  // namespace orrery::sim
