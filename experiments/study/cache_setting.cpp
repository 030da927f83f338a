#include "experiments/study/cache_setting.h"

#include <optional>

#include "experiments/study/disk_cache.h"

namespace orrery::experiments {

std::shared_ptr<const models::AnswerStore> CacheSetting::open(
    const std::function<void(const std::string&)>& on_note) const {
  if (folder == "off") return nullptr;
  const std::optional<std::string> where =
      folder.empty() ? default_cache_folder() : std::optional(folder);
  if (!where) return nullptr;
  const auto note = [on_note](const std::string& problem) {
    if (on_note) on_note("going on without the cache of earlier answers: " + problem);
  };
  auto cache = std::make_shared<const DiskCache>(*where, note);
  return cache->usable() ? cache : nullptr;
}

void describe(config::Visitor& v, CacheSetting& setting) {
  v.optional("cache", setting.folder,
             "folder that remembers simulations and plans from call to call, or off; default: "
             "orrery in the user's cache folder. Results do not depend on it");
}

}  // namespace orrery::experiments
