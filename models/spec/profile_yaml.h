/// Profiles in YAML (`schema: orrery/profile/1`): descriptions for the config reader. A
/// provenance that is only a source may be written as one string. Two entries for the same thing
/// (a link class and size, a collective, a GPU type and pass) are a problem: one would hide the
/// other.
#pragma once
#include <string>

#include "models/config/visitor.h"
#include "models/ir/names.h"
#include "models/ir/profile.h"

namespace orrery::ir {

void describe(config::Visitor& v, Provenance& provenance);
bool from_scalar(const std::string& text, Provenance& out, std::string& error);
void describe(config::Visitor& v, BlockTime& time);
void describe(config::Visitor& v, EfficiencyCurve::Point& point);
void describe(config::Visitor& v, EfficiencyCurve& curve);
void describe(config::Visitor& v, LinkSegment& segment);
void describe(config::Visitor& v, CollectiveFactor& factor);
void describe(config::Visitor& v, MemoryOverhead& overhead);
void describe(config::Visitor& v, PassOverhead& overhead);
void describe(config::Visitor& v, OverlapLoss& loss);
void describe(config::Visitor& v, ExposedCollectives& exposed);
void describe(config::Visitor& v, OptimizerTime& time);
void describe(config::Visitor& v, StorageTime& time);
void describe(config::Visitor& v, PhaseTime& time);
void describe(config::Visitor& v, LayerProfile& layers);
void describe(config::Visitor& v, ModelLayers& model);
void describe(config::Visitor& v, KernelModel::Product& product);
void describe(config::Visitor& v, KernelModel& kernels);
void describe(config::Visitor& v, CollectiveWay& way);
void describe(config::Visitor& v, Profile& profile);

}  // namespace orrery::ir
