/// Does the executor's model fit what lowering says about it? Parameters, slices, inner
/// collectives, gradients of replicated key-value heads, kept memory, and what programs ask that it
/// cannot do.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "executor/model/parameters.h"
#include "models/lower/lower.h"
#include "models/sharding/layout.h"
#include "tests/executor/model/shard_runner.h"
#include "tests/models/lower/random_plan.h"
#include "tests/worlds/clusters.h"

namespace orrery::executor::lowering_test {
namespace {

using ir::Activation;
using ir::Recompute;

models::Workload workload_of(const ir::ProgramHeader& header) {
  return models::build_workload(header.model, header.sequence_length, header.dtype);
}

void expect_parameters_of_workload(const ir::ProgramHeader& header) {
  const models::Workload workload = workload_of(header);
  ASSERT_EQ(workload.blocks.size(), header.blocks.size());
  for (std::int32_t b = 0; b < workload.size(); ++b) {
    EXPECT_EQ(workload.block({b}).kind, header.blocks[static_cast<std::size_t>(b)]);
    const auto& wanted = workload.block({b}).parameters;
    const auto found = parameters_of(header, {b});
    ASSERT_EQ(found.size(), wanted.size()) << "block " << b;
    for (std::size_t p = 0; p < wanted.size(); ++p) {
      EXPECT_EQ(found[p].name, wanted[p].name);
      EXPECT_EQ(found[p].elements(), wanted[p].elements) << wanted[p].name;
      EXPECT_EQ(found[p].experts > 0, wanted[p].expert) << wanted[p].name;
      // Experts' units are those of one expert after the other.
      const std::int64_t units =
          wanted[p].expert
              ? header.model.experts * std::max<std::int64_t>(1, wanted[p].split_length)
              : wanted[p].split_length;
      EXPECT_EQ(found[p].split_length, units) << wanted[p].name;
    }
  }
}

TEST(ParametersOf, AreThoseOfTheWorkloadInItsOrder) {
  for (const Activation activation : {Activation::gelu, Activation::swiglu, Activation::relu}) {
    for (const int kv_heads : {8, 4, 1}) {
      for (const int vocabulary : {32, 50257}) {
        expect_parameters_of_workload(small_header(8, kv_heads, activation, vocabulary));
        for (const bool tied : {false, true}) {
          expect_parameters_of_workload(small_gpt(8, kv_heads, activation, vocabulary, tied));
        }
        expect_parameters_of_workload(
            with_experts(small_header(8, kv_heads, activation, vocabulary), 4, 2, 1));
        expect_parameters_of_workload(
            with_experts(small_gpt(8, kv_heads, activation, vocabulary, true), 4, 1, 1));
      }
    }
  }
}

struct Lowered {
  ir::Program program;
  models::Workload workload;
};

/// One pipeline of one stage on one tensor-parallel group, or on those that hold experts together.
Lowered lower_groups(const ir::ProgramHeader& header, const ShardRun& how, int samples) {
  Lowered out;
  out.workload = workload_of(header);
  models::Job job;
  job.global_batch = samples;
  job.sequence_length = header.sequence_length;
  job.dtype = header.dtype;
  job.allowed.recompute = {Recompute::none, Recompute::selective, Recompute::full};
  job.allowed.sequence_parallel = true;
  ir::Segment segment;
  segment.first_block = {0};
  segment.last_block = {out.workload.size() - 1};
  segment.recompute = how.recompute;
  segment.expert_parallel = how.expert_degree;
  for (std::int32_t g = 0; g < how.expert_degree; ++g) {
    ir::Group& group = segment.groups.emplace_back();
    for (std::int32_t d = 0; d < how.degree; ++d) group.devices.push_back({g * how.degree + d});
    group.tensor_parallel = how.degree;
    group.samples = samples / how.expert_degree;
    if (how.sequence) group.sequence = ir::SequenceParallelism::megatron;
  }
  ir::Pipeline pipeline;
  pipeline.micro_batch_size = samples;
  pipeline.stages = {{{segment}}};
  ir::Plan plan;
  plan.pipelines = {pipeline};
  models::LowerOptions options;
  options.collapsed = false;
  out.program = models::lower(plan, worlds::one_node(how.degree * how.expert_degree), out.workload,
                              job, options);
  return out;
}

Lowered lower_one_group(const ir::ProgramHeader& header, int degree, Recompute recompute,
                        int samples) {
  return lower_groups(header, {.degree = degree, .recompute = recompute}, samples);
}

/// Collectives that the program's passes hold, by pass and kind, and their bytes.
struct Volume {
  int count = 0;
  double bytes = 0;
  bool operator==(const Volume&) const = default;
};

using Volumes = std::map<std::pair<std::string, ir::CollectiveKind>, Volume>;

Volumes volumes_of(const ir::Program& program) {
  Volumes out;
  for (const ir::Op& op : program.ops) {
    if (op.rank.value != 0 || op.inner == ir::kNone) continue;
    for (const auto& inner : program.inner_sets[static_cast<std::size_t>(op.inner)]) {
      Volume& volume = out[{op.kind == ir::OpKind::forward ? "forward" : "backward", inner.kind}];
      volume.count += inner.count;
      volume.bytes += inner.count * inner.bytes.value;
    }
  }
  return out;
}

TEST(InnerCollectives, AreThoseOfTheModel) {
  using Kind = ir::CollectiveKind;
  const int samples = 4, tokens = 7, layers = 2, top_k = 2;
  const auto dense = small_header(8, 4, Activation::swiglu);
  // A capacity of 7 tokens: nothing is rounded.
  const auto experts = with_experts(dense, 4, top_k, 2);
  struct Case {
    ir::ProgramHeader header;
    bool sequence = false;
    int degree = 2;
    int groups = 1;
  };
  for (const Case& one :
       {Case{dense}, Case{dense, true}, Case{small_gpt(8, 4, Activation::relu, 37, true)},
        Case{small_gpt(8, 4, Activation::relu, 37, true), true}, Case{experts}, Case{experts, true},
        Case{experts, false, 1, 2}, Case{experts, false, 2, 2}, Case{experts, true, 2, 2}}) {
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      const ShardRun how = {.precision = Precision::fp32,
                            .degree = one.degree,
                            .sequence = one.sequence,
                            .expert_degree = one.groups,
                            .recompute = recompute};
      const Lowered lowered = lower_groups(one.header, how, samples);
      const ShardResult run = run_shards(one.header, random_weights(one.header, 1),
                                         {random_tokens(one.header, samples, 2)}, how);
      Volumes found;
      // Those of the loss are wide: row maxima, then row sums with the logits of the targets.
      for (const Sum& sum : run.sums) {
        Volume& volume = found[{sum.pass, sum.kind}];
        ++volume.count;
        volume.bytes += 4.0 * static_cast<double>(sum.elements);
      }
      Volumes wanted = volumes_of(lowered.program);
      const bool routed = one.header.model.experts > 0;
      if (routed && one.degree > 1 && !one.sequence) {
        // Members have summands of the gradient of each choice's weight: numbers, not rows.
        wanted[{"backward", Kind::all_reduce}].count += layers;
        wanted[{"backward", Kind::all_reduce}].bytes +=
            layers * 4.0 * samples / one.groups * tokens * top_k;
      }
      if (routed && one.sequence && one.groups > 1) {
        // Lowering has each member send its own tokens; here they send what was gathered.
        for (const char* pass : {"forward", "backward"}) {
          wanted[{pass, Kind::all_to_all}].bytes *= one.degree;
        }
      }
      EXPECT_EQ(found, wanted) << "recompute " << static_cast<int>(recompute) << ", degree "
                               << one.degree << " x " << one.groups
                               << (one.sequence ? ", sequence" : "");
    }
  }
}

TEST(HeldSlice, IsThatOfLowering) {
  for (const int kv_heads : {8, 4, 2, 1}) {
    const ir::ProgramHeader header = small_header(8, kv_heads, Activation::gelu, 37);
    for (const int degree : {1, 2, 4, 8}) {
      for (std::int32_t b = 0; b < 4; ++b) {
        for (const ParameterInfo& info : parameters_of(header, {b})) {
          if (info.split_length == 0) continue;
          const bool copies = degree > info.split_length;
          const int rounds = copies ? degree / static_cast<int>(info.split_length) : 1;
          for (int i = 0; i < degree; ++i) {
            const UnitRange found = held_slices(info, {degree, i}).front();
            // With fewer units than members, each round of members holds all units.
            const models::Slice wanted =
                models::even_part({0, info.split_length}, degree / rounds, i / rounds);
            EXPECT_EQ(found.begin, wanted.begin) << info.name << " " << i << " of " << degree;
            EXPECT_EQ(found.end, wanted.end) << info.name << " " << i << " of " << degree;
          }
        }
      }
    }
  }
}

/// Two key-value heads on four members: members 0 and 1 hold the first one, 2 and 3 the second.
TEST(Lowering, AddsUpTheGradientsOfReplicatedKeyValueHeads) {
  const ir::ProgramHeader header = small_header(8, 2, Activation::swiglu);
  const ir::Program program = lower_one_group(header, 4, Recompute::none, 2).program;
  std::map<std::pair<std::int32_t, std::int64_t>, std::set<std::int32_t>> groups;
  for (const ir::Collective& collective : program.collectives) {
    const auto& shape = program.shape_of(collective);
    if (shape.purpose != ir::Purpose::data_parallel) continue;
    EXPECT_EQ(shape.kind, ir::CollectiveKind::all_reduce);
    for (const auto& region : program.region_sets[static_cast<std::size_t>(shape.regions)]) {
      EXPECT_TRUE(region.parameter == 2 || region.parameter == 3) << region.parameter;
      for (const auto& part : shape.parts) {
        for (const DeviceId device : program.group(part.group).devices) {
          groups[{region.parameter, region.begin}].insert(device.value);
        }
      }
    }
  }
  const std::set<std::int32_t> first = {0, 1}, second = {2, 3};
  for (const std::int32_t parameter : {2, 3}) {
    EXPECT_EQ((groups[{parameter, 0}]), first);
    EXPECT_EQ((groups[{parameter, 1}]), second);
  }
  const ShardResult run =
      run_shards(header, random_weights(header, 1), {random_tokens(header, 2, 2)}, {.degree = 4});
  for (const Sum& sum : run.sums) EXPECT_NE(sum.elements, 6U * 20U);  // None inside the pass.
}

/// The workload counts what flash attention, the norms and the activation keep; besides, the shard
/// keeps 1 / rms of two norms for each row. It trains without dropout, whose two masks of a byte
/// for each element the workload counts for models with LayerNorm.
TEST(Kept, IsWhatTheWorkloadSays) {
  for (const ir::ProgramHeader& header :
       {small_header(8, 2, Activation::gelu), small_header(8, 2, Activation::swiglu),
        small_gpt(8, 2, Activation::gelu, 37, true), small_gpt(8, 2, Activation::relu, 37, true)}) {
    const models::Workload workload = workload_of(header);
    const models::Block& layer = workload.block({1});
    const int samples = 2;
    const auto kept = [&](Recompute recompute) {
      return static_cast<double>(run_shards(header, random_weights(header, 1),
                                            {random_tokens(header, samples, 2)},
                                            {.precision = Precision::fp32,
                                             .recompute = recompute,
                                             .stages = {{0, 0}, {1, 1}, {2, 3}}})
                                     .kept[1]);
    };
    const double norms = samples * 7 * 2 * 4;
    const bool layer_norm = header.model.normalization == ir::Normalization::layer_norm;
    const double masks = layer_norm ? samples * 7 * 20 * 2 : 0;
    EXPECT_EQ(kept(Recompute::none),
              samples * (layer.kept_split + layer.kept_replicated).value + norms - masks);
    EXPECT_EQ(kept(Recompute::none) - kept(Recompute::selective),
              samples * layer.attention_kept.value);
    EXPECT_EQ(kept(Recompute::full), samples * layer.input_bytes.value);
  }
}

/// The same of experts: besides, what is gathered from the parts of a sequence for products stays
/// as it is, where the workload counts a part of it.
TEST(Kept, OfExpertsAndPartsOfTheSequenceIsWhatTheWorkloadSays) {
  const int samples = 4, tokens = 7, hidden = 20;
  const auto dense = small_header(8, 4, Activation::swiglu);
  for (const ir::ProgramHeader& header : {dense, with_experts(dense, 4, 2, 2)}) {
    for (const bool sequence : {false, true}) {
      const models::Block layer = workload_of(header).block({1});
      const bool routed = header.model.experts > 0;
      const double found = static_cast<double>(run_shards(header, random_weights(header, 1),
                                                          {random_tokens(header, samples, 2)},
                                                          {.precision = Precision::fp32,
                                                           .degree = 2,
                                                           .sequence = sequence,
                                                           .stages = {{0, 0}, {1, 1}, {2, 3}}})
                                                   .kept[1]);
      // The first member has 4 of 7 tokens, input, middle and twice 1 / rms of them.
      const double own = sequence ? 4.0 / 7 : 1;
      const double rows = samples * tokens;
      const double gathered = 2 * rows * hidden * 4;
      const double routed_rows = routed ? rows * (2 * 2 * 2 * hidden * 4 + 4 * 4) : 0;
      const double whole = (samples * layer.kept_replicated).value - routed_rows;
      EXPECT_EQ(found, (samples * layer.kept_split).value / 2 + routed_rows + gathered +
                           own * (whole - gathered + 2 * rows * 4))
          << sequence << routed;
    }
  }
}

TEST(FindUnsupported, AcceptsWhatLoweringMakesOfASmallModel) {
  const Lowered lowered =
      lower_one_group(small_header(8, 2, Activation::swiglu), 4, Recompute::full, 2);
  EXPECT_EQ(find_unsupported(lowered.program), std::vector<std::string>{});
}

TEST(FindUnsupported, NamesEverythingAtOnce) {
  ir::Program program =
      lower_one_group(small_header(8, 2, Activation::swiglu), 4, Recompute::none, 2).program;
  program.header.collapsed = true;
  program.header.model.tied_embeddings = true;
  program.header.model.positions = 3;
  program.header.model.experts = 5;
  program.header.model.kv_heads = 3;
  program.header.blocks[1] = ir::BlockKind::convolution;
  program.segments[0].zero.stage = 3;
  program.segments[0].sequence = ir::SequenceParallelism::ulysses;
  program.segments[0].expert_parallel = 2;
  program.segments[0].recompute = Recompute::experts;
  std::string all;
  for (const std::string& one : find_unsupported(program)) all += one + "\n";
  for (const char* word :
       {"collapsed", "ZeRO-3 with tied", "3 learned positions", "beside layers without",
        "0 of 5 experts", "8 heads over 3", "convolution", "Ulysses' or ring sequence parallelism",
        "expert parallelism 2 with 5 experts", "3 key-value heads", "experts alone"}) {
    EXPECT_NE(all.find(word), std::string::npos) << word << " is not in\n" << all;
  }
  program = lower_one_group(small_header(8, 2, Activation::swiglu), 4, Recompute::none, 2).program;
  program.header.model.head_dim = 5;
  program.header.blocks.pop_back();
  EXPECT_EQ(find_unsupported(program).size(), 2U);
}

}  // namespace
}  // namespace orrery::executor::lowering_test
