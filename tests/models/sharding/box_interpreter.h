/// Runs the communication of an annotated tensor on real numbers in one process, to show that a
/// resolution delivers what its destination says. Slow and strict: a number that a step reads must
/// be there. The counterpart of interpreter.h for tensors of several dimensions.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/base/rng.h"
#include "models/sharding/annotation.h"
#include "models/sharding/communicate.h"

namespace orrery::models {

/// Numbers of a tensor, row-major.
using Values = std::vector<double>;
/// What each device holds: a place for each element of the tensor, empty where it holds nothing.
using BoxBuffers = std::map<int, std::vector<std::optional<double>>>;

/// Calls visit(flat index) for each element of the box, row-major. Box lies in the shape.
template <class Visit>
void for_each_element(const Box& box, const Shape& shape, const Visit& visit) {
  const std::int64_t count = volume(box);
  for (std::int64_t n = 0; n < count; ++n) {
    std::int64_t rest = n;
    std::int64_t flat = 0;
    std::int64_t stride = 1;
    for (std::size_t d = shape.size(); d-- > 0;) {
      flat += (box[d].begin + rest % box[d].size()) * stride;
      rest /= box[d].size();
      stride *= shape[d];
    }
    visit(static_cast<std::size_t>(flat));
  }
}

/// The devices' buffers as the annotation describes them; summands are drawn as small whole numbers
/// (their sums are exact in any order) that add up to `values`. The annotation is valid.
BoxBuffers materialize(const Annotation& annotation, const Shape& shape, const Values& values,
                       Rng& rng);

/// Applies the steps phase by phase. Returns the first malformed step (a device twice in a group, a
/// root outside it, slices of one reader that two moves write differently) or the first read of a
/// number that is not there, or nothing.
std::optional<std::string> execute(const std::vector<CommunicationStep>& steps, const Shape& shape,
                                   BoxBuffers& buffers);

/// Whether each device holds what the annotation says: full values equal `values`, replicas of a
/// summand are equal, summands add up to `values`. Returns the first difference, or nothing.
std::optional<std::string> compare(const Annotation& annotation, const Shape& shape,
                                   const Values& values, const BoxBuffers& buffers);

}  // namespace orrery::models
