/// Lowering resolves layouts along one dimension (resolve.h, gradient.h, activation.h), graphs and
/// switches resolve annotations (communicate.h). What both languages can say, both resolve alike:
/// the same groups for the same elements.
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
#include "models/sharding/gradient.h"
#include "models/sharding/interpreter.h"
#include "models/sharding/resolve.h"
#include "tests/models_sharding/random_annotations.h"

namespace orrery::models::testing {
namespace {

using AnnotationSteps = std::vector<CommunicationStep>;

/// Of one element: which kind of communication, who takes part in order, who keeps or brings it.
struct Meeting {
  StepKind kind = StepKind::send_receive;
  std::vector<int> group;
  int root = -1;
  auto operator<=>(const Meeting&) const = default;
};
/// By element; several where several groups reduce or send it.
using Meetings = std::map<std::int64_t, std::multiset<Meeting>>;

void add(Meetings& all, Slice slice, const Meeting& meeting) {
  for (std::int64_t x = slice.begin; x < slice.end; ++x) all[x].insert(meeting);
}

Meetings meetings(const std::vector<Step>& steps) {
  Meetings all;
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

Meetings meetings(const AnnotationSteps& steps) {
  Meetings all;
  for (const CommunicationStep& step : steps) {
    if (step.kind == CommunicationKind::identity) continue;
    for (const SliceMove& move : step.moves) {
      add(all, move.box.front(), {kind_of(step.kind), move.devices, move.root});
    }
  }
  return all;
}

std::string text(const Meetings& all) {
  std::string out;
  for (const auto& [x, meetings_of] : all) {
    for (const Meeting& meeting : meetings_of) {
      out += fmt::format("{}: {} [", x, to_string(meeting.kind));
      for (const int owner : meeting.group) out += fmt::format(" {}", owner);
      out += fmt::format(" ] root {}\n", meeting.root);
    }
  }
  return out;
}

AnnotationSteps annotated(const Annotation& from, const Annotation& to, std::int64_t length) {
  auto result = communicate(from, to, {length});
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

constexpr std::int64_t kLength = 120;  // Every degree up to 6 divides it.
constexpr int kTrials = 2000;

TEST(OneDimension, GradientsSynchroniseInTheGroupsOfSplitAllReduce) {
  Rng rng(1);
  for (int n = 0; n < kTrials; ++n) {
    Replicas replicas;
    Annotation gradients{{}, kPartial, {}};
    int next = 0;
    for (std::int64_t r = rng.integer(2, 5); r > 0; --r) {
      const int degree = static_cast<int>(rng.integer(1, 6));
      const std::vector<int> owners = consecutive(next, degree);
      next += degree;
      replicas.push_back(split(kLength, owners).pieces);
      gradients.subgroups.push_back(
          {owners, degree == 1 ? DistributedStates{} : DistributedStates{{0, degree}}});
    }
    Annotation synchronised = gradients;
    synchronised.hetero_axis = kDuplicate;
    const Meetings flat = meetings(synchronise_gradients(kLength, replicas));
    const Meetings full = meetings(annotated(gradients, synchronised, kLength));
    ASSERT_EQ(flat, full) << to_string(gradients) << "\n" << text(flat) << "\n" << text(full);
    ASSERT_EQ(flat.size(), static_cast<std::size_t>(kLength));
  }
}

/// Replicas of equal degree as one subgroup: tensor-parallel parts outside, replicas inside.
TEST(OneDimension, ZeroShardsScatterAndGatherAsReduceScatterAndAllGather) {
  Rng rng(2);
  for (int n = 0; n < kTrials; ++n) {
    const int degree = static_cast<int>(rng.integer(1, 4));
    const int count = static_cast<int>(rng.integer(2, 5));
    const std::int64_t length = std::int64_t{1} * degree * count * rng.integer(1, 6);
    Replicas replicas;
    for (int r = 0; r < count; ++r) {
      replicas.push_back(split(length, consecutive(r * degree, degree)).pieces);
    }
    Subgroup group;
    for (int part = 0; part < degree; ++part) {
      for (int r = 0; r < count; ++r) group.devices.push_back(r * degree + part);
    }
    const auto states = [&](Axis replica_axis) {
      DistributedStates all;
      if (degree > 1) all.push_back({0, degree});
      all.push_back({replica_axis, count});
      return all;
    };
    const auto with = [&](DistributedStates of) {
      return Annotation{{{group.devices, std::move(of)}}, kDuplicate, {}};
    };
    const Annotation gradients = with(states(kPartial));
    const Annotation shards = with({{0, degree * count}});
    const Annotation parameters = with(states(kDuplicate));
    const Meetings scatter = meetings(scatter_gradients(length, replicas, 0));
    const Meetings gather = meetings(gather_parameters(length, replicas, 0));
    ASSERT_EQ(scatter, meetings(annotated(gradients, shards, length)))
        << to_string(gradients) << "\n"
        << text(scatter);
    ASSERT_EQ(gather, meetings(annotated(shards, parameters, length))) << to_string(shards) << "\n"
                                                                       << text(gather);
  }
}

Annotation one_group(const std::vector<int>& owners, Axis axis) {
  const int degree = static_cast<int>(owners.size());
  return {{{owners, degree == 1 ? DistributedStates{} : DistributedStates{{axis, degree}}}},
          kDuplicate,
          {}};
}

/// Sliced: each sender its share, to the receiver's shares, then all-gather.
TEST(OneDimension, ActivationsMoveAsBetweenSplitsAndAllGatherInTheReceiver) {
  Rng rng(3);
  for (int n = 0; n < kTrials; ++n) {
    const std::vector<int> senders = consecutive(0, static_cast<int>(rng.integer(1, 6)));
    const std::vector<int> receivers = consecutive(6, static_cast<int>(rng.integer(1, 6)));
    const bool split_senders = rng.bernoulli(0.5);
    const bool split_receivers = rng.bernoulli(0.5);
    const auto layout = [](bool split) {
      return split ? ActivationLayout::sequence_split : ActivationLayout::replicated;
    };
    const Meetings flat = meetings(transfer_activations(
        {{senders, {0, 1}, layout(split_senders)}}, {{receivers, {0, 1}, layout(split_receivers)}},
        kLength, ActivationTransfer::sliced));
    AnnotationSteps steps = annotated(one_group(senders, 0), one_group(receivers, 0), kLength);
    if (!split_receivers) {
      const auto gathers =
          annotated(one_group(receivers, 0), one_group(receivers, kDuplicate), kLength);
      steps.insert(steps.end(), gathers.begin(), gathers.end());
    }
    const Meetings full = meetings(steps);
    ASSERT_EQ(flat, full) << senders.size() << " to " << receivers.size() << "\n"
                          << text(flat) << "\n"
                          << text(full);
  }
}

Layout flat_of(const Annotation& annotation, std::int64_t length) {
  Layout layout{length, {}};
  for (const BoxPiece& piece : pieces(annotation, {length})) {
    layout.pieces.push_back({piece.device, piece.box.front(), piece.partial});
  }
  return layout;
}

/// Batched send-receive brings each device exactly the elements that it has not, in both forms.
/// Where the top tier stays, the paper resolves inside each subgroup: a device is then sent what it
/// holds as a member of another subgroup, which the flat form, without subgroups, spares it.
TEST(OneDimension, FullValuesMoveToTheSameDevicesInTheSameNumber) {
  using Received = std::set<std::pair<std::int64_t, int>>;
  Rng rng(4);
  int equal = 0;
  for (int n = 0; n < kTrials; ++n) {
    const Shape shape = {12 * rng.integer(1, 4)};
    const Annotation from = random_annotation(rng, shape, 8, false);
    const Annotation to = random_change(rng, from, shape, 8, false);
    const auto result = resolve(flat_of(from, shape[0]), flat_of(to, shape[0]),
                                {.link_rank = {}, .gather_and_broadcast = false});
    ASSERT_TRUE(std::holds_alternative<std::vector<Step>>(result)) << to_string(from);
    const AnnotationSteps full = annotated(from, to, shape[0]);
    const auto is = [&](auto property) { return std::any_of(full.begin(), full.end(), property); };
    if (is([](const auto& step) { return is_collective(step.kind); })) continue;
    const auto received = [](const Meetings& all) {
      Received by;
      for (const auto& [x, of] : all) {
        for (const Meeting& meeting : of) by.insert({x, meeting.group.back()});
      }
      return by;
    };
    const Received flat_to = received(meetings(std::get<std::vector<Step>>(result)));
    const Received full_to = received(meetings(full));
    ASSERT_TRUE(std::includes(full_to.begin(), full_to.end(), flat_to.begin(), flat_to.end()))
        << to_string(from) << "\n"
        << to_string(to);
    if (is([](const auto& step) { return step.tier == Tier::bottom; })) continue;
    ASSERT_EQ(flat_to, full_to) << to_string(from) << "\n" << to_string(to);
    equal += flat_to.empty() ? 0 : 1;
  }
  EXPECT_GE(equal, kTrials / 10);
}

/// Whatever annotations along one dimension without summands of their own in unequal parts say, the
/// flat form resolves it too, and the interpreter finds the destination's numbers.
TEST(OneDimension, EveryAnnotationThatHasAFlatFormIsResolvedInIt) {
  Rng rng(5);
  int partial = 0;
  for (int n = 0; n < kTrials; ++n) {
    const Shape shape = {static_cast<std::int64_t>(12 * rng.integer(1, 3))};
    const Annotation from = random_annotation(rng, shape, 8, true);
    const Annotation to = random_change(rng, from, shape, 8, false);
    const Layout flat_from = flat_of(from, shape[0]);
    const Layout flat_to = flat_of(to, shape[0]);
    if (validate(flat_from) || has_partial(to)) continue;  // Summands of a part of the tensor.
    const auto full = communicate(from, to, shape);
    const auto flat = resolve(flat_from, flat_to, {});
    if (std::holds_alternative<Refusal>(full)) continue;
    ASSERT_TRUE(std::holds_alternative<std::vector<Step>>(flat))
        << std::get<Unresolvable>(flat).reason << "\n"
        << to_string(from) << "\n"
        << to_string(to);
    Summands summands;
    for (const Piece& piece : flat_from.pieces) {
      auto& values = summands[piece.partial];
      if (!values.empty()) continue;
      for (std::int64_t x = 0; x < shape[0]; ++x) {
        values.push_back(static_cast<double>(rng.integer(1, 1 << 20)));
      }
    }
    Buffers buffers = materialise(flat_from, summands);
    ASSERT_EQ(execute(std::get<std::vector<Step>>(flat), buffers).value_or(""), "");
    ASSERT_EQ(compare(flat_to, summands, buffers).value_or(""), "") << to_string(from) << "\n"
                                                                    << to_string(to);
    partial += has_partial(from) ? 1 : 0;
  }
  EXPECT_GE(partial, kTrials / 20);
}

}  // namespace
}  // namespace orrery::models::testing
