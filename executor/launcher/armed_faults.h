/// The faults that a run asked for and that have not struck yet, so that nobody takes a run without
/// its failure for one that survived it. Private to executor/launcher.
#pragma once
#include <string>
#include <vector>

#include "executor/launcher/settings.h"

namespace orrery::executor {

class ArmedFaults {
 public:
  /// Those that end or stop their process; what only holds it is no failure.
  explicit ArmedFaults(const std::vector<FaultInjection>& faults);

  /// The last word of a rank whose fault strikes, as RankGeneration says it: "device D ... of step
  /// S".
  void strike(const std::string& last_word);

  /// One line that names all that are left; empty: none.
  std::string left() const;

 private:
  std::vector<FaultInjection> armed_;
};

}  // namespace orrery::executor
