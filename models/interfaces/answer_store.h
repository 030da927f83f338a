/// Answers that cost much to work out, by everything that they depend on: simulated iterations and
/// transfers, plans. Whoever asks gives a key that leaves nothing out, so that a result never
/// depends on what a store holds.
#pragma once
#include <optional>
#include <string>

namespace orrery::models {

/// A store may forget anything at any time, and is never the reason for an error.
class AnswerStore {
 public:
  virtual ~AnswerStore() = default;
  /// Exactly the bytes that were kept under `key`, by this process or another; none: not known.
  virtual std::optional<std::string> find(const std::string& key) const = 0;
  virtual void keep(const std::string& key, const std::string& answer) const = 0;
};

}  // namespace orrery::models
