/// Lowering says what lies where in annotations and resolves their flat forms (flatten.h,
/// resolve.h, gradient.h, activation.h); graphs resolve annotations (communicate.h). Both find the
/// same groups for the same elements.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "models/base/rng.h"
#include "models/sharding/activation.h"
#include "models/sharding/communicate.h"
#include "models/sharding/flatten.h"
#include "models/sharding/gradient.h"
#include "tests/models/sharding/interpreter.h"
#include "models/sharding/resolve.h"
#include "tests/models/sharding/random_annotations.h"

namespace orrery::models::testing::flat_form_law_test {
namespace {

using AnnotationSteps = std::vector<CommunicationStep>;

/// Of one element: which kind of communication, who takes part in order, who keeps or brings it.
struct Rendezvous {
  StepKind kind = StepKind::send_receive;
  std::vector<int> group;
  int root = -1;
  auto operator<=>(const Rendezvous&) const = default;
};
/// By element; several where several groups reduce or send it.
using List = std::map<std::int64_t, std::multiset<Rendezvous>>;

void add(List& all, Slice slice, const Rendezvous& rendezvous) {
  for (std::int64_t x = slice.begin; x < slice.end; ++x) all[x].insert(rendezvous);
}

List rendezvous(const std::vector<Step>& steps) {
  List all;
  for (const Step& step : steps) {
    if (step.parts.empty()) {
      for (const Slice& slice : step.slices) add(all, slice, {step.kind, step.group, -1});
    }
    for (std::size_t m = 0; m < step.parts.size(); ++m) {
      for (const Slice& slice : step.parts[m]) {
        add(all, slice, {step.kind, step.group, step.group[m]});
      }
    }
  }
  return all;
}

StepKind kind_of(CommunicationKind kind) {
  switch (kind) {
    case CommunicationKind::all_reduce:
    case CommunicationKind::split_all_reduce:
      return StepKind::all_reduce;
    case CommunicationKind::reduce_scatter:
    case CommunicationKind::split_reduce_scatter:
      return StepKind::reduce_scatter;
    case CommunicationKind::all_gather:
    case CommunicationKind::split_all_gather:
      return StepKind::all_gather;
    default:
      return StepKind::send_receive;
  }
}

List rendezvous(const AnnotationSteps& steps, const Shape& shape) {
  List all;
  for (const CommunicationStep& step : steps) {
    if (step.kind == CommunicationKind::identity) continue;
    for (const SliceMove& move : step.moves) {
      for_each_element(move.box, shape, [&](std::size_t flat) {
        all[static_cast<std::int64_t>(flat)].insert({kind_of(step.kind), move.devices, move.root});
      });
    }
  }
  return all;
}

std::string text(const List& all) {
  std::string out;
  for (const auto& [x, meetings_of] : all) {
    for (const Rendezvous& rendezvous : meetings_of) {
      out += fmt::format("{}: {} [", x, to_string(rendezvous.kind));
      for (const int owner : rendezvous.group) out += fmt::format(" {}", owner);
      out += fmt::format(" ] root {}\n", rendezvous.root);
    }
  }
  return out;
}

AnnotationSteps annotated(const Annotation& from, const Annotation& to, const Shape& shape) {
  auto result = communicate(from, to, shape);
  if (const auto* refusal = std::get_if<Refusal>(&result)) {
    ADD_FAILURE() << refusal->reason << "\n" << to_string(from) << "\n" << to_string(to);
    return {};
  }
  return std::get<AnnotationSteps>(std::move(result));
}

std::vector<int> consecutive(int first, int count) {
  std::vector<int> devices(static_cast<std::size_t>(count));
  std::iota(devices.begin(), devices.end(), first);
  return devices;
}

std::vector<Piece> by_slice(Layout layout) {
  std::sort(layout.pieces.begin(), layout.pieces.end(),
            [](const Piece& a, const Piece& b) { return a.slice < b.slice; });
  return layout.pieces;
}

constexpr std::int64_t kLength = 120;  // Every degree up to 6 divides it.
constexpr int kTrials = 2000;

TEST(FlatForm, GradientsSynchronizeInTheGroupsOfSplitAllReduce) {
  Rng rng(1);
  for (int n = 0; n < kTrials; ++n) {
    const bool matrix = rng.bernoulli(0.5);
    Gradients gradients{{{}, kPartial, {}}, {kLength}, RowSlices::joined};
    if (matrix) gradients.shape = {12, 60};
    int next = 0;
    for (std::int64_t r = rng.integer(2, 5); r > 0; --r) {
      const int degree = static_cast<int>(rng.integer(1, 6));
      const int dimension = matrix && (degree == 5 || rng.bernoulli(0.5)) ? 1 : 0;
      gradients.annotation.subgroups.push_back({consecutive(next, degree), {{dimension, degree}}});
      next += degree;
    }
    const Annotation synchronized = parameter_annotation(gradients.annotation);
    const List flat = rendezvous(synchronize_gradients(gradients));
    const List full =
        rendezvous(annotated(gradients.annotation, synchronized, gradients.shape), gradients.shape);
    ASSERT_EQ(flat, full) << to_string(gradients.annotation) << "\n"
                          << text(flat) << "\n"
                          << text(full);
    ASSERT_EQ(flat.size(), static_cast<std::size_t>(volume(gradients.shape)));
  }
}

/// Replicas of equal degree as one subgroup: tensor-parallel parts outside, replicas inside.
TEST(FlatForm, ZeroShardsScatterAndGatherAsReduceScatterAndAllGather) {
  Rng rng(2);
  for (int n = 0; n < kTrials; ++n) {
    const int degree = static_cast<int>(rng.integer(1, 4));
    const int count = static_cast<int>(rng.integer(2, 5));
    const Shape shape{std::int64_t{1} * degree * count * rng.integer(1, 6)};
    Gradients copies{{{}, kPartial, {}}, shape, RowSlices::joined};
    for (int r = 0; r < count; ++r) {
      copies.annotation.subgroups.push_back({consecutive(r * degree, degree), {{0, degree}}});
    }
    Subgroup group;
    for (int part = 0; part < degree; ++part) {
      for (int r = 0; r < count; ++r) group.devices.push_back(r * degree + part);
    }
    const auto with = [&](DistributedStates of) {
      return Annotation{{{group.devices, std::move(of)}}, kDuplicate, {}};
    };
    const Annotation gradients = with({{0, degree}, {kPartial, count}});
    const Annotation shards = with({{0, degree * count}});
    const Annotation parameters = with({{0, degree}, {kDuplicate, count}});
    ASSERT_EQ(flatten(shards, shape).pieces, by_slice(zero_layout(copies, 0)));
    const List scatter = rendezvous(scatter_gradients(copies, 0));
    const List gather = rendezvous(gather_parameters(copies, 0));
    ASSERT_EQ(scatter, rendezvous(annotated(gradients, shards, shape), shape))
        << to_string(gradients) << "\n"
        << text(scatter);
    ASSERT_EQ(gather, rendezvous(annotated(shards, parameters, shape), shape))
        << to_string(shards) << "\n"
        << text(gather);
  }
}

/// One group with all samples, whole or split by tokens.
Annotation one_group(const std::vector<int>& owners, Axis axis) {
  return {{{owners, {{axis, static_cast<int>(owners.size())}}}}, kSampleAxis, {}};
}

/// Sliced: each sender its share, to the receiver's shares, then all-gather.
TEST(FlatForm, ActivationsMoveAsBetweenSplitsAndAllGatherInTheReceiver) {
  Rng rng(3);
  const Shape shape{1, kLength};
  for (int n = 0; n < kTrials; ++n) {
    const std::vector<int> senders = consecutive(0, static_cast<int>(rng.integer(1, 6)));
    const std::vector<int> receivers = consecutive(6, static_cast<int>(rng.integer(1, 6)));
    const auto states = [&] { return rng.bernoulli(0.5) ? kTokenAxis : kDuplicate; };
    const Annotation to = one_group(receivers, states());
    const List flat = rendezvous(
        transfer_activations(one_group(senders, states()), to, shape, ActivationTransfer::sliced));
    const Annotation shares = one_group(receivers, kTokenAxis);
    AnnotationSteps steps = annotated(one_group(senders, kTokenAxis), shares, shape);
    const auto gathers = annotated(shares, to, shape);
    steps.insert(steps.end(), gathers.begin(), gathers.end());
    const List full = rendezvous(steps, shape);
    ASSERT_EQ(flat, full) << senders.size() << " to " << receivers.size() << "\n"
                          << text(flat) << "\n"
                          << text(full);
  }
}

/// Batched send-receive brings each device exactly the elements that it has not, in both forms.
/// Where the top tier stays, the paper resolves inside each subgroup: a device is then sent what it
/// holds as a member of another subgroup, which the flat form, without subgroups, spares it.
TEST(FlatForm, FullValuesMoveToTheSameDevicesInTheSameNumber) {
  using Received = std::set<std::pair<std::int64_t, int>>;
  Rng rng(4);
  int equal = 0;
  for (int n = 0; n < kTrials; ++n) {
    const Shape shape = random_shape(rng);
    const Annotation from = random_annotation(rng, shape, 8, false);
    const Annotation to = random_change(rng, from, shape, 8, false);
    const auto result = resolve(flatten(from, shape), flatten(to, shape),
                                {.link_rank = {}, .gather_and_broadcast = false});
    ASSERT_TRUE(std::holds_alternative<std::vector<Step>>(result)) << to_string(from);
    const AnnotationSteps full = annotated(from, to, shape);
    const auto is = [&](auto property) { return std::any_of(full.begin(), full.end(), property); };
    if (is([](const auto& step) { return is_collective(step.kind); })) continue;
    const auto received = [](const List& all) {
      Received by;
      for (const auto& [x, of] : all) {
        for (const Rendezvous& rendezvous : of) by.insert({x, rendezvous.group.back()});
      }
      return by;
    };
    const Received flat_to = received(rendezvous(std::get<std::vector<Step>>(result)));
    const Received full_to = received(rendezvous(full, shape));
    ASSERT_TRUE(std::includes(full_to.begin(), full_to.end(), flat_to.begin(), flat_to.end()))
        << to_string(from) << "\n"
        << to_string(to);
    if (is([](const auto& step) { return step.tier == Tier::bottom; })) continue;
    ASSERT_EQ(flat_to, full_to) << to_string(from) << "\n" << to_string(to);
    equal += flat_to.empty() ? 0 : 1;
  }
  EXPECT_GE(equal, kTrials / 20);
}

/// Whatever annotations without summands of parts of the tensor say, the flat form resolves it too,
/// and the interpreter finds the destination's numbers. One thing is beyond it: a destination that
/// holds no summand of what it needs. The annotations first change the states inside each subgroup,
/// and then one of the summands lies there; the flat form, without subgroups, refuses. No
/// trial along one dimension is such a case.
TEST(FlatForm, EveryAnnotationThatHasOneIsResolvedInIt) {
  Rng rng(5);
  int partial = 0;
  for (int n = 0; n < kTrials; ++n) {
    const Shape shape = random_shape(rng);
    const Annotation from = random_annotation(rng, shape, 8, true);
    const Annotation to = random_change(rng, from, shape, 8, false);
    const bool of_parts =
        has_partial(from) && from.hetero_size() > 1 && from.hetero_axis != kPartial;
    if (of_parts || has_partial(to)) continue;
    const Layout flat_from = flatten(from, shape);
    const Layout flat_to = flatten(to, shape);
    const auto full = communicate(from, to, shape);
    const auto flat = resolve(flat_from, flat_to, {});
    if (std::holds_alternative<Refusal>(full)) continue;
    if (const auto* refusal = std::get_if<Unresolvable>(&flat)) {
      ASSERT_GT(shape.size(), 1U) << refusal->reason;
      ASSERT_NE(refusal->reason.find("none of its destinations"), std::string::npos)
          << refusal->reason << "\n"
          << to_string(from) << "\n"
          << to_string(to);
      continue;
    }
    Summands summands;
    for (const Piece& piece : flat_from.pieces) {
      auto& values = summands[piece.partial];
      if (!values.empty()) continue;
      for (std::int64_t x = 0; x < volume(shape); ++x) {
        values.push_back(static_cast<double>(rng.integer(1, 1 << 20)));
      }
    }
    Buffers buffers = materialize(flat_from, summands);
    ASSERT_EQ(execute(std::get<std::vector<Step>>(flat), buffers).value_or(""), "");
    ASSERT_EQ(compare(flat_to, summands, buffers).value_or(""), "") << to_string(from) << "\n"
                                                                    << to_string(to);
    partial += has_partial(from) ? 1 : 0;
  }
  EXPECT_GE(partial, kTrials / 20);
}

}  // namespace
}  // namespace orrery::models::testing::flat_form_law_test
