/// Shared by the sources of communicate(): pieces with their place in the union, finest slices,
/// and the changes of one tier. Private to this folder.
#pragma once
#include <variant>
#include <vector>

#include "models/sharding/communicate.h"

namespace orrery::models::resolution {

using Steps = std::vector<CommunicationStep>;
using Outcome = std::variant<Steps, Refusal>;

/// A piece with its place in the union.
struct Held {
  int device = 0;
  int subgroup = 0;
  Box box;
  int summand = 0;  ///< Of the bottom tier, from 0 in each subgroup; 0 without Partial.
};
using Holders = std::vector<Held>;

Holders expand(const Annotation& annotation, const Shape& shape);

/// The boxes between all cuts that any of the holders' boxes makes.
std::vector<Box> finest_slices(const Holders& from, const Holders& to);

/// Adds the devices of the moves to those that take part; without moves it is an identity.
CommunicationStep finish(CommunicationStep step);

/// BSR. Only with full values, or with one and the same summand everywhere.
CommunicationStep batch(const Holders& from, const Holders& to, Tier tier, int subgroup,
                        const BatchedOptions& options);

/// States or devices of the subgroups change; the top tier stays. [section 4.1]
Outcome change_bottom(const Annotation& from, const Annotation& to, const Shape& shape,
                      const BatchedOptions& options);

/// HDim or its shares change; device groups and states stay. [section 4.2, I]
Outcome change_top(const Annotation& from, const Annotation& to, const Shape& shape,
                   const BatchedOptions& options);

}  // namespace orrery::models::resolution
