/// The setting `cache` of all that simulates: where answers are remembered (disk_cache.h).
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "models/config/visitor.h"
#include "models/interfaces/answer_store.h"

namespace orrery::experiments {

struct CacheSetting {
  std::string folder;  ///< "": the user's cache folder; "off": nowhere.

  /// Null where nothing is to be remembered, or can be: `on_note`, which may be empty, hears why.
  std::shared_ptr<const models::AnswerStore> open(
      const std::function<void(const std::string&)>& on_note) const;
};
void describe(config::Visitor& v, CacheSetting& setting);

}  // namespace orrery::experiments
