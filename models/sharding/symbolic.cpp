#include "models/sharding/symbolic.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>

#include "models/base/check.h"

namespace orrery::models {

SymbolicSize SymbolicSize::scaled(std::int64_t numerator, std::int64_t denominator) const {
  ORRERY_CHECK(denominator > 0, "denominator {}", denominator);
  SymbolicSize result = *this;
  result.numerator_ *= numerator;
  result.denominator_ *= denominator;
  const std::int64_t common = std::gcd(result.numerator_, result.denominator_);
  result.numerator_ /= common;
  result.denominator_ /= common;
  return result;
}

std::optional<SymbolicSize> product(const SymbolicSize& a, const SymbolicSize& b) {
  if (!a.symbol().empty() && !b.symbol().empty()) return std::nullopt;
  return a.symbol().empty() ? b.scaled(a.numerator(), a.denominator())
                            : a.scaled(b.numerator(), b.denominator());
}

std::variant<std::int64_t, Unbound> bind(const SymbolicSize& size, const Binding& values) {
  std::int64_t value = 1;
  if (!size.symbol().empty()) {
    const auto found = values.find(size.symbol());
    if (found == values.end()) {
      return Unbound{fmt::format("{}: no value for {}", to_string(size), size.symbol())};
    }
    value = found->second;
    if (value <= 0) {
      return Unbound{fmt::format("{}: {} is {}", to_string(size), size.symbol(), value)};
    }
  }
  const std::int64_t dividend = value * size.numerator();
  if (dividend % size.denominator() != 0) {
    return Unbound{fmt::format("{} is {}/{}, which leaves a remainder", to_string(size), dividend,
                               size.denominator())};
  }
  return dividend / size.denominator();
}

std::variant<Shape, Unbound> bind(const SymbolicShape& shape, const Binding& values) {
  Shape bound;
  for (const SymbolicSize& size : shape) {
    const auto value = bind(size, values);
    if (const auto* problem = std::get_if<Unbound>(&value)) return *problem;
    bound.push_back(std::get<std::int64_t>(value));
  }
  return bound;
}

SymbolicShape local_shape(const Annotation& annotation, const SymbolicShape& shape, int subgroup) {
  SymbolicShape local = shape;
  if (annotation.hetero_size() > 1 && annotation.hetero_axis >= 0) {
    SymbolicSize& size = local[annotation.hetero_axis];
    size = size.scaled(share_of(annotation, subgroup), total_share(annotation));
  }
  for (const auto& [axis, shards] : annotation.subgroups[subgroup].states) {
    if (axis < 0) continue;
    SymbolicSize& size = local[axis];
    size = size.scaled(1, shards);
  }
  return local;
}

std::string to_string(const SymbolicSize& size) {
  std::string text;
  if (size.symbol().empty() || size.numerator() != 1) text = fmt::format("{}", size.numerator());
  text += size.symbol();
  if (size.denominator() != 1) text += fmt::format("/{}", size.denominator());
  return text;
}

std::string to_string(const SymbolicShape& shape) {
  std::vector<std::string> sizes;
  for (const SymbolicSize& size : shape) sizes.push_back(to_string(size));
  return fmt::format("({})", fmt::join(sizes, ", "));
}

}  // namespace orrery::models
