#include "models/cost/expert_share.h"

#include <algorithm>

#include "models/base/ids.h"

namespace orrery::models {

ExpertParts ExpertShare::parts(int model_experts) const {
  if (experts == 0) return degree;
  return {degree, static_cast<double>(model_experts) / experts};
}

double ExpertShare::load(int model_experts, int own_samples) const {
  return even() ? 1 : samples / parts(model_experts).parts / own_samples;
}

ExpertShare expert_share(const ir::Segment& segment, const ir::Group& group) {
  ExpertShare share{segment.expert_parallel};
  if (share.degree < 2) return share;
  const auto own =
      std::find_if(segment.groups.begin(), segment.groups.end(),
                   [&](const ir::Group& other) { return other.devices == group.devices; });
  if (own == segment.groups.end()) return share;
  const std::ptrdiff_t first = (own - segment.groups.begin()) / share.degree * share.degree;
  if (static_cast<std::ptrdiff_t>(segment.groups.size()) < first + share.degree) return share;
  const auto begin = segment.groups.begin() + first, end = begin + share.degree;
  if (std::all_of(begin, end, [&](const ir::Group& other) {
        return other.experts == begin->experts && other.samples == begin->samples;
      })) {
    return share;
  }
  share.experts = own->experts;
  for (auto other = begin; other != end; ++other) share.samples += other->samples;
  return share;
}

ExpertShare expert_share(const ir::SegmentInfo& segment) {
  return {segment.expert_parallel, segment.experts, segment.expert_samples};
}

}  // namespace orrery::models
