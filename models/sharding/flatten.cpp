#include "models/sharding/flatten.h"

#include <cstddef>
#include <functional>
#include <numeric>

#include "models/base/check.h"

namespace orrery::models {
namespace {

/// The last dimension of which the box has a part only, so that its rows in all later ones follow
/// each other; 0 where there is none.
std::size_t last_cut_dimension(const Box& box, const Shape& shape) {
  std::size_t last = shape.size() - 1;
  while (last > 0 && box[last] == Slice{0, shape[last]}) --last;
  return last;
}

void append_slices(const BoxPiece& piece, const Shape& shape, RowSlices rows,
                   std::vector<Piece>& out) {
  const Box& box = piece.box;
  const std::int64_t elements = volume(box);
  if (elements == 0) return;
  const std::size_t last =
      rows == RowSlices::apart ? shape.size() - 1 : last_cut_dimension(box, shape);
  // A slice: all of the box at one place of the dimensions before `last`.
  const std::int64_t below = std::accumulate(shape.begin() + static_cast<std::ptrdiff_t>(last) + 1,
                                             shape.end(), std::int64_t{1}, std::multiplies<>());
  const std::int64_t length = box[last].size() * below;
  for (std::int64_t n = 0; n < elements / length; ++n) {
    std::int64_t rest = n;
    std::int64_t begin = box[last].begin * below;
    std::int64_t stride = shape[last] * below;
    for (std::size_t d = last; d-- > 0;) {
      begin += (box[d].begin + rest % box[d].size()) * stride;
      rest /= box[d].size();
      stride *= shape[d];
    }
    out.push_back({piece.device, {begin, begin + length}, piece.partial});
  }
}

}  // namespace

Layout flatten(const Annotation& annotation, const Shape& shape, RowSlices rows) {
  ORRERY_CHECK(!shape.empty(), "{} of a tensor without dimensions", to_string(annotation));
  const auto problem = validate(annotation, shape, Splits::uneven);
  ORRERY_CHECK(!problem, "{}: {}", to_string(annotation), *problem);
  const bool one_tensor = annotation.hetero_size() == 1 || annotation.hetero_axis == kPartial;
  ORRERY_CHECK(one_tensor || !has_partial(annotation), "{} has summands of parts of the tensor",
               to_string(annotation));
  Layout layout;
  layout.length = volume(shape);
  for (const BoxPiece& piece : pieces(annotation, shape)) {
    append_slices(piece, shape, rows, layout.pieces);
  }
  return layout;
}

}  // namespace orrery::models
