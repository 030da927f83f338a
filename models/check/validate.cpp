#include "models/check/validate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "models/base/hash.h"
#include "models/base/id_vector.h"
#include "models/base/ids.h"
#include "models/cost/host_step.h"
#include "models/ir/names.h"
#include "models/schedule/rounds.h"
#include "models/schedule/schedule.h"

namespace orrery::models {
namespace {

template <class E>
std::string list_names(const std::vector<E>& values) {
  std::vector<std::string> names;
  for (const E value : values) names.emplace_back(ir::name_of(value));
  return fmt::format("{}", fmt::join(names, ", "));
}

template <class T>
bool contains(const std::vector<T>& values, const T& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

/// Dimension that `degree` cannot split, or "".
std::string unsplittable(const ir::ModelShape& shape, ir::BlockKind kind, const Block& block,
                         int degree) {
  if (kind == ir::BlockKind::transformer || kind == ir::BlockKind::moe) {
    if (shape.heads % degree != 0) return fmt::format("{} heads", shape.heads);
    // Fewer key-value heads than members are replicated.
    if (shape.kv_heads > 0 && shape.kv_heads % degree != 0 && degree % shape.kv_heads != 0) {
      return fmt::format("{} key-value heads", shape.kv_heads);
    }
    const int shared = feed_forward_width(shape, kind);
    if (shared % degree != 0) return fmt::format("feed-forward width {}", shared);
    if (kind == ir::BlockKind::moe && shape.ffn % degree != 0) {
      return fmt::format("feed-forward width {}", shape.ffn);
    }
    if (block.predicts && shape.hidden % degree != 0) {
      return fmt::format("hidden width {}", shape.hidden);
    }
  } else if (kind == ir::BlockKind::convolution) {
    for (const Parameter& parameter : block.parameters) {
      if (parameter.split_length % degree != 0) {
        return fmt::format("{} channels of '{}'", parameter.split_length, parameter.name);
      }
    }
  }
  return "";
}

class Validator {
 public:
  Validator(const ir::Plan& plan, const Cluster& cluster, const Workload& workload, const Job& job)
      : plan_(plan),
        cluster_(cluster),
        workload_(workload),
        job_(job),
        user_(cluster.devices.size(), -1),
        seen_in_(cluster.devices.size(), 0) {}

  std::vector<PlanDefect> run() {
    check_hashes();
    if (plan_.virtual_stages > workload_.size()) {
      fail("virtual_stages",
           fmt::format("{} virtual stages for {} blocks", plan_.virtual_stages, workload_.size()));
      return std::move(defects_);
    }
    check_schedule();
    if (plan_.pipelines.empty()) fail("pipelines", "the plan has no pipeline");
    for (std::size_t p = 0; p < plan_.pipelines.size(); ++p) check_pipeline(p);
    check_batch();
    check_rounds();
    check_offload();
    return std::move(defects_);
  }

 private:
  void fail(std::string path, std::string what, std::string hint = "") {
    defects_.push_back({std::move(path), std::move(what), std::move(hint)});
  }

  void check_hashes() {
    if (!made_for(plan_.cluster_hash, cluster_)) {
      fail("cluster_hash",
           fmt::format("the plan was made for cluster {}, whose nodes have other GPUs than this "
                       "one's ({})",
                       plan_.cluster_hash, layout_hash(cluster_)),
           "plan again, use the cluster file that it was made for, or --any-cluster");
    }
    if (!plan_.workload_hash.empty() && plan_.workload_hash != workload_.hash) {
      fail("workload_hash",
           fmt::format("the plan was made for workload {}, this one is {}", plan_.workload_hash,
                       workload_.hash),
           "model, sequence length and dtype must be those that it was made for");
    }
  }

  void check_schedule() {
    const ScheduleEntry* schedule = find_schedule(plan_.schedule);
    const bool decoupled =
        schedule != nullptr && schedule->splits_backward() &&
        std::any_of(plan_.pipelines.begin(), plan_.pipelines.end(),
                    [](const ir::Pipeline& pipeline) { return !pipeline.reroutes.empty(); });
    if (!contains(job_.allowed.schedules, plan_.schedule) && !decoupled) {
      fail("schedule",
           fmt::format("schedule {} is not allowed by the job", ir::name_of(plan_.schedule)),
           "allowed: " + list_names(job_.allowed.schedules));
    }
    if (schedule == nullptr) {
      return fail("schedule",
                  fmt::format("schedule {} is not available", ir::name_of(plan_.schedule)));
    }
    if (schedule->uses_chunks && plan_.virtual_stages < 2) {
      fail("virtual_stages", fmt::format("{} needs at least 2 virtual stages, not {}",
                                         ir::name_of(plan_.schedule), plan_.virtual_stages));
    } else if (schedule->folds_back && plan_.virtual_stages != 2) {
      fail("virtual_stages", fmt::format("{} has 2 virtual stages, not {}",
                                         ir::name_of(plan_.schedule), plan_.virtual_stages));
    } else if (!schedule->uses_chunks && plan_.virtual_stages != 1) {
      fail("virtual_stages", fmt::format("{} has 1 virtual stage, not {}",
                                         ir::name_of(plan_.schedule), plan_.virtual_stages));
    }
  }

  void check_offload() {
    const double share = plan_.optimizer_offload;
    if (share == 0) return;
    if (share < 0 || share > 1) {
      return fail("optimizer_offload", fmt::format("a share of {}", share), "from 0 to 1");
    }
    if (share > job_.allowed.max_optimizer_offload) {
      fail("optimizer_offload",
           fmt::format("{} of the optimizer states in host memory, the job allows {}", share,
                       job_.allowed.max_optimizer_offload),
           "set allowed.max_optimizer_offload in the job");
    }
    for (const DeviceId device : ir::devices_of(plan_)) {
      if (!device.valid() || device.value >= cluster_.size()) continue;  // Reported already.
      const std::string lacking = lacks_host(cluster_, device);
      if (lacking.empty()) continue;
      return fail("optimizer_offload",
                  fmt::format("the cluster does not say how device {} of node '{}' reaches its "
                              "host's memory",
                              device.value, cluster_.node(cluster_.device(device).node).name),
                  fmt::format("'{}' of the node in the cluster file", lacking));
    }
  }

  void check_batch() {
    const std::int64_t batch = ir::global_batch(plan_);
    if (batch == job_.global_batch) return;
    fail("pipelines", fmt::format("micro-batches add up to {} samples, the job's batch is {}",
                                  batch, job_.global_batch));
  }

  /// Rounds of gradient synchronization together with reroutes: pipelines must be in the same round
  /// when their micro-batches meet, and every stage that computes at all must have a share in each.
  void check_rounds() {
    const int rounds = gradient_rounds(plan_, job_.gradient_synchronizations);
    if (rounds == 1) return;
    const int micro_batches = plan_.pipelines.front().micro_batches;
    // By pipeline and stage of the devices that compute.
    std::map<std::pair<std::size_t, std::size_t>, std::set<int>> rounds_of;
    bool any = false;
    bool equal = true;
    for (std::size_t p = 0; p < plan_.pipelines.size(); ++p) {
      const ir::Pipeline& pipeline = plan_.pipelines[p];
      any = any || !pipeline.reroutes.empty();
      equal = equal && pipeline.micro_batches == micro_batches;
      std::map<std::pair<int, int>, int> way;
      for (const ir::Reroute& r : pipeline.reroutes) way[{r.stage, r.micro_batch}] = r.to_pipeline;
      for (int m = 0, round = 0; m < pipeline.micro_batches; ++m) {
        if (m == round_end(plan_, pipeline, round, rounds)) ++round;
        for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
          const auto away = way.find({static_cast<int>(s), m});
          rounds_of[{away == way.end() ? p : as_size(away->second), s}].insert(round);
        }
      }
    }
    const bool all = std::all_of(rounds_of.begin(), rounds_of.end(), [&](const auto& entry) {
      return std::ssize(entry.second) == rounds;
    });
    if (!any || (equal && all)) return;
    fail("pipelines",
         fmt::format("gradients are synchronized in {} rounds, and {}", rounds,
                     equal ? "reroutes leave a stage without a micro-batch in some of them"
                           : "micro-batches are rerouted between pipelines that have different "
                             "numbers of them"),
         "set gradient_synchronizations to 1 in the job");
  }

  void check_pipeline(std::size_t p) {
    const ir::Pipeline& pipeline = plan_.pipelines[p];
    const std::string path = fmt::format("pipelines[{}]", p);
    if (pipeline.micro_batches < 1) fail(path, "needs at least one micro-batch");
    if (pipeline.micro_batch_size < 1) fail(path, "needs at least one sample per micro-batch");
    if (pipeline.stages.empty()) return fail(path, "has no stage");
    for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
      check_stage(pipeline, pipeline.stages[s], fmt::format("{}.stages[{}]", path, s));
    }
    check_blocks(pipeline, path);
    for (std::size_t r = 0; r < pipeline.reroutes.size(); ++r) {
      check_reroute(p, r, fmt::format("{}.reroutes[{}]", path, r));
    }
  }

  void check_stage(const ir::Pipeline& pipeline, const ir::Stage& stage, const std::string& path) {
    if (stage.segments.empty()) return fail(path, "has no segment");
    std::vector<DeviceId> first_devices;
    int virtual_stage = 0;
    for (std::size_t i = 0; i < stage.segments.size(); ++i) {
      const ir::Segment& segment = stage.segments[i];
      const std::string own = fmt::format("{}.segments[{}]", path, i);
      check_segment(pipeline, segment, own);
      if (segment.virtual_stage < virtual_stage) fail(own, "virtual stages are out of order");
      virtual_stage = segment.virtual_stage;
      std::vector<DeviceId> devices = claim(segment, own, i == 0);
      if (i == 0) {
        first_devices = std::move(devices);
      } else if (devices != first_devices) {
        fail(own, "is on other devices than the first segment of its stage");
      }
    }
  }

  /// Devices of the segment, ascending; those of a stage's first segment must not be in use yet.
  std::vector<DeviceId> claim(const ir::Segment& segment, const std::string& path, bool first) {
    std::vector<DeviceId> devices;
    ++segments_;
    for (std::size_t g = 0; g < segment.groups.size(); ++g) {
      const std::string own = fmt::format("{}.groups[{}]", path, g);
      if (first) users_.push_back(own);
      bool all_known = true;
      for (const DeviceId device : segment.groups[g].devices) {
        if (!device.valid() || device.value >= cluster_.size()) {
          if (std::exchange(all_known, false)) {
            fail(own, fmt::format("unknown device {}", device.value),
                 fmt::format("cluster '{}' has devices 0 to {}", cluster_.name,
                             cluster_.size() - 1));
          }
          continue;
        }
        if (std::exchange(seen_in_[device], segments_) == segments_) {
          fail(own, fmt::format("device {} appears twice in a segment", device.value));
          continue;
        }
        devices.push_back(device);
        if (!first) continue;
        std::int32_t& user = user_[device];
        if (user >= 0) {
          fail(own,
               fmt::format("device {} is already used by {}", device.value, users_[as_size(user)]));
        } else {
          user = static_cast<std::int32_t>(users_.size()) - 1;
        }
      }
    }
    std::sort(devices.begin(), devices.end());
    return devices;
  }

  void check_segment(const ir::Pipeline& pipeline, const ir::Segment& segment,
                     const std::string& path) {
    if (segment.virtual_stage < 0 || segment.virtual_stage >= std::max(1, plan_.virtual_stages)) {
      fail(path,
           fmt::format("virtual stage {} of {}", segment.virtual_stage, plan_.virtual_stages));
    }
    if (!contains(job_.allowed.recompute, segment.recompute)) {
      fail(path,
           fmt::format("recompute {} is not allowed by the job", ir::name_of(segment.recompute)),
           "allowed: " + list_names(job_.allowed.recompute));
    }
    check_zero(segment, path);
    if (segment.groups.empty()) return fail(path, "has no group");
    std::int64_t samples = 0;
    for (std::size_t g = 0; g < segment.groups.size(); ++g) {
      check_group(segment, segment.groups[g], fmt::format("{}.groups[{}]", path, g));
      samples += segment.groups[g].samples;
    }
    if (samples != pipeline.micro_batch_size) {
      fail(path, fmt::format("groups take {} samples of micro-batches of {}", samples,
                             pipeline.micro_batch_size));
    }
    check_experts(segment, path);
  }

  void check_zero(const ir::Segment& segment, const std::string& path) {
    if (!contains(job_.allowed.zero_stages, segment.zero.stage)) {
      fail(path, fmt::format("ZeRO stage {} is not allowed by the job", segment.zero.stage),
           fmt::format("allowed: {}", fmt::join(job_.allowed.zero_stages, ", ")));
    }
    if (segment.zero.shard_group < 0) {
      fail(path, fmt::format("shard groups of {} replicas", segment.zero.shard_group));
    }
    for (int b = std::max(0, segment.first_block.value);
         b <= std::min(segment.last_block.value, workload_.size() - 1); ++b) {
      const auto [zero, fresh] = zero_.try_emplace(b, segment.zero);
      if (fresh || zero->second == segment.zero) continue;
      return fail(path, fmt::format("block {} has another ZeRO setting in another replica", b));
    }
  }

  void check_group(const ir::Segment& segment, const ir::Group& group, const std::string& path) {
    if (group.tensor_parallel < 1 || group.sequence_degree < 1) {
      return fail(path, "degrees must be at least 1");
    }
    const std::int64_t wanted = std::int64_t{group.tensor_parallel} * group.sequence_degree;
    if (std::ssize(group.devices) != wanted) {
      fail(path, fmt::format("{} devices for tensor_parallel {} x sequence_degree {}",
                             group.devices.size(), group.tensor_parallel, group.sequence_degree));
    }
    if (group.samples < 1) fail(path, "takes no sample");
    check_state_weight(segment, group, path);
    const Allowed& allowed = job_.allowed;
    if (group.samples > allowed.max_micro_batch_size) {
      fail(path, fmt::format("takes {} samples at once, the job allows {}", group.samples,
                             allowed.max_micro_batch_size));
    }
    if (allowed.max_tensor_parallel > 0 && group.tensor_parallel > allowed.max_tensor_parallel) {
      fail(path, fmt::format("tensor_parallel {}, the job allows {}", group.tensor_parallel,
                             allowed.max_tensor_parallel));
    }
    check_sequence(group, path);
    check_dimensions(segment, group, path);
    check_vendors(group, path);
  }

  void check_sequence(const ir::Group& group, const std::string& path) {
    using ir::SequenceParallelism;
    const bool by_degree = group.sequence == SequenceParallelism::ulysses ||
                           group.sequence == SequenceParallelism::ring;
    if (!by_degree && group.sequence_degree != 1) {
      fail(path, fmt::format("sequence_degree {} with sequence {}", group.sequence_degree,
                             ir::name_of(group.sequence)));
    }
    if (group.sequence == SequenceParallelism::none) return;
    if (!job_.allowed.sequence_parallel) {
      fail(path, "sequence parallelism is not allowed by the job",
           "set allowed.sequence_parallel in the job");
    }
    const int parts = by_degree ? group.sequence_degree : group.tensor_parallel;
    if (workload_.sequence_length % parts != 0) {
      fail(path,
           fmt::format("{} tokens cannot be split {} ways", workload_.sequence_length, parts));
    }
    const std::int64_t heads_over = std::int64_t{group.tensor_parallel} * group.sequence_degree;
    if (group.sequence == SequenceParallelism::ulysses && workload_.shape.heads % heads_over != 0) {
      fail(path,
           fmt::format("{} heads cannot be split {} ways", workload_.shape.heads, heads_over));
    }
  }

  void check_dimensions(const ir::Segment& segment, const ir::Group& group,
                        const std::string& path) {
    for (int b = std::max(0, segment.first_block.value);
         b <= std::min(segment.last_block.value, workload_.size() - 1); ++b) {
      const Block& block = workload_.block(BlockId{b});
      const std::string dimension =
          unsplittable(workload_.shape, block.kind, block, group.tensor_parallel);
      if (dimension.empty()) continue;
      return fail(path, fmt::format("tensor_parallel {} cannot split {}", group.tensor_parallel,
                                    dimension));
    }
  }

  void check_vendors(const ir::Group& group, const std::string& path) {
    std::set<std::string> vendors;
    for (const DeviceId device : group.devices) {
      if (device.valid() && device.value < cluster_.size()) {
        vendors.insert(cluster_.gpu(device).vendor);
      }
    }
    for (const HostStaging& pair : cluster_.host_staging) {
      if (!vendors.contains(pair.vendor_a) || !vendors.contains(pair.vendor_b)) continue;
      fail(path,
           fmt::format("vendors {} and {} have no common library", pair.vendor_a, pair.vendor_b),
           "the cluster joins them by host_staging only: put them into different groups");
    }
  }

  void check_state_weight(const ir::Segment& segment, const ir::Group& group,
                          const std::string& path) {
    const int weight = group.state_weight;
    if (weight == 1) return;
    if (weight < 1 || weight > ir::kMostStateWeight) {
      return fail(path,
                  fmt::format("state_weight {} is not in 1 ... {}", weight, ir::kMostStateWeight));
    }
    if (!segment.zero.shards_optimizer()) {
      fail(path, "state_weight divides nothing without ZeRO", "set zero.stage");
    }
    if (segment.zero.shard_group != 0) {
      fail(path, "uneven shards are over all replicas", "leave zero.shard_group out");
    }
    if (segment.expert_parallel > 1) {
      fail(path, "uneven shards are not for experts that several groups hold",
           "leave state_weight or expert_parallel out");
    }
  }

  void check_experts(const ir::Segment& segment, const std::string& path) {
    const int degree = segment.expert_parallel;
    if (degree < 1) return fail(path, fmt::format("expert_parallel {}", degree));
    const bool named = std::any_of(segment.groups.begin(), segment.groups.end(),
                                   [](const ir::Group& group) { return group.experts != 0; });
    if (degree == 1) {
      if (named) fail(path, "groups name their experts, which none shares", "set expert_parallel");
      return;
    }
    const bool divides = named || workload_.shape.experts % degree == 0;
    if (workload_.shape.experts == 0 || !divides) {
      fail(path, fmt::format("expert_parallel {} cannot split {} experts", degree,
                             workload_.shape.experts));
    }
    if (segment.groups.size() % as_size(degree) != 0) {
      return fail(path,
                  fmt::format("expert_parallel {} for {} groups", degree, segment.groups.size()),
                  "that many consecutive groups hold the experts together");
    }
    for (std::size_t g = 0; g < segment.groups.size(); ++g) {
      const std::size_t first = g - g % as_size(degree);
      if (segment.groups[g].devices.size() == segment.groups[first].devices.size()) continue;
      return fail(fmt::format("{}.groups[{}]", path, g),
                  "groups that share experts must have equally many devices");
    }
    for (std::size_t first = 0; named && first < segment.groups.size(); first += as_size(degree)) {
      check_named_experts(segment, first, path);
    }
  }

  void check_named_experts(const ir::Segment& segment, std::size_t first, const std::string& path) {
    int sum = 0;
    for (std::size_t g = first; g < first + as_size(segment.expert_parallel); ++g) {
      const ir::Group& group = segment.groups[g];
      sum += group.experts;
      const std::string at = fmt::format("{}.groups[{}]", path, g);
      if (group.experts < 1) {
        fail(
            at,
            fmt::format("experts {}, where other groups of the segment name theirs", group.experts),
            "each group must hold at least one");
      }
      if (group.devices.size() > 1) {
        fail(at, "groups that hold unlike numbers of experts must be single devices",
             "they meet at each dispatch, for which what they do in between must be equal");
      }
    }
    if (sum != workload_.shape.experts) {
      fail(path,
           fmt::format("groups {} to {} hold {} experts together, of {}", first,
                       first + as_size(segment.expert_parallel) - 1, sum, workload_.shape.experts));
    }
  }

  /// Chunk by chunk, in a chunk stage by stage, the blocks follow one another.
  void check_blocks(const ir::Pipeline& pipeline, const std::string& path) {
    const ScheduleEntry* schedule = find_schedule(plan_.schedule);
    const auto stages = static_cast<int>(pipeline.stages.size());
    const bool both_ways = schedule != nullptr && schedule->both_ways;
    std::int64_t next = 0;
    for (int chunk = 0; chunk < std::max(1, plan_.virtual_stages); ++chunk) {
      if (chunk > 0 && both_ways) {  // Each chunk has the whole model.
        check_end(next, path);
        next = 0;
      }
      for (int step = 0; step < stages; ++step) {
        const std::size_t s = schedule == nullptr ? step : schedule->stage_at(chunk, step, stages);
        const std::vector<ir::Segment>& segments = pipeline.stages[s].segments;
        bool any = false;
        for (std::size_t i = 0; i < segments.size(); ++i) {
          if (segments[i].virtual_stage != chunk) continue;
          any = true;
          follow(segments[i], fmt::format("{}.stages[{}].segments[{}]", path, s, i), next);
        }
        if (!any && !segments.empty()) {
          fail(fmt::format("{}.stages[{}]", path, s),
               fmt::format("has no segment of virtual stage {}", chunk));
        }
      }
    }
    check_end(next, path);
    if (both_ways) check_both_ways(pipeline, path);
  }

  void check_end(std::int64_t next, const std::string& path) {
    if (next < workload_.size()) {
      fail(path, fmt::format("blocks {} to {} are missing at the end", next, workload_.size() - 1));
    }
  }

  /// What the order of a schedule that feeds micro-batches from both ends asks for.
  void check_both_ways(const ir::Pipeline& pipeline, const std::string& path) {
    const std::string name = ir::name_of(plan_.schedule);
    const auto stages = static_cast<int>(pipeline.stages.size());
    if (stages % 2 != 0) {
      fail(path, fmt::format("{} needs an even number of stages, not {}", name, stages));
    } else if (pipeline.micro_batches % 2 != 0 || pipeline.micro_batches < 2 * stages) {
      fail(path, fmt::format("{} needs an even number of micro-batches, at least two for each of "
                             "{} stages, not {}",
                             name, stages, pipeline.micro_batches));
    }
    for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
      check_held_once(pipeline.stages[s], fmt::format("{}.stages[{}]", path, s));
    }
    if (!pipeline.reroutes.empty()) {
      fail(path + ".reroutes", fmt::format("{} has no place for rerouted micro-batches", name));
    }
    if (job_.gradient_synchronizations != 1) {
      fail("schedule",
           fmt::format("{} completes the gradients of all blocks at the end of a step only", name),
           "set gradient_synchronizations to 1 in the job");
    }
  }

  /// The two chunks of a stage have different blocks.
  void check_held_once(const ir::Stage& stage, const std::string& path) {
    for (std::size_t i = 0; i < stage.segments.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        const ir::Segment& a = stage.segments[j];
        const ir::Segment& b = stage.segments[i];
        if (a.virtual_stage == b.virtual_stage || a.last_block < b.first_block ||
            b.last_block < a.first_block) {
          continue;
        }
        fail(fmt::format("{}.segments[{}]", path, i),
             fmt::format("block {} is in the other virtual stage, too",
                         std::max(a.first_block, b.first_block).value),
             "cut both virtual stages in the same places");
      }
    }
  }

  void follow(const ir::Segment& segment, const std::string& path, std::int64_t& next) {
    const int first = segment.first_block.value, last = segment.last_block.value;
    if (first < 0 || last < first || last >= workload_.size()) {
      fail(path, fmt::format("blocks {}-{}", first, last),
           fmt::format("the workload has blocks 0 to {}", workload_.size() - 1));
    } else if (first > next) {
      fail(path,
           fmt::format("begins at block {}, blocks {} to {} are missing", first, next, first - 1));
    } else if (first < next) {
      fail(path, fmt::format("begins at block {}, which an earlier segment holds", first),
           fmt::format("the next block is {}", next));
    }
    next = std::max<std::int64_t>(next, std::int64_t{last} + 1);
  }

  void check_reroute(std::size_t p, std::size_t r, const std::string& path) {
    const ir::Pipeline& from = plan_.pipelines[p];
    const ir::Reroute& reroute = from.reroutes[r];
    const auto known = [](int index, std::size_t size) {
      return index >= 0 && as_size(index) < size;
    };
    if (!known(reroute.to_pipeline, plan_.pipelines.size()) || as_size(reroute.to_pipeline) == p) {
      return fail(path, fmt::format("to_pipeline {} is no other pipeline", reroute.to_pipeline));
    }
    const ir::Pipeline& to = plan_.pipelines[reroute.to_pipeline];
    if (!known(reroute.stage, from.stages.size()) || !known(reroute.stage, to.stages.size())) {
      return fail(path, fmt::format("no stage {} in both pipelines", reroute.stage));
    }
    if (from.stages.size() != to.stages.size()) {
      fail(path, fmt::format("pipelines of {} and {} stages", from.stages.size(), to.stages.size()),
           "their schedules would wait for each other");
    }
    if (reroute.micro_batch < 0 || reroute.micro_batch >= from.micro_batches) {
      fail(path, fmt::format("micro-batch {} of {}", reroute.micro_batch, from.micro_batches));
    }
    if (from.micro_batch_size != to.micro_batch_size) {
      fail(path, fmt::format("micro-batches of {} samples into a pipeline of {}",
                             from.micro_batch_size, to.micro_batch_size));
    }
    const auto blocks = [&](const ir::Pipeline& pipeline) {
      std::vector<std::pair<BlockId, BlockId>> ranges;
      for (const ir::Segment& segment : pipeline.stages[reroute.stage].segments) {
        ranges.emplace_back(segment.first_block, segment.last_block);
      }
      return ranges;
    };
    if (blocks(from) != blocks(to)) {
      fail(path, fmt::format("stage {} holds other blocks in pipeline {}", reroute.stage,
                             reroute.to_pipeline));
    }
    for (std::size_t other = 0; other < r; ++other) {
      if (from.reroutes[other].stage == reroute.stage &&
          from.reroutes[other].micro_batch == reroute.micro_batch) {
        fail(path, "the same micro-batch skips the same stage twice");
      }
    }
  }

  const ir::Plan& plan_;
  const Cluster& cluster_;
  const Workload& workload_;
  const Job& job_;
  std::vector<PlanDefect> defects_;
  std::vector<std::string> users_;         ///< Groups of first segments of stages.
  IdVector<DeviceId, std::int32_t> user_;  ///< Of those the one that uses a device; -1: none.
  int segments_ = 0;                       ///< So far.
  IdVector<DeviceId, int> seen_in_;        ///< The last of these segments.
  std::map<int, ir::Zero> zero_;           ///< By block: setting of its first replica.
};

}  // namespace

std::string layout_hash(const Cluster& cluster) {
  std::string text = "layout 1";
  for (const Node& node : cluster.nodes) {
    text += '|';
    for (const int type : node.gpu_types) text += cluster.gpu_types[type].name + ";";
  }
  return content_hash(text);
}

bool made_for(const std::string& cluster_hash, const Cluster& cluster) {
  return cluster_hash.empty() || cluster_hash == cluster.hash ||
         cluster_hash == layout_hash(cluster);
}

std::vector<PlanDefect> validate(const ir::Plan& plan, const Cluster& cluster,
                                 const Workload& workload, const Job& job) {
  return Validator(plan, cluster, workload, job).run();
}

}  // namespace orrery::models
