/// Deduction: from the annotations of an operator's inputs to that of its output, such that every
/// device can run the operator on what it holds. First the inputs are unified to the largest HSize;
/// then the operator's rule is applied once for HDim and once for every level of each subgroup's
/// states. Where that fails, the user must put a communication operator before an input.
/// [Hetu v2, section 5.2]
#pragma once
#include <optional>
#include <variant>
#include <vector>

#include "models/sharding/annotation.h"
#include "models/sharding/operators.h"
#include "models/sharding/symbolic.h"

namespace orrery::models {

struct TensorType {
  SymbolicShape shape;
  Annotation annotation;
  bool operator==(const TensorType&) const = default;
};

/// The same layout with these device groups (Figure 10 of the paper): a subgroup is cut along one
/// entry of its states, which becomes HDim. Nothing where no entry cuts it so, or where HDim is
/// another axis already.
std::optional<Annotation> with_groups(const Annotation& annotation,
                                      const std::vector<std::vector<int>>& device_groups);

/// The inverse for equal subgroups: one group with HDim as its outermost entry. Nothing where the
/// states or shares differ, or where the states already split HDim.
std::optional<Annotation> condensed(const Annotation& annotation);

/// The output of an operator. Annotations are valid in structure; there are inputs_of(type) of
/// them.
std::variant<TensorType, DeductionProblem> deduce(const OperatorType& type,
                                                  const std::vector<TensorType>& inputs);

}  // namespace orrery::models
