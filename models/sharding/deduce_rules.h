/// The rules of the operators: shapes, and what one level of sharding (HDim, or one entry of the
/// states on the grid that all inputs share) becomes. Private to this folder. [Hetu v2, Figure 11]
#pragma once
#include <string>
#include <variant>
#include <vector>

#include "models/sharding/deduce.h"

namespace orrery::models::deduction {

/// Shape of the output, or the input whose shape does not fit.
std::variant<SymbolicShape, DeductionProblem> shape_of(const OperatorType& type,
                                                       const std::vector<SymbolicShape>& inputs);

/// What a level of sharding becomes, given the axis of each input on it and what the levels outside
/// it leave of the inputs' shapes. The reason of a problem says why a device could not work on what
/// it holds.
std::variant<Axis, DeductionProblem> axis_of(const OperatorType& type,
                                             const std::vector<Axis>& axes,
                                             const std::vector<SymbolicShape>& shapes);

}  // namespace orrery::models::deduction
