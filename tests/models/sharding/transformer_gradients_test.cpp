/// Annotated graphs and lowered programs say the same: who adds up which gradients, who shares
/// shards, and of which parts. The graph resolves annotations of whole tensors; lowering resolves
/// the plan block by block.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "models/base/ids.h"
#include "models/lower/block_replicas.h"
#include "models/lower/placement.h"
#include "tests/models/sharding/transformer_twins.h"

namespace orrery::models::testing::transformer_gradients_test {
namespace {

/// "AR {0,1}" -> share of the tensor.
using Traffic = std::map<std::string, double>;

std::string key(const std::string& kind, std::vector<int> devices) {
  std::sort(devices.begin(), devices.end());
  return fmt::format("{} {{{}}}", kind, fmt::join(devices, ","));
}

/// A split collective is the collective of a part.
std::string plain(CommunicationKind kind) {
  std::string name(to_string(kind));
  return name.rfind("Split", 0) == 0 ? name.substr(5) : name;
}

std::string plain(StepKind kind) {
  switch (kind) {
    case StepKind::all_reduce:
      return "AR";
    case StepKind::reduce_scatter:
      return "RS";
    case StepKind::all_gather:
      return "AG";
    default:
      return std::string(to_string(kind));
  }
}

/// What one side says of a tensor.
struct Account {
  Traffic traffic;
  Groups groups;
};

void add(const ResolvedCommunication& communication, double volume_of_all, Account& account) {
  for (const CommunicationStep& step : communication.steps) {
    for (const SliceMove& move : step.moves) {
      account.traffic[key(plain(step.kind), move.devices)] +=
          static_cast<double>(volume(move.box)) / volume_of_all;
      account.groups.insert(move.devices);
    }
  }
}

void add(const std::vector<ParameterStep>& steps, Account& account) {
  for (const ParameterStep& step : steps) {
    account.traffic[key(plain(step.step.kind), step.step.group)] += step.share;
    account.groups.insert(step.step.group);
  }
}

enum class Compared { steps, but_all_reduces, partners };

std::string traffic_text(const Traffic& traffic, bool shares, Compared compared) {
  std::string text;
  for (const auto& [what, share] : traffic) {
    if (compared == Compared::but_all_reduces && what.rfind("AR", 0) == 0) continue;
    text += shares ? fmt::format("{} {:.6f}\n", what, share) : what + "\n";
  }
  return text;
}

std::map<std::string, Account> accounts_of(const Twins& twins) {
  std::map<std::string, Account> all;
  for (const auto& communication : twins.special.communications) {
    const std::size_t operation = communication.operation;
    double elements = 1;
    for (const std::int64_t size : twins.special.shapes[operation]) {
      elements *= static_cast<double>(size);
    }
    add(communication, elements, all[twins.graph.operators[operation].name]);
  }
  return all;
}

std::string graph_name(const Workload& workload, int block, const std::string& parameter) {
  const auto layer = block == 0                     ? std::string("embedding")
                     : block + 1 == workload.size() ? std::string("head")
                                                    : fmt::format("{}", block - 1);
  static const std::map<std::string, std::string> kNames{
      {"token", "table"},
      {"norm1.gain", "attention.gain"},
      {"norm1.bias", "attention.norm.bias"},
      {"attention.output", "attention.out"},
      {"attention.output.bias", "attention.out.bias"},
      {"norm2.gain", "mlp.gain"},
      {"norm2.bias", "mlp.norm.bias"},
      {"norm.gain", "logits.gain"},
      {"norm.bias", "logits.norm.bias"},
      {"output", "logits.weight"}};
  const auto found = kNames.find(parameter);
  return fmt::format("{}.{}", layer, found == kNames.end() ? parameter : found->second);
}

/// How the holders of a block lie.
struct Holders {
  bool own_tokens = false;  ///< Some group has Megatron's sequence parallelism.
  bool others = false;      ///< Some group of several tensor parts has not.
  std::set<int> degrees;
  Groups members;  ///< Of each tensor-parallel group: they hold equal sums.

  Holders(const ir::Plan& plan, int block) {
    for (const auto& pipeline : plan.pipelines) {
      for (const auto& stage : pipeline.stages) {
        for (const auto& segment : stage.segments) {
          if (block < segment.first_block.value || block > segment.last_block.value) continue;
          for (const auto& group : segment.groups) {
            degrees.insert(group.tensor_parallel);
            const bool megatron = group.sequence == ir::SequenceParallelism::megatron;
            if (group.tensor_parallel == 1) continue;
            own_tokens = own_tokens || megatron;
            others = others || !megatron;
            for (std::size_t i = 0; i < group.devices.size(); ++i) {
              const auto first = i - i % as_size(group.tensor_parallel);
              members.insert({group.devices[first].value, group.devices[i].value});
            }
          }
        }
      }
    }
  }
};

/// Where the two may differ in steps, and agree only in who adds up with whom: gains that lie whole
/// on groups of several degrees, or that the graph adds up inside groups first; under ZeRO, gains
/// and single heads, which lowering does not cut. Several shard groups of different degrees add up
/// other parts: the graph's shards are cut along another dimension than the tensor parts.
Compared compared(const Parameter& parameter, const Holders& holders, const ir::Zero& zero) {
  const bool zeros = zero.stage > 0;
  if (parameter.split_length == 0) {
    const bool mixed = holders.own_tokens && holders.others;
    const bool equal = !parameter.expert && !zeros && holders.degrees.size() == 1 && !mixed;
    return equal ? Compared::steps : Compared::partners;
  }
  if (parameter.split_length <= 8 && zeros) return Compared::partners;
  const bool cut_otherwise = zeros && zero.shard_group > 0 && holders.degrees.size() > 1;
  return cut_otherwise ? Compared::but_all_reduces : Compared::steps;
}

void expect_equal_steps(const Account& graph, const Account& lowered, bool shares, Compared how,
                        const std::string& where) {
  EXPECT_EQ(traffic_text(graph.traffic, shares, how), traffic_text(lowered.traffic, shares, how))
      << where;
  EXPECT_EQ(to_text(connected(graph.groups)), to_text(connected(lowered.groups))) << where;
}

/// Members of a group may do it one for all, or each for itself.
void expect_equal_partners(Account graph, Account lowered, const Groups& members,
                           const std::string& where) {
  graph.groups.insert(members.begin(), members.end());
  lowered.groups.insert(members.begin(), members.end());
  EXPECT_EQ(to_text(connected(graph.groups)), to_text(connected(lowered.groups))) << where;
}

/// Returns how many parameters had equal steps, with some.
int compare_parameters(const Twins& twins) {
  const auto accounts = accounts_of(twins);
  const Placement placement = place(twins.made.plan, twins.cluster, false);
  const BlockReplicas copies(twins.workload, placement);
  int equal = 0;
  for (int block = 0; block < twins.workload.size(); ++block) {
    const Holders holders(twins.made.plan, block);
    const auto& parameters = twins.workload.block({block}).parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const bool tied = copies.is_tied({block}, i);
      if (tied && block > 0) continue;
      // Lowering takes the biases of an expert's outputs for equal on all members of a group, also
      // where each has rows of its own.
      if (parameters[i].expert && parameters[i].split_length == 0 && holders.own_tokens) continue;
      const std::string name = graph_name(twins.workload, block, parameters[i].name);
      const ir::Zero& zero = copies.zero({block});
      const Compared how = compared(parameters[i], holders, zero);
      for (const SyncPhase phase : {SyncPhase::reduce, SyncPhase::gather}) {
        Account graph;
        const bool reduce = phase == SyncPhase::reduce;
        // With Megatron's sequence parallelism lowering counts a shard group of gains in devices,
        // the graph in groups, as it adds up inside them first.
        const bool counted_otherwise =
            parameters[i].split_length == 0 && zero.shard_group > 0 && holders.own_tokens;
        if (!reduce && counted_otherwise) continue;
        for (const char* suffix : {"whole", "gradient", "refresh"}) {
          if (reduce == (suffix == std::string("refresh"))) continue;
          const auto found = accounts.find(fmt::format("{}.{}", name, suffix));
          if (found == accounts.end()) continue;
          for (const auto& [what, share] : found->second.traffic) graph.traffic[what] += share;
          graph.groups.insert(found->second.groups.begin(), found->second.groups.end());
        }
        Account lowered;
        add(copies.steps({block}, i, phase), lowered);
        const std::string where = name + (reduce ? " reduce" : " gather");
        if (how != Compared::partners) {
          expect_equal_steps(graph, lowered, zero.shard_group == 0, how, where);
        } else {
          expect_equal_partners(graph, lowered, holders.members, where);
        }
        equal += how == Compared::steps && !graph.traffic.empty() ? 1 : 0;
      }
    }
  }
  return equal;
}

void compare_cases(std::uint64_t seed, const TransformerFeatures& features, int cases) {
  Rng rng(seed);
  int equal = 0;
  int compared = 0;
  for (int n = 0; n < 10 * cases && compared < cases; ++n) {
    const auto twins = random_twins(rng, features);
    if (!twins) continue;
    equal += compare_parameters(*twins);
    ++compared;
    ASSERT_FALSE(::testing::Test::HasFailure()) << "case " << n;
  }
  EXPECT_EQ(compared, cases);
  EXPECT_GT(equal, 5 * cases);
}

TEST(TransformerAndLowering, AddUpTheSameGradients) { compare_cases(41, {}, 30); }

TEST(TransformerAndLowering, AddUpTheSameGradientsOfTiedEmbeddings) {
  compare_cases(42, {.tied = true}, 30);
}

TEST(TransformerAndLowering, AddUpTheSameGradientsOfExperts) {
  compare_cases(43, {.experts = true}, 30);
}

TEST(TransformerAndLowering, ShareTheSameShards) {
  compare_cases(44, {.tied = true, .zero = true}, 60);
}

TEST(TransformerAndLowering, ShareTheSameShardsOfExperts) {
  compare_cases(45, {.experts = true, .zero = true}, 30);
}

}  // namespace
}  // namespace orrery::models::testing::transformer_gradients_test
