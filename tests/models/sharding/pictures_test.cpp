/// The data of the pictures in docs/sharding.md: docs/images/sharding.json is what the code says.
/// ORRERY_UPDATE_GOLDEN=1 rewrites it; then docs/images/sharding.py draws the pictures again.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "models/sharding/communicate.h"
#include "models/sharding/deduce.h"

namespace orrery::models::testing::pictures_test {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFile = "docs/images/sharding.json";

Json json_of(const Box& box) {
  Json result = Json::array();
  for (const Slice& slice : box) result.push_back({slice.begin, slice.end});
  return result;
}

/// The pieces of each subgroup.
Json json_of(const Annotation& annotation, const Shape& shape) {
  Json subgroups = Json::array();
  const auto all = pieces(annotation, shape);
  auto piece = all.begin();
  for (const Subgroup& subgroup : annotation.subgroups) {
    Json held = Json::array();
    for (std::size_t j = 0; j < subgroup.devices.size(); ++j, ++piece) {
      held.push_back(
          {{"device", piece->device}, {"box", json_of(piece->box)}, {"summand", piece->partial}});
    }
    subgroups.push_back(std::move(held));
  }
  return {{"text", to_string(annotation)},
          {"shape", shape},
          {"hdim", annotation.hetero_size() > 1 ? annotation.hetero_axis : kDuplicate},
          {"subgroups", std::move(subgroups)}};
}

Json json_of(const std::vector<CommunicationStep>& steps) {
  Json all = Json::array();
  for (const auto& step : steps) {
    for (const SliceMove& move : step.moves) {
      all.push_back(
          {{"kind", to_string(step.kind)}, {"devices", move.devices}, {"box", json_of(move.box)}});
    }
  }
  return all;
}

Json annotation_picture() {
  const Shape shape{10, 8};
  return json_of(
      {{{{0, 1, 2, 3}, {{0, 2}, {1, 2}}}, {{4, 5}, {{1, 2}}}, {{6, 7}, {{kDuplicate, 2}}}},
       0,
       {4, 4, 2}},
      shape);
}

Json deduction_picture() {
  const TensorType x{{6, 8}, {{{{0, 1}, {{1, 2}}}, {{2}, {}}}, 0, {2, 1}}};
  const TensorType w{{8, 6}, {{{{0, 1}, {{0, 2}}}, {{2}, {}}}, kDuplicate, {}}};
  const auto y = deduce(op::Dot{}, {x, w});
  return {{"x", json_of(x.annotation, {6, 8})},
          {"w", json_of(w.annotation, {8, 6})},
          {"y", json_of(std::get<TensorType>(y).annotation, {6, 6})}};
}

Json change(const Annotation& from, const Annotation& to, const Shape& shape,
            const BatchedOptions& options) {
  const auto steps = communicate(from, to, shape, options);
  return {{"from", json_of(from, shape)},
          {"to", json_of(to, shape)},
          {"moves", json_of(std::get<std::vector<CommunicationStep>>(steps))}};
}

/// Gradients of a matrix that one pipeline splits in four and the other in two.
Json resolution_picture() {
  const std::vector<Subgroup> groups{{{0, 1, 2, 3}, {{1, 4}}}, {{4, 5}, {{1, 2}}}};
  return change({groups, kPartial, {}}, {groups, kDuplicate, {}}, {4, 8}, {});
}

/// The second pipeline shrinks from four devices to two; links inside a pipeline are faster.
Json switching_picture() {
  const Subgroup first{{0, 1, 2, 3}, {{1, 4}}};
  BatchedOptions options;
  options.link_rank = [](int a, int b) { return a / 4 == b / 4 ? 0 : 1; };
  return change({{first, {{4, 5, 6, 7}, {{1, 4}}}}, kDuplicate, {}},
                {{first, {{4, 8}, {{1, 2}}}}, kDuplicate, {}}, {4, 8}, options);
}

TEST(ShardingPictures, AreDrawnFromWhatTheCodeSays) {
  const Json pictures{{"annotation", annotation_picture()},
                      {"deduction", deduction_picture()},
                      {"resolution", resolution_picture()},
                      {"switching", switching_picture()}};
  const std::string expected = pictures.dump(1) + "\n";
  const char* update = std::getenv("ORRERY_UPDATE_GOLDEN");
  if (update != nullptr && std::string(update) == "1") std::ofstream(kFile) << expected;
  std::ifstream file(kFile);
  std::ostringstream held;
  held << file.rdbuf();
  EXPECT_EQ(held.str(), expected)
      << "run with ORRERY_UPDATE_GOLDEN=1, then docs/images/sharding.py";
}

}  // namespace
}  // namespace orrery::models::testing::pictures_test
