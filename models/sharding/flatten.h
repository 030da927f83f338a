/// From an annotation to its flat form: the boxes of its devices, row-major, become slices of one
/// row of elements. Every annotation whose summands are summands of the whole tensor has one.
#pragma once
#include "models/sharding/annotation.h"
#include "models/sharding/layout.h"

namespace orrery::models {

/// Where slices end.
enum class RowSlices {
  joined,  ///< Rows of a box that follow each other are one slice.
  /// At the end of each row of the last dimension: rows are tensors of their own, as the matrices
  /// of several experts are. It makes no difference to who holds what, but to the finest slices,
  /// and with them to what ZeRO divides.
  apart,
};

/// What every device holds, in the order of subgroups, devices and elements; element x of a tensor
/// of shape (a, b) is (x / b, x mod b). Empty boxes have no piece. Piece::partial is
/// BoxPiece::partial. Aborts (ORRERY_CHECK) when the annotation is invalid (uneven splits are
/// fine), when the shape has no dimension, and when subgroups hold summands of their own part only:
/// several subgroups, HDim not Partial.
Layout flatten(const Annotation& annotation, const Shape& shape,
               RowSlices rows = RowSlices::joined);

}  // namespace orrery::models
