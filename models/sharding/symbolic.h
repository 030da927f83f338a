/// Sizes that are known at run time only: a dimension is a whole number or a symbol times a ratio
/// (B, B/2, 3B/4). Annotations and deduction work on them; bind() puts numbers in, and refuses
/// where a division leaves a remainder and where a symbol has no value. [Hetu v2, section 5.5]
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "models/sharding/annotation.h"

namespace orrery::models {

/// symbol x numerator / denominator; without a symbol the number itself. Kept in lowest terms.
class SymbolicSize {
 public:
  SymbolicSize(std::int64_t number = 0) : numerator_(number) {}  // NOLINT: numbers are sizes.
  explicit SymbolicSize(std::string symbol) : symbol_(std::move(symbol)), numerator_(1) {}

  /// This x numerator / denominator; the denominator is positive. A number may become a fraction:
  /// bind() refuses it.
  SymbolicSize scaled(std::int64_t numerator, std::int64_t denominator) const;
  const std::string& symbol() const { return symbol_; }
  std::int64_t numerator() const { return numerator_; }
  std::int64_t denominator() const { return denominator_; }
  bool operator==(const SymbolicSize&) const = default;

 private:
  std::string symbol_;
  std::int64_t numerator_ = 0;
  std::int64_t denominator_ = 1;
};

/// Nothing where both have a symbol: a product of two symbols is no size.
std::optional<SymbolicSize> product(const SymbolicSize& a, const SymbolicSize& b);

using SymbolicShape = std::vector<SymbolicSize>;
/// Values of the symbols.
using Binding = std::map<std::string, std::int64_t>;

/// Why a shape or an annotation cannot be bound: names the size and the symbol.
struct Unbound {
  std::string reason;
};

std::variant<std::int64_t, Unbound> bind(const SymbolicSize& size, const Binding& values);
std::variant<Shape, Unbound> bind(const SymbolicShape& shape, const Binding& values);

/// What each device of a subgroup holds: the dimension of HDim times the subgroup's share, every
/// dimension of its DS divided by the shards. The annotation is valid in structure.
SymbolicShape local_shape(const Annotation& annotation, const SymbolicShape& shape, int subgroup);

/// "B", "B/2", "3B/4", "128".
std::string to_string(const SymbolicSize& size);
std::string to_string(const SymbolicShape& shape);  ///< "(B, S, 128)".

}  // namespace orrery::models
