/// What one of the groups that hold the experts of a block together has of them and for whom it
/// computes: an even share, or more or fewer experts than the others, for the tokens of all [Wu et
/// al. 2025, HeterMoE, arXiv:2504.03871, asymmetric expert assignment].
#pragma once
#include "models/ir/plan.h"
#include "models/ir/program.h"

namespace orrery::models {

/// By how much experts are divided on a device.
struct ExpertParts {
  int degree = 1;    ///< Groups that hold one copy together: Segment::expert_parallel.
  double parts = 1;  ///< All experts over those of the group; the degree, if all hold equally many.

  // NOLINTNEXTLINE(google-explicit-constructor): a degree says all where shares are even.
  ExpertParts(int degree = 1) : ExpertParts(degree, degree) {}
  ExpertParts(int degree, double parts) : degree(degree), parts(parts) {}
};

struct ExpertShare {
  int degree = 1;
  int experts = 0;  ///< Of each block; 0: as many as each of the groups.
  int samples = 0;  ///< Of a micro-batch, of all the groups; 0: each takes as many as the others.

  bool even() const { return samples == 0; }
  ExpertParts parts(int model_experts) const;
  /// Tokens that the group's experts compute over those of its own `samples`: 1 where shares are
  /// even.
  double load(int model_experts, int own_samples) const;
};

/// `group` of the segment, or one with the same devices; even for any other.
ExpertShare expert_share(const ir::Segment& segment, const ir::Group& group);
ExpertShare expert_share(const ir::SegmentInfo& segment);

}  // namespace orrery::models
