/// Annotated graphs and lowered programs say the same: who exchanges parts of sequences, rows of
/// experts and summands inside a pass, who receives from the stage before, and how many bytes.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "models/lower/lower.h"
#include "models/spec/job.h"
#include "tests/models/sharding/transformer_twins.h"

namespace orrery::models::testing::transformer_passes_test {
namespace {

/// Bytes that cross links inside the forward passes of a step, by the devices among which.
using Exchanges = std::map<std::vector<int>, double>;

Exchanges exchanges_of(const ir::Program& program, ir::Purpose purpose) {
  Exchanges all;
  for (const ir::Op& op : program.ops) {
    if (op.kind != ir::OpKind::forward || op.inner == ir::kNone) continue;
    const auto& own = program.rank_of(op).devices;
    for (const auto& inner : program.inner_sets[op.inner]) {
      if (inner.purpose != purpose) continue;
      for (const std::int32_t g : inner.groups) {
        const auto& devices = program.group(g).devices;
        std::vector<int> group;
        for (const DeviceId device : devices) group.push_back(device.value);
        std::sort(group.begin(), group.end());
        for (std::size_t i = 0; i < devices.size(); ++i) {
          if (std::find(own.begin(), own.end(), devices[i]) == own.end()) continue;
          const auto count = static_cast<double>(devices.size());
          double sent = inner.bytes.value * (count - 1) / count;
          if (inner.kind == ir::CollectiveKind::all_to_all) {
            const auto row =
                inner.bytes_per_peer.begin() + static_cast<std::ptrdiff_t>(i * devices.size());
            sent = std::accumulate(row, row + static_cast<std::ptrdiff_t>(devices.size()), 0.0);
          }
          all[group] += inner.count * sent;
        }
      }
    }
  }
  return all;
}

/// Sends and all-gathers of the communications whose names end so.
Exchanges exchanges_of(const Twins& twins, const std::set<std::string>& endings) {
  Exchanges all;
  for (const auto& communication : twins.special.communications) {
    const auto& name = twins.graph.operators[communication.operation].name;
    if (endings.count(name.substr(name.rfind('.') + 1)) == 0) continue;
    for (const CommunicationStep& step : communication.steps) {
      for (const SliceMove& move : step.moves) {
        std::vector<int> group = move.devices;
        std::sort(group.begin(), group.end());
        all[group] += static_cast<double>(volume(move.box)) *
                      static_cast<double>(group.size() - 1) * size_of(ir::Dtype::bf16).value;
      }
    }
  }
  return all;
}

Groups groups_of(const Exchanges& exchanges) {
  Groups groups;
  for (const auto& [group, bytes] : exchanges) groups.insert(group);
  return groups;
}

/// Bytes inside each of the device sets that `connections` join.
std::string inside(const Exchanges& exchanges, const Groups& connections) {
  std::string text;
  for (const auto& all : connected(connections)) {
    double sum = 0;
    for (const auto& [group, bytes] : exchanges) {
      if (std::includes(all.begin(), all.end(), group.begin(), group.end())) sum += bytes;
    }
    text += fmt::format("{}: {:.0f}\n", all, sum);
  }
  return text;
}

/// `joined`: groups whose members may send for each other.
void expect_equal_exchanges(const Exchanges& graph, const Exchanges& lowered, const Groups& joined,
                            const std::string& where) {
  Groups in_graph = groups_of(graph);
  Groups in_program = groups_of(lowered);
  for (Groups* groups : {&in_graph, &in_program}) groups->insert(joined.begin(), joined.end());
  EXPECT_EQ(inside(graph, in_graph), inside(lowered, in_program)) << where;
}

ir::Program program_of(const Twins& twins) {
  return lower(twins.made.plan, twins.cluster, twins.workload, Job{},
               {.collapsed = false, .seed = 0});
}

TEST(TransformerPassesAndLowering, ExchangePartsOfSequencesAmongTheSameDevices) {
  Rng rng(46);
  int met = 0;
  for (int n = 0; n < 40; ++n) {
    const auto twins = random_twins(rng, {.few_heads = false, .experts = n % 2 == 0});
    ASSERT_TRUE(twins);
    const auto graph = exchanges_of(*twins, {"exchange"});
    expect_equal_exchanges(graph, exchanges_of(program_of(*twins), ir::Purpose::sequence_parallel),
                           {}, fmt::format("case {}", n));
    met += graph.empty() ? 0 : 1;
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
  EXPECT_GT(met, 10);
}

/// Where all members of a tensor-parallel group have all rows, lowering has each send to its
/// counterpart; by Hetu's heuristics others with the same rows may send them.
TEST(TransformerPassesAndLowering, ExchangeRowsOfExpertsAmongTheSameDevices) {
  Rng rng(47);
  int met = 0;
  for (int n = 0; n < 40; ++n) {
    const auto twins = random_twins(rng, {.experts = true});
    ASSERT_TRUE(twins);
    Groups joined;
    for (const auto& pipeline : twins->made.plan.pipelines) {
      for (const auto& stage : pipeline.stages) {
        for (const auto& segment : stage.segments) {
          for (const auto& group : segment.groups) {
            if (group.sequence == ir::SequenceParallelism::megatron) continue;
            const std::size_t tensor = group.tensor_parallel;
            for (std::size_t i = 0; i < group.devices.size(); ++i) {
              joined.insert({group.devices[i / tensor * tensor].value, group.devices[i].value});
            }
          }
        }
      }
    }
    const auto graph = exchanges_of(*twins, {"dispatch", "combine"});
    expect_equal_exchanges(graph, exchanges_of(program_of(*twins), ir::Purpose::expert_parallel),
                           joined, fmt::format("case {}", n));
    met += graph.empty() ? 0 : 1;
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
  EXPECT_GT(met, 10);
}

TEST(TransformerPassesAndLowering, AddUpProductsAmongTheSameDevices) {
  Rng rng(48);
  for (int n = 0; n < 30; ++n) {
    const auto twins = random_twins(rng, {.experts = n % 3 == 0});
    ASSERT_TRUE(twins);
    EXPECT_EQ(to_text(groups_of(exchanges_of(*twins, {"gather", "reduce", "whole"}))),
              to_text(groups_of(exchanges_of(program_of(*twins), ir::Purpose::tensor_parallel))))
        << n;
  }
}

/// Bytes of activations that the devices of each group receive from other stages and from each
/// other, in the forward passes of a step; by the group's first device.
using Received = std::map<int, double>;

std::map<int, int> group_of_device(const ir::Plan& plan) {
  std::map<int, int> first;
  for (const auto& pipeline : plan.pipelines) {
    for (const auto& stage : pipeline.stages) {
      for (const auto& group : stage.segments.front().groups) {
        for (const DeviceId device : group.devices) {
          first[device.value] = group.devices.front().value;
        }
      }
    }
  }
  return first;
}

bool is_forward(const ir::Program& program, std::int32_t regions) {
  const auto& all = program.region_sets.at(regions);
  return !all.empty() && all.front().tensor == ir::TensorKind::activation;
}

Received received_by(const ir::Program& program, const std::map<int, int>& group_of) {
  Received received;
  for (const ir::Op& op : program.ops) {
    if (op.kind != ir::OpKind::send || op.purpose != ir::Purpose::pipeline) continue;
    if (!is_forward(program, op.regions)) continue;
    for (const auto& transfer : program.transfer_sets[op.transfers]) {
      received[group_of.at(transfer.destination.value)] += transfer.bytes.value;
    }
  }
  for (const ir::Collective& collective : program.collectives) {
    const auto& shape = program.shape_of(collective);
    if (shape.purpose != ir::Purpose::pipeline || !is_forward(program, shape.regions)) continue;
    EXPECT_EQ(shape.kind, ir::CollectiveKind::all_gather);
    for (const auto& part : shape.parts) {
      const auto& devices = program.group(part.group).devices;
      received[group_of.at(devices.front().value)] +=
          part.bytes.value * static_cast<double>(devices.size() - 1);
    }
  }
  return received;
}

Received received_by(const Twins& twins, const std::map<int, int>& group_of) {
  Received received;
  for (const auto& communication : twins.special.communications) {
    const auto& name = twins.graph.operators[communication.operation].name;
    if (name.substr(name.rfind('.') + 1) != "receive") continue;
    for (const CommunicationStep& step : communication.steps) {
      for (const SliceMove& move : step.moves) {
        received[group_of.at(move.devices.back())] +=
            static_cast<double>(volume(move.box)) * size_of(ir::Dtype::bf16).value;
      }
    }
  }
  return received;
}

TEST(TransformerPassesAndLowering, SendAsMuchFromStageToStage) {
  Rng rng(49);
  int met = 0;
  for (int n = 0; n < 40; ++n) {
    auto twins = random_twins(rng, {.experts = n % 3 == 0});
    ASSERT_TRUE(twins);
    twins->made.plan.communication.activation_transfer = ir::ActivationTransfer::sliced;
    const auto groups = group_of_device(twins->made.plan);
    const Received graph = received_by(*twins, groups);
    const Received lowered = received_by(program_of(*twins), groups);
    EXPECT_EQ(graph, lowered) << "case " << n;
    met += graph.empty() ? 0 : 1;
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
  EXPECT_GT(met, 10);
}

}  // namespace
}  // namespace orrery::models::testing::transformer_passes_test
