/// How entries of modules come into the catalogs: before anything runs, under names that are new.
/// Spans that catalog() and recovery_catalog() returned end here.
#pragma once

namespace orrery::planners {

struct PlannerEntry;
struct RecoveryEntry;

void add_to_catalog(const PlannerEntry& entry);
void add_to_catalog(const RecoveryEntry& entry);

}  // namespace orrery::planners
