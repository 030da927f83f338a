#include "planners/recovery/catalog.h"

#include <array>
#include <vector>

#include "models/config/diagnostics.h"
#include "planners/catalog.h"
#include "planners/modules/add_to_catalog.h"

namespace orrery::planners {

// One line a policy, in alphabetical order: declared here, defined in its own file.

extern const RecoveryEntry kAutohetRecovery;
extern const RecoveryEntry kBambooRecovery;
extern const RecoveryEntry kCheckfreqRecovery;
extern const RecoveryEntry kCheckpointRestartRecovery;
extern const RecoveryEntry kGeminiRecovery;
extern const RecoveryEntry kHetuRecovery;
extern const RecoveryEntry kHotSpareRecovery;
extern const RecoveryEntry kOobleckRecovery;
extern const RecoveryEntry kParcaeRecovery;
extern const RecoveryEntry kRecycleRecovery;
extern const RecoveryEntry kTorchftRecovery;
extern const RecoveryEntry kUnicronRecovery;
extern const RecoveryEntry kVarunaRecovery;

namespace {

constexpr std::array kCatalog = {
    &kAutohetRecovery, &kBambooRecovery,  &kCheckfreqRecovery, &kCheckpointRestartRecovery,
    &kGeminiRecovery,  &kHetuRecovery,    &kHotSpareRecovery,  &kOobleckRecovery,
    &kParcaeRecovery,  &kRecycleRecovery, &kTorchftRecovery,   &kUnicronRecovery,
    &kVarunaRecovery,
};

std::vector<const RecoveryEntry*>& all_entries() {
  static auto* const all = new std::vector<const RecoveryEntry*>(kCatalog.begin(), kCatalog.end());
  return *all;
}

PolicySource policy_source = nullptr;

}  // namespace

std::span<const RecoveryEntry* const> recovery_catalog() { return all_entries(); }

void add_to_catalog(const RecoveryEntry& entry) { all_entries().push_back(&entry); }

const RecoveryEntry* find_policy(const std::string& name) {
  for (const RecoveryEntry* entry : recovery_catalog()) {
    if (name == entry->name) return entry;
  }
  return names_python(name) && policy_source != nullptr ? policy_source(name) : nullptr;
}

void set_policy_source(PolicySource source) { policy_source = source; }

std::string unknown_policy_hint(const std::string& name) {
  if (names_python(name)) return kPythonHint;
  return config::suggest(name, policy_names(), "policies");
}

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const RecoveryEntry* entry : recovery_catalog()) names.emplace_back(entry->name);
  return names;
}

}  // namespace orrery::planners
