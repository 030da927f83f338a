#include "executor/model/parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/base/check.h"
#include "models/base/rng.h"

namespace orrery::executor {
namespace {

constexpr double kInitialDeviation = 0.02;

std::vector<ParameterInfo> transformer_parameters_of(const ir::ModelShape& s) {
  const std::int64_t hidden = s.hidden;
  const std::int64_t head = hidden * s.head_dim;
  std::vector<ParameterInfo> all = {
      {"norm1.gain", 0, hidden},           {"attention.query", s.heads, head},
      {"attention.key", s.kv_heads, head}, {"attention.value", s.kv_heads, head},
      {"attention.output", s.heads, head}, {"norm2.gain", 0, hidden},
  };
  if (s.activation == ir::Activation::swiglu) all.push_back({"mlp.gate", s.ffn, hidden});
  all.push_back({"mlp.up", s.ffn, hidden});
  all.push_back({"mlp.down", s.ffn, hidden});
  return all;
}

bool writes_to_residual(const std::string& name) {
  return name == "attention.output" || name == "mlp.down";
}

}  // namespace

TransformerParameters transformer_parameters(const ir::ModelShape& shape) {
  if (shape.activation == ir::Activation::swiglu) return {.up = 7, .down = 8};
  return {.up = 6, .down = 7};
}

std::vector<ParameterInfo> parameters_of(const ir::ProgramHeader& header, BlockId block) {
  const ir::ModelShape& s = header.model;
  switch (header.blocks[block.index()]) {
    case ir::BlockKind::embedding:
      return {{"token", s.vocabulary, s.hidden}};
    case ir::BlockKind::transformer:
      return transformer_parameters_of(s);
    case ir::BlockKind::head:
      return {{"norm.gain", 0, s.hidden}, {"output", s.vocabulary, s.hidden}};
    case ir::BlockKind::moe:
    case ir::BlockKind::convolution:
      break;
  }
  ORRERY_CHECK(false, "block {} is of a kind that find_unsupported() names", block.value);
  return {};
}

UnitRange held_slice(const ParameterInfo& info, int degree, int position) {
  ORRERY_CHECK(0 <= position && position < degree, "position {} of {}", position, degree);
  const std::int64_t length = info.split_length;
  if (length == 0) return {0, 1};
  if (degree > length && degree % length == 0) {
    const std::int64_t unit = position / (degree / length);
    return {unit, unit + 1};
  }
  const std::int64_t width = length / degree, longer = length % degree;
  const std::int64_t begin = position * width + std::min<std::int64_t>(position, longer);
  return {begin, begin + width + (position < longer ? 1 : 0)};
}

std::vector<double> initial_values(const ir::ProgramHeader& header, BlockId block,
                                   std::size_t parameter, std::int64_t begin, std::int64_t end) {
  const ParameterInfo info = parameters_of(header, block)[parameter];
  std::vector<double> values(static_cast<std::size_t>(end - begin), 1.0);
  if (info.split_length == 0) return values;
  const double deviation = writes_to_residual(info.name)
                               ? kInitialDeviation / std::sqrt(2.0 * header.model.layers)
                               : kInitialDeviation;
  const Rng of_parameter = Rng(header.seed)
                               .fork(static_cast<std::uint64_t>(block.value))
                               .fork(static_cast<std::uint64_t>(parameter));
  for (std::int64_t i = begin; i < end; ++i) {
    Rng rng = of_parameter.fork(static_cast<std::uint64_t>(i));
    values[static_cast<std::size_t>(i - begin)] = deviation * rng.normal();
  }
  return values;
}

}  // namespace orrery::executor
