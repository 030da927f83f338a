/// Runs communication on real numbers in one process, to show that a resolution delivers what its
/// destination says, for annotated tensors and for flat layouts. Slow and strict: a number that a
/// step reads must be there.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/base/rng.h"
#include "models/sharding/annotation.h"
#include "models/sharding/communicate.h"
#include "models/sharding/resolve.h"

namespace orrery::models {

/// Numbers of a tensor, row-major.
using Values = std::vector<double>;
/// What each device holds: a place for each element of the tensor, empty where it holds nothing.
using Buffers = std::map<int, std::vector<std::optional<double>>>;

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
    visit(flat);
  }
}

/// The devices' buffers as the annotation describes them; summands are drawn as small whole numbers
/// (their sums are exact in any order) that add up to `values`. The annotation is valid.
Buffers materialize(const Annotation& annotation, const Shape& shape, const Values& values,
                    Rng& rng);

/// Applies the steps phase by phase. Returns the first malformed step (a device twice in a group, a
/// root outside it, slices of one reader that two moves write differently) or the first read of a
/// number that is not there, or nothing.
std::optional<std::string> execute(const std::vector<CommunicationStep>& steps, const Shape& shape,
                                   Buffers& buffers);

/// Whether each device holds what the annotation says: full values equal `values`, replicas of a
/// summand are equal, summands add up to `values`. Returns the first difference, or nothing.
std::optional<std::string> compare(const Annotation& annotation, const Shape& shape,
                                   const Values& values, const Buffers& buffers);

/// A flat tensor: its numbers by summand, with the ids of Piece::partial (kFullValue alone for a
/// layout of full values). Whole numbers keep sums exact in any order.
using Summands = std::map<int, Values>;

/// The owners' buffers as the layout describes them. The layout is valid, and `summands` has one
/// entry of `length` numbers for each id in it.
Buffers materialize(const Layout& layout, const Summands& summands);

/// Applies the steps in order, as above.
std::optional<std::string> execute(const std::vector<GroupStep>& steps, std::int64_t length,
                                   Buffers& buffers);

/// Compares, exactly, each piece of a valid layout of full values with the sum of `summands`, or
/// each piece of summands with its own. Returns the first difference, or nothing.
std::optional<std::string> compare(const Layout& layout, const Summands& summands,
                                   const Buffers& buffers);

}  // namespace orrery::models
