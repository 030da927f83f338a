/// Runs steps on real numbers in one process, to show that a resolution delivers what its target
/// layout says. Slow and strict: an element that a step reads must be there.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/sharding/layout.h"
#include "models/sharding/resolve.h"

namespace orrery::models {

/// The tensor: its `length` numbers by summand, with the ids of Piece::partial (kFullValue alone
/// for a layout of full values). Whole numbers keep sums exact in any order.
using Summands = std::map<int, std::vector<double>>;

/// What each owner holds: `length` places, empty where it holds nothing.
using Buffers = std::map<int, std::vector<std::optional<double>>>;

/// The owners' buffers as the layout describes them. The layout is valid, and `summands` has one
/// entry of `length` numbers for each id in it.
Buffers materialize(const Layout& layout, const Summands& summands);

/// Applies the steps in order. After a reduce_scatter a member holds only its own part of the
/// step's slices. Returns the first malformed step (parts that do not tile its slices, a source
/// outside its group) or the first read of an element that is not there, or nothing.
std::optional<std::string> execute(const std::vector<GroupStep>& steps, Buffers& buffers);

/// Compares, exactly, each piece of a valid layout of full values with the sum of `summands`, or
/// each piece of summands with its own. Returns the first difference, or nothing.
std::optional<std::string> compare(const Layout& layout, const Summands& summands,
                                   const Buffers& buffers);

}  // namespace orrery::models
