#include "tests/models/lower/number_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>
#include <utility>
#include <variant>

#include "models/base/rng.h"
#include "models/ir/names.h"
#include "models/sharding/layout.h"
#include "tests/models/lower/random_plan.h"

namespace orrery::models {
namespace {

/// Everything that one rank holds.
/// More than any pipeline has here.
constexpr int kMostMicroBatches = 1000;

struct RankState {
  std::map<int, BlockNumbers> weights;
  std::map<int, BlockNumbers> gradients;
  /// Sums of earlier rounds of synchronization, to be added to `gradients` in the end.
  std::map<double*, double> earlier;
  /// Gradients that have been synchronized since a pass last added to their block.
  std::set<double*> synchronized;
  /// (batch_key(), block): what the weights' half of a split backward pass has yet to add.
  std::map<std::pair<int, int>, BlockNumbers> postponed;
  /// (batch_key(), block, token): activation that leaves the block; block -1 is the data.
  std::map<std::tuple<int, int, std::int64_t>, std::vector<double>> activations;
  /// The same for the gradient with respect to the activation that leaves the block.
  std::map<std::tuple<int, int, std::int64_t>, std::vector<double>> activation_gradients;
};

class Machine {
 public:
  Machine(const ir::Program& program, const Workload& workload, int d, int f, double rate)
      : program_(program), workload_(workload), d_(d), f_(f), rate_(rate) {
    states_.resize(program.ranks.size());
    for (std::size_t r = 0; r < program.ranks.size(); ++r) {
      rank_of_[program.ranks[r].device] = static_cast<int>(r);
    }
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
      const ir::Op& op = program.ops[i];
      // Only passes name op groups; each member adds up the gradients of weights alone.
      if (op.kind > ir::OpKind::backward_input) continue;
      const ir::SegmentInfo& info = segment(op);
      place(op, info);
      for (int b = info.first_block.value; b <= info.last_block.value; ++b) hold(op.rank, info, b);
    }
  }

  /// Runs one op, or all that meet with it. Returns a problem or nothing.
  std::string run(const std::vector<OpId>& ops) {
    const ir::Op& first = program_.op(ops.front());
    switch (first.kind) {
      case ir::OpKind::forward:
        return segment(first).redundant ? compute_redundantly(ops) : compute(ops, false);
      case ir::OpKind::backward:
      case ir::OpKind::backward_input:
        return compute(ops, true);
      case ir::OpKind::backward_weight:
        return add_postponed(ops);
      case ir::OpKind::send:
      case ir::OpKind::recv:
        return transfer(ops);
      case ir::OpKind::collective:
        return collective(ops);
      case ir::OpKind::optimizer_step:
        for (const auto& [value, sum] : std::exchange(state(first).earlier, {})) *value += sum;
        for (auto& [block, weights] : state(first).weights) {
          descend(weights, state(first).gradients.at(block), rate_);
        }
        return "";
      default:
        return fmt::format("unexpected op {}", name_of(first.kind));
    }
  }

  std::vector<RankState> states_;
  int redundant_passes = 0;

  /// What redundant passes made differs from what the copied stage made.
  std::string check_redundant_outputs() const {
    for (const auto& [key, numbers] : redundant_) {
      bool found = false;
      for (const RankState& state : states_) {
        const auto real = state.activations.find(key);
        if (real == state.activations.end()) continue;
        found = true;
        for (std::size_t i = 0; i < numbers.size(); ++i) {
          if (std::abs(real->second[i] - numbers[i]) < 1e-12) continue;
          return fmt::format("redundant output of block {} token {} is {}, not {}",
                             std::get<1>(key), std::get<2>(key), numbers[i], real->second[i]);
        }
      }
      if (!found) return fmt::format("nobody computes block {} but a copy", std::get<1>(key));
    }
    return "";
  }

  /// Rows of the tied matrix that a rank holds for both ends are one: calls visit(first, last).
  template <class Visit>
  static void for_tied_rows(std::map<int, BlockNumbers>& tensors, int last, Visit visit) {
    if (tensors.count(0) == 0 || tensors.count(last) == 0) return;
    for (std::size_t r = 0; r < tensors.at(0)[1].size(); ++r) {
      std::vector<double>& mine = tensors.at(0)[1][r];
      std::vector<double>& copy = tensors.at(last)[1][r];
      if (!mine.empty() && !copy.empty()) visit(mine, copy);
    }
  }

  void begin_without_gathered_parameters() {
    for_first_gathers([&](const std::vector<ir::Region>& moved, int, int to) {
      for (const ir::Region& region : moved) {
        for (double* value : numbers(to, region)) *value = 1e6;
      }
    });
  }

  void add_first_gathers(std::vector<std::map<int, std::set<int>>>& gathers) const {
    std::vector<std::map<int, std::set<int>>> direct(gathers.size());
    for_first_gathers([&](const std::vector<ir::Region>& moved, int from, int to) {
      for (const ir::Region& region : moved) {
        for (int b = region.first_block.value; b <= region.last_block.value; ++b) {
          direct[to][b].insert(from);
          if (tied() && b == 0) direct[to][workload_.size() - 1].insert(from);
        }
      }
    });
    for (std::size_t rank = 0; rank < direct.size(); ++rank) {
      for (const auto& [block, peers] : direct[rank]) {
        std::set<int>& all = gathers[rank][block];
        std::vector<int> open(peers.begin(), peers.end());
        while (!open.empty()) {
          const int peer = open.back();
          open.pop_back();
          if (!all.insert(peer).second) continue;
          const auto further = direct[peer].find(block);
          if (further == direct[peer].end()) continue;
          open.insert(open.end(), further->second.begin(), further->second.end());
        }
      }
    }
  }

 private:
  const ir::SegmentInfo& segment(const ir::Op& op) const { return program_.segment_of(op); }
  RankState& state(const ir::Op& op) { return states_[op.rank.index()]; }

  static bool has_row(const std::map<int, BlockNumbers>& tensors, int block, std::int64_t row) {
    const auto at = tensors.find(block);
    return at != tensors.end() && !at->second[1][row].empty();
  }

  /// The first parameter matrix of the first and of the last block is one and the same.
  bool tied() const { return workload_.shape.tied_embeddings; }

  int experts() const { return workload_.shape.experts; }

  /// Op groups are in group order, group by group; an op without an op group is alone in its group.
  void place(const ir::Op& op, const ir::SegmentInfo& info) {
    int position = 0;
    if (op.match != ir::kNone) {
      for (const OpId member : program_.members_of(program_.op_groups[op.match])) {
        if (program_.op(member).rank == op.rank) break;
        if (program_.op(member).segment == op.segment) ++position;
      }
    }
    const int first = info.first_block.value;
    position_[{info.pipeline, info.stage, first, op.rank.value}] = position;
    rank_at_[{info.pipeline, info.stage, first, info.group, position}] = op.rank.value;
  }

  int position(const ir::SegmentInfo& info, RankId rank) const {
    return position_.at({info.pipeline, info.stage, info.first_block.value, rank.value});
  }

  /// The rows of the tensor-parallel member, of one expert or of the whole matrix.
  Slice rows_of(int member, const ir::SegmentInfo& info, std::int64_t expert) const {
    const std::int64_t width = experts() > 0 ? f_ / experts() : f_;
    const Slice slice = even_part({0, width}, info.tensor_parallel, member);
    return {expert * width + slice.begin, expert * width + slice.end};
  }

  /// Which of the groups that share the experts holds one.
  int part_of_expert(const ir::SegmentInfo& info, std::int64_t expert) const {
    const int first = info.group / info.expert_parallel * info.expert_parallel;
    int part = 0;
    for (std::int64_t begin = held(info, first); begin <= expert; ++part) {
      begin += held(info, first + part + 1);
    }
    return part;
  }

  /// Experts of a group of the info's stage.
  int held(const ir::SegmentInfo& info, int group) const {
    for (const ir::SegmentInfo& other : program_.segments) {
      if (other.pipeline == info.pipeline && other.stage == info.stage && other.group == group &&
          other.first_block == info.first_block && other.experts > 0) {
        return other.experts;
      }
    }
    return experts() / info.expert_parallel;
  }

  bool holds(int member, const ir::SegmentInfo& info, std::int64_t row) const {
    const std::int64_t expert = experts() > 0 ? row / (f_ / experts()) : 0;
    const Slice rows = rows_of(member, info, expert);
    const bool here =
        experts() == 0 || info.group % info.expert_parallel == part_of_expert(info, expert);
    return here && rows.begin <= row && row < rows.end;
  }

  void hold(RankId rank, const ir::SegmentInfo& info, int block) {
    RankState& mine = states_[rank.index()];
    if (mine.weights.count(block) > 0) return;
    BlockNumbers weights = initial_block(block, d_, f_);
    if (tied() && block + 1 == workload_.size()) weights[1] = initial_block(0, d_, f_)[1];
    BlockNumbers gradients = zeros(d_, f_);
    const int member = position(info, rank) % info.tensor_parallel;
    for (const std::size_t p : {1, 2}) {
      for (std::int64_t j = 0; j < f_; ++j) {
        if (holds(member, info, j)) continue;
        weights[p][j].clear();
        gradients[p][j].clear();
      }
    }
    mine.weights[block] = std::move(weights);
    mine.gradients[block] = std::move(gradients);
  }

  /// Tokens of the micro-batch that one part of the sequence has.
  std::vector<std::int64_t> tokens(const ir::SegmentInfo& info, int part) const {
    const std::int64_t length = workload_.sequence_length;
    const Slice own = even_part({0, length}, info.sequence_degree, part);
    std::vector<std::int64_t> all;
    for (std::int64_t s = info.first_sample; s < info.first_sample + info.samples; ++s) {
      for (std::int64_t t = own.begin; t < own.end; ++t) all.push_back(s * length + t);
    }
    return all;
  }

  /// Tells micro-batches of all pipelines apart: those of several may meet on one rank.
  int batch_key(const ir::Op& op) const {
    const int pipeline =
        op.segment == ir::kNone ? program_.rank_of(op).pipeline : segment(op).pipeline;
    return pipeline * kMostMicroBatches + op.micro_batch.value;
  }

  std::int64_t sample_of(const ir::SegmentInfo& info, int batch, std::int64_t token) const {
    const int micro_batch = batch % kMostMicroBatches;
    const auto& pipeline = program_.pipeline(info.pipeline);
    return pipeline.first_sample + std::int64_t{micro_batch} * pipeline.micro_batch_size +
           token / workload_.sequence_length;
  }

  /// How often the op's inner collectives of a purpose and kind run among exactly the devices of
  /// `members`, in their order.
  int count_inner(const ir::Op& op, ir::Purpose purpose, ir::CollectiveKind kind,
                  const std::vector<DeviceId>& members) const {
    int count = 0;
    if (op.inner == ir::kNone) return count;
    for (const auto& inner : program_.inner_sets[op.inner]) {
      if (inner.purpose != purpose || inner.kind != kind) continue;
      for (const std::int32_t g : inner.groups) {
        if (program_.group(g).devices == members) count += inner.count;
      }
    }
    return count;
  }

  DeviceId device_of(int rank) const { return program_.ranks[rank].device; }

  /// Passes that an op makes over its blocks, each with its own inner collectives.
  static int passes(const ir::SegmentInfo& info, bool backward) {
    return backward && info.recompute == ir::Recompute::full ? 2 : 1;
  }

  /// Whether the op sums over its tensor-parallel members: an all-reduce per block, or with
  /// Megatron's sequence parallelism a reduce-scatter and an all-gather.
  bool sums(const ir::Op& op, const std::vector<OpId>& members) const {
    const ir::SegmentInfo& info = segment(op);
    std::vector<DeviceId> devices;
    for (const OpId id : members) devices.push_back(device_of(program_.op(id).rank.value));
    const int wanted = (info.last_block.value - info.first_block.value + 1) *
                       passes(info, op.kind != ir::OpKind::forward);
    const auto runs = [&](ir::CollectiveKind kind) {
      return count_inner(op, ir::Purpose::tensor_parallel, kind, devices);
    };
    if (info.sequence == ir::SequenceParallelism::megatron) {
      return runs(ir::CollectiveKind::all_reduce) == 0 &&
             runs(ir::CollectiveKind::reduce_scatter) == wanted &&
             runs(ir::CollectiveKind::all_gather) == wanted;
    }
    return runs(ir::CollectiveKind::all_reduce) == wanted &&
           runs(ir::CollectiveKind::reduce_scatter) == 0;
  }

  /// Members of a tensor-parallel group (of one part of the sequence): what they do with a token.
  struct OpGroup {
    std::vector<OpId> ops;  ///< In tensor-parallel order.
    const ir::SegmentInfo& info;
    int part = 0;
    bool sums = false;
  };

  /// Members that hold the token's activations outside of the products: all, or with Megatron's
  /// sequence parallelism one.
  std::vector<std::size_t> holders(const OpGroup& op_group, std::int64_t token) const {
    std::vector<std::size_t> all(op_group.ops.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    if (op_group.info.sequence != ir::SequenceParallelism::megatron) return all;
    for (const std::size_t i : all) {
      const Slice own =
          even_part({0, workload_.sequence_length}, static_cast<std::int64_t>(all.size()),
                    static_cast<std::int64_t>(i));
      const std::int64_t t = token % workload_.sequence_length;
      if (own.begin <= t && t < own.end) return {i};
    }
    return {};
  }

  /// The rank whose rows member `i` uses for a token: its own, or its partner's that has the expert
  /// if dispatch and combine reach it.
  std::variant<int, std::string> worker(const OpGroup& op_group, std::size_t i, std::int64_t expert,
                                        bool backward) const {
    const ir::Op& op = program_.op(op_group.ops[i]);
    const ir::SegmentInfo& info = op_group.info;
    if (info.expert_parallel < 2) return op.rank.value;
    const int first = info.group / info.expert_parallel * info.expert_parallel;
    const int place = position(info, op.rank);
    std::vector<DeviceId> devices;
    std::vector<int> ranks;
    for (int g = first; g < first + info.expert_parallel; ++g) {
      ranks.push_back(rank_at_.at({info.pipeline, info.stage, info.first_block.value, g, place}));
      devices.push_back(device_of(ranks.back()));
    }
    const int wanted =
        2 * (info.last_block.value - info.first_block.value + 1) * passes(info, backward);
    if (count_inner(op, ir::Purpose::expert_parallel, ir::CollectiveKind::all_to_all, devices) !=
        wanted) {
      return fmt::format("rank {} does not dispatch and combine", op.rank.value);
    }
    return ranks[part_of_expert(info, expert)];
  }

  const std::vector<double>* input(RankState& mine, const ir::SegmentInfo& info, int micro_batch,
                                   int block, std::int64_t token) {
    if (block < 0) {
      return &(mine.activations[{micro_batch, block, token}] =
                   data_row(sample_of(info, micro_batch, token),
                            static_cast<int>(token % workload_.sequence_length), d_));
    }
    const auto at = mine.activations.find({micro_batch, block, token});
    return at == mine.activations.end() ? nullptr : &at->second;
  }

  /// Ops of one tensor-parallel group each.
  std::vector<OpGroup> op_groups(const std::vector<OpId>& ops) {
    std::map<std::pair<int, int>, std::map<int, OpId>> by_part;
    for (const OpId id : ops) {
      const ir::SegmentInfo& info = segment(program_.op(id));
      const int place = position(info, program_.op(id).rank);
      by_part[{info.group, place / info.tensor_parallel}][place] = id;
    }
    std::vector<OpGroup> out;
    for (const auto& [key, members] : by_part) {
      OpGroup op_group = {{}, segment(program_.op(members.begin()->second)), key.second, false};
      for (const auto& [place, id] : members) op_group.ops.push_back(id);
      op_group.sums =
          op_group.ops.size() == 1 || sums(program_.op(op_group.ops.front()), op_group.ops);
      out.push_back(std::move(op_group));
    }
    return out;
  }

  /// The ranks' activations stay what they were: nothing may rest on a redundant pass.
  std::string compute_redundantly(const std::vector<OpId>& ops) {
    std::vector<std::pair<RankState*, decltype(RankState::activations)>> before;
    for (const OpId id : ops)
      before.emplace_back(&state(program_.op(id)), decltype(RankState::activations)());
    for (auto& [at, activations] : before) activations = at->activations;
    std::string problem = compute(ops, false);
    const int batch = batch_key(program_.op(ops.front()));
    const ir::SegmentInfo& info = segment(program_.op(ops.front()));
    for (auto& [at, activations] : before) {
      for (const auto& [key, numbers] : at->activations) {
        const auto& [of_batch, block, token] = key;
        if (of_batch == batch && info.first_block.value <= block &&
            block <= info.last_block.value) {
          redundant_[key] = numbers;
        }
      }
      at->activations = std::move(activations);
    }
    ++redundant_passes;
    return problem;
  }

  std::string compute(const std::vector<OpId>& ops, bool backward) {
    for (const OpGroup& op_group : op_groups(ops)) {
      const int first = op_group.info.first_block.value;
      const int last = op_group.info.last_block.value;
      for (int i = 0; i <= last - first; ++i) {
        const int block = backward ? last - i : first + i;
        for (const std::int64_t token : tokens(op_group.info, op_group.part)) {
          const std::string problem = backward ? backward_token(op_group, block, token)
                                               : forward_token(op_group, block, token);
          if (!problem.empty()) return problem;
        }
      }
    }
    if (backward) join_tied_gradients();
    return "";
  }

  void join_tied_gradients() {
    if (!tied()) return;
    for (RankState& state : states_) {
      for_tied_rows(state.gradients, workload_.size() - 1,
                    [](std::vector<double>& first, std::vector<double>& last) {
                      for (std::size_t i = 0; i < first.size(); ++i) first[i] += last[i];
                      std::fill(last.begin(), last.end(), 0.0);
                    });
    }
  }

  /// A pass is about to add to gradients of the block: those that have been synchronized begin a
  /// new round. What a pass over one end adds to the tied matrix reaches the other end that the
  /// rank holds.
  void begin_round(RankState& state, int block) {
    if (state.synchronized.empty()) return;
    for (Rows& rows : state.gradients.at(block)) begin_round(state, rows);
    const int last = workload_.size() - 1;
    if (!tied() || (block != 0 && block != last)) return;
    const auto other = state.gradients.find(last - block);
    if (other != state.gradients.end()) begin_round(state, other->second[1]);
  }

  static void begin_round(RankState& state, Rows& rows) {
    for (std::vector<double>& row : rows) {
      for (double& value : row) {
        if (state.synchronized.erase(&value) == 0) continue;
        state.earlier[&value] += value;
        value = 0;
      }
    }
  }

  /// Where a backward pass adds the gradients of a rank's weights.
  BlockNumbers& sink(const OpGroup& op_group, RankState& state, int block) {
    const ir::Op& op = program_.op(op_group.ops.front());
    if (op.kind == ir::OpKind::backward) {
      begin_round(state, block);
      return state.gradients.at(block);
    }
    const auto [place, added] =
        state.postponed.try_emplace({batch_key(op), block}, state.gradients.at(block));
    if (added) {
      for (Rows& rows : place->second) {
        for (std::vector<double>& row : rows) std::fill(row.begin(), row.end(), 0.0);
      }
    }
    return place->second;
  }

  /// Every device of the group adds what it put aside; a micro-batch that it put nothing aside for
  /// had no token for its experts.
  std::string add_postponed(const std::vector<OpId>& ops) {
    for (const OpId id : ops) {
      const ir::Op& op = program_.op(id);
      const ir::SegmentInfo& info = segment(op);
      for (int b = info.first_block.value; b <= info.last_block.value; ++b) {
        const auto place = state(op).postponed.find({batch_key(op), b});
        if (place == state(op).postponed.end()) {
          if (experts() > 0) continue;
          return fmt::format("rank {} has no gradients of block {} to add", op.rank.value, b);
        }
        begin_round(state(op), b);
        BlockNumbers& gradients = state(op).gradients.at(b);
        for (std::size_t p = 0; p < gradients.size(); ++p) {
          for (std::size_t r = 0; r < gradients[p].size(); ++r) {
            for (std::size_t i = 0; i < gradients[p][r].size(); ++i) {
              gradients[p][r][i] += place->second[p][r][i];
            }
          }
        }
        state(op).postponed.erase(place);
      }
    }
    join_tied_gradients();
    return "";
  }

  struct Product {
    std::vector<double> whole;             ///< Summed over the members.
    std::vector<std::vector<double>> own;  ///< By member.
  };

  /// Runs one block's products for a token on all members; `dy` is null in the forward pass.
  std::variant<Product, std::string> products(const OpGroup& op_group, int block,
                                              std::int64_t token, const std::vector<double>& x,
                                              const std::vector<double>* dy) {
    const int micro_batch = batch_key(program_.op(op_group.ops.front()));
    const Slice active = active_rows(workload_, sample_of(op_group.info, micro_batch, token),
                                     token % workload_.sequence_length, f_);
    const std::int64_t expert = experts() > 0 ? active.begin / active.size() : 0;
    Product out;
    out.whole.resize(d_, 0);
    for (std::size_t i = 0; i < op_group.ops.size(); ++i) {
      const auto rank = worker(op_group, i, expert, dy != nullptr);
      if (const auto* problem = std::get_if<std::string>(&rank)) return *problem;
      RankState& at = states_[std::get<int>(rank)];
      const Slice rows = rows_of(static_cast<int>(i), op_group.info, expert);
      // Norm gains are replicated: the token is scaled before it is dispatched.
      const Weights weights = {at.weights.at(block), rows.begin, rows.end};
      out.own.push_back(dy == nullptr ? forward_row(x, weights)
                                      : backward_row(x, *dy, weights, sink(op_group, at, block)));
      for (std::size_t k = 0; k < out.whole.size(); ++k) out.whole[k] += out.own.back()[k];
    }
    return out;
  }

  std::string forward_token(const OpGroup& op_group, int block, std::int64_t token) {
    const auto at = holders(op_group, token);
    const int micro_batch = batch_key(program_.op(op_group.ops.front()));
    std::vector<double> x;
    for (const std::size_t i : at) {
      const ir::Op& op = program_.op(op_group.ops[i]);
      const auto* own = input(state(op), op_group.info, micro_batch, block - 1, token);
      if (own == nullptr) {
        return fmt::format("rank {} lacks the input of block {} token {}", op.rank.value, block,
                           token);
      }
      if (x.empty()) x = *own;
    }
    auto result = products(op_group, block, token, x, nullptr);
    if (const auto* problem = std::get_if<std::string>(&result)) return *problem;
    const Product& y = std::get<Product>(result);
    for (const std::size_t i : at) {
      state(program_.op(op_group.ops[i])).activations[{micro_batch, block, token}] =
          op_group.sums ? y.whole : y.own[i];
    }
    return "";
  }

  std::string backward_token(const OpGroup& op_group, int block, std::int64_t token) {
    const auto at = holders(op_group, token);
    const std::tuple key{batch_key(program_.op(op_group.ops.front())), block, token};
    const std::tuple below{std::get<0>(key), block - 1, token};
    std::vector<double> x;
    std::vector<double> dy;
    for (const std::size_t i : at) {
      RankState& mine = state(program_.op(op_group.ops[i]));
      if (block + 1 == workload_.size()) {
        const auto y = mine.activations.find(key);
        if (y == mine.activations.end()) return "backward before forward";
        mine.activation_gradients[key] = y->second;
      }
      const auto own_dy = mine.activation_gradients.find(key);
      const auto own_x = mine.activations.find(below);
      if (own_dy == mine.activation_gradients.end() || own_x == mine.activations.end()) {
        return fmt::format("rank {} lacks the output gradient of block {} token {}",
                           program_.op(op_group.ops[i]).rank.value, block, token);
      }
      if (x.empty()) {
        x = own_x->second;
        dy = own_dy->second;
      }
    }
    auto result = products(op_group, block, token, x, &dy);
    if (const auto* problem = std::get_if<std::string>(&result)) return *problem;
    const Product& product = std::get<Product>(result);
    for (const std::size_t i : at) {
      RankState& mine = state(program_.op(op_group.ops[i]));
      std::vector<double> dz = op_group.sums ? product.whole : product.own[i];
      for (std::size_t k = 0; k < dz.size(); ++k) {
        sink(op_group, mine, block)[0][0][k] += dz[k] * x[k];
        dz[k] *= mine.weights.at(block)[0][0][k];
      }
      mine.activation_gradients[below] = std::move(dz);
    }
    return "";
  }

  auto& store(RankState& state, ir::TensorKind tensor) {
    return tensor == ir::TensorKind::activation ? state.activations : state.activation_gradients;
  }

  std::string copy_activations(const std::vector<ir::Region>& regions, int micro_batch, int from,
                               int to) {
    for (const ir::Region& region : regions) {
      auto& source = store(states_[from], region.tensor);
      auto& target = store(states_[to], region.tensor);
      for (std::int64_t t = region.begin; t < region.end; ++t) {
        const auto at = source.find({micro_batch, region.first_block.value, t});
        if (at == source.end()) {
          return fmt::format("rank {} sends block {} token {} that it lacks", from,
                             region.first_block.value, t);
        }
        target[{micro_batch, region.first_block.value, t}] = at->second;
      }
    }
    return "";
  }

  const std::vector<ir::Region>& regions(std::int32_t index) const {
    static const std::vector<ir::Region> kEmpty;
    return index == ir::kNone ? kEmpty : program_.region_sets[index];
  }

  std::string transfer(const std::vector<OpId>& ops) {
    const ir::Op* send = &program_.op(ops[0]);
    const ir::Op* recv = &program_.op(ops[1]);
    if (send->kind == ir::OpKind::recv) std::swap(send, recv);
    const auto& moved = regions(send->regions);
    if (send->purpose == ir::Purpose::pipeline) {
      return copy_activations(moved, batch_key(*send), send->rank.value, recv->rank.value);
    }
    if (send->purpose == ir::Purpose::state) join_rounds(moved, *send);
    copy_numbers(moved, send->rank.value, recv->rank.value);
    if (send->purpose == ir::Purpose::data_parallel) {
      for (const ir::Op* end : {send, recv}) note_synchronized(moved, end->rank.value);
    }
    return "";
  }

  std::vector<double*> numbers(int rank, const ir::Region& region) {
    std::vector<double*> out;
    auto& tensors =
        region.tensor == ir::TensorKind::gradient ? states_[rank].gradients : states_[rank].weights;
    for (int b = region.first_block.value; b <= region.last_block.value; ++b) {
      for (std::int64_t r = region.begin; r < region.end; ++r) {
        // A rank of the last stage keeps its own copy of the tied matrix.
        const bool copy = tied() && b == 0 && region.parameter == 1 && !has_row(tensors, 0, r);
        auto& rows = tensors.at(copy ? workload_.size() - 1 : b)[region.parameter];
        for (double& value : rows[r]) out.push_back(&value);
      }
    }
    return out;
  }

  void copy_numbers(const std::vector<ir::Region>& all, int from, int to) {
    for (const ir::Region& region : all) {
      const auto source = numbers(from, region);
      const auto target = numbers(to, region);
      for (std::size_t i = 0; i < source.size(); ++i) *target.at(i) = *source[i];
    }
  }

  std::vector<int> ranks(const ir::CollectiveShape::Part& part) const {
    std::vector<int> out;
    for (const DeviceId device : program_.group(part.group).devices) {
      out.push_back(rank_of_.at(device));
    }
    return out;
  }

  /// Calls visit(regions, from, to) for all that a gather of parameters in front of the forward
  /// passes moves between ranks.
  template <class Visit>
  void for_first_gathers(const Visit& visit) const {
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      const ir::Op& op = program_.ops[i];
      if (!is_first_gather(program_, {static_cast<std::int32_t>(i)})) continue;
      if (op.kind == ir::OpKind::recv) {
        const ir::Transfer& path = program_.transfer_sets[op.transfers].front();
        visit(regions(op.regions), rank_of_.at(path.source), op.rank.value);
      } else if (op.kind == ir::OpKind::collective) {
        const auto& shape = program_.collective_shapes[program_.collectives[op.match].shape];
        const auto& part = shape.parts.front();
        const std::vector<int> members = ranks(part);
        const bool gather = shape.kind == ir::CollectiveKind::all_gather;
        for (std::size_t m = 0; m < (gather ? members.size() : 1); ++m) {
          if (members[m] == op.rank.value) continue;
          visit(gather ? part.member_regions.at(m) : regions(shape.regions), members[m],
                op.rank.value);
        }
      }
    }
  }

  std::string collective(const std::vector<OpId>& ops) {
    const ir::Op& first = program_.op(ops.front());
    const auto& shape = program_.collective_shapes[program_.collectives[first.match].shape];
    const auto& part = shape.parts.front();
    const std::vector<int> members = ranks(part);
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (shape.kind == ir::CollectiveKind::broadcast && i == 0) continue;
      const bool gather = shape.kind == ir::CollectiveKind::all_gather;
      const int from = gather ? members[i] : members[0];
      const auto& moved = gather ? part.member_regions.at(i) : regions(shape.regions);
      if (shape.kind != ir::CollectiveKind::broadcast && !gather) continue;
      for (const int to : gather ? members : std::vector<int>{members[i]}) {
        if (to == from) continue;
        if (shape.purpose == ir::Purpose::pipeline) {
          const std::string problem = copy_activations(moved, batch_key(first), from, to);
          if (!problem.empty()) return problem;
        } else {
          copy_numbers(moved, from, to);
        }
      }
    }
    if (shape.kind == ir::CollectiveKind::all_reduce) {
      for (const ir::Region& region : regions(shape.regions)) reduce(region, members, members);
    } else if (shape.kind == ir::CollectiveKind::reduce_scatter) {
      for (std::size_t i = 0; i < members.size(); ++i) {
        for (const ir::Region& region : part.member_regions.at(i)) {
          reduce(region, members, {members[i]});
        }
      }
    }
    if (shape.purpose == ir::Purpose::data_parallel) {
      for (const int member : members) {
        note_synchronized(regions(shape.regions), member);
        for (const auto& own : part.member_regions) note_synchronized(own, member);
      }
    }
    return "";
  }

  /// What goes to a redundant copy are the gradients of the step.
  void join_rounds(const std::vector<ir::Region>& all, const ir::Op& send) {
    auto& earlier = state(send).earlier;
    for (const ir::Region& region : all) {
      for (double* value : numbers(send.rank.value, region)) {
        const auto sum = earlier.find(value);
        if (sum == earlier.end()) continue;
        *value += sum->second;
        earlier.erase(sum);
      }
    }
  }

  void note_synchronized(const std::vector<ir::Region>& all, int rank) {
    RankState& mine = states_[rank];
    for (const ir::Region& region : all) {
      for (double* value : numbers(rank, region)) mine.synchronized.insert(value);
    }
  }

  void reduce(const ir::Region& region, const std::vector<int>& from, const std::vector<int>& to) {
    std::vector<double> sum(numbers(from[0], region).size(), 0);
    for (const int rank : from) {
      const auto values = numbers(rank, region);
      for (std::size_t i = 0; i < values.size(); ++i) sum[i] += *values[i];
    }
    for (const int rank : to) {
      const auto values = numbers(rank, region);
      for (std::size_t i = 0; i < values.size(); ++i) *values[i] = sum[i];
    }
  }

  const ir::Program& program_;
  const Workload& workload_;
  int d_;
  int f_;
  double rate_;
  std::map<DeviceId, int> rank_of_;
  /// As RankState::activations: what redundant passes made.
  std::map<std::tuple<int, int, std::int64_t>, std::vector<double>> redundant_;
  /// Pipeline, stage, first block, rank -> position in the segment's group.
  std::map<std::tuple<int, int, int, int>, int> position_;
  /// Pipeline, stage, first block, group, position -> rank.
  std::map<std::tuple<int, int, int, int, int>, int> rank_at_;
};

/// Groups that hold the experts together run their passes together: tokens go out and come back.
std::vector<std::vector<OpId>> join_experts(const ir::Program& program,
                                            std::vector<std::vector<OpId>> units) {
  std::map<std::vector<int>, std::size_t> first;
  std::vector<std::vector<OpId>> out;
  for (std::vector<OpId>& unit : units) {
    const ir::Op& op = program.op(unit.front());
    if (op.segment != ir::kNone && program.segment_of(op).expert_parallel > 1) {
      const auto& info = program.segment_of(op);
      const std::vector<int> key = {info.pipeline,          info.stage,
                                    info.first_block.value, static_cast<int>(op.kind),
                                    op.micro_batch.value,   info.group / info.expert_parallel};
      const auto [at, fresh] = first.try_emplace(key, out.size());
      if (!fresh) {
        out[at->second].insert(out[at->second].end(), unit.begin(), unit.end());
        continue;
      }
    }
    out.push_back(std::move(unit));
  }
  return out;
}

/// Ops that run as one: a transfer, a collective, an op group; else the op alone.
std::vector<std::vector<OpId>> units(const ir::Program& program) {
  std::vector<std::vector<OpId>> out;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const ir::Op& op = program.ops[i];
    const OpId id = {static_cast<std::int32_t>(i)};
    std::vector<OpId> unit = {id};
    if (op.kind == ir::OpKind::send || op.kind == ir::OpKind::recv) {
      unit = {id, {op.match}};
    } else if (op.match != ir::kNone) {
      const auto rendezvous = op.kind == ir::OpKind::collective
                                  ? program.collectives[op.match].members
                                  : program.op_groups[op.match];
      const auto members = program.members_of(rendezvous);
      unit.assign(members.begin(), members.end());
    }
    if (*std::min_element(unit.begin(), unit.end()) == id) out.push_back(std::move(unit));
  }
  return join_experts(program, std::move(out));
}

/// Devices from which `own` can have something by the gathers of an inner set, directly or through
/// others.
std::set<DeviceId> gathered_from(const ir::Program& program, std::int32_t inner_set, DeviceId own) {
  std::set<DeviceId> reached = {own};
  std::size_t before = 0;
  while (reached.size() > before) {
    before = reached.size();
    for (const auto& inner : program.inner_sets[inner_set]) {
      if (inner.purpose != ir::Purpose::zero) continue;
      for (const std::int32_t g : inner.groups) {
        const auto& devices = program.group(g).devices;
        const bool meets = std::any_of(devices.begin(), devices.end(),
                                       [&](DeviceId device) { return reached.count(device) > 0; });
        if (meets) reached.insert(devices.begin(), devices.end());
      }
    }
  }
  return reached;
}

/// Ranks whose parameters of a block a rank gathers inside its passes over it.
std::vector<std::map<int, std::set<int>>> gathers(const ir::Program& program) {
  std::map<DeviceId, int> rank_of;
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    rank_of[program.ranks[r].device] = static_cast<int>(r);
  }
  std::vector<std::map<int, std::set<int>>> out(program.ranks.size());
  std::set<std::pair<RankId, std::int32_t>> seen;  // Micro-batches are alike.
  for (const ir::Op& op : program.ops) {
    if (op.inner == ir::kNone || op.kind != ir::OpKind::forward) continue;
    if (!seen.insert({op.rank, op.segment}).second) continue;
    const auto& info = program.segment_of(op);
    const auto devices = gathered_from(program, op.inner, program.rank_of(op).device);
    for (int b = info.first_block.value; b <= info.last_block.value; ++b) {
      for (const DeviceId device : devices) out[op.rank.index()][b].insert(rank_of.at(device));
    }
  }
  return out;
}

}  // namespace

MachineResult run_program(const ir::Program& program, const Workload& workload, int d, int f,
                          double rate, std::uint64_t order_seed) {
  Machine machine(program, workload, d, f, rate);
  const auto all = units(program);
  std::vector<int> unit_of(program.ops.size());
  for (std::size_t u = 0; u < all.size(); ++u) {
    for (const OpId op : all[u]) unit_of[op.index()] = static_cast<int>(u);
  }
  std::vector<std::set<int>> after(all.size());
  std::vector<int> waits(all.size(), 0);
  const auto edge = [&](OpId before, OpId op) {
    const int a = unit_of[before.index()];
    const int b = unit_of[op.index()];
    if (a != b && after[a].insert(b).second) {
      ++waits[b];
    }
  };
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const OpId id = {static_cast<std::int32_t>(i)};
    for (const OpId before : program.dependencies_of(id)) edge(before, id);
    const bool serial = program.ops[i].stream != ir::Stream::p2p;
    if (serial && i > 0 && program.ops[i - 1].rank == program.ops[i].rank &&
        program.ops[i - 1].stream == program.ops[i].stream) {
      edge({id.value - 1}, id);
    }
  }
  machine.begin_without_gathered_parameters();
  Rng rng(order_seed);
  std::vector<int> ready;
  for (std::size_t u = 0; u < all.size(); ++u) {
    if (waits[u] == 0) ready.push_back(static_cast<int>(u));
  }
  MachineResult result;
  std::size_t done = 0;
  while (!ready.empty() && result.problem.empty()) {
    const std::size_t pick = rng.integer(0, static_cast<std::int64_t>(ready.size()) - 1);
    const int unit = ready[pick];
    ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(pick));
    result.problem = machine.run(all[unit]);
    ++done;
    for (const int next : after[unit]) {
      if (--waits[next] == 0) ready.push_back(next);
    }
  }
  if (result.problem.empty() && done != all.size()) {
    result.problem = fmt::format("deadlock: {} of {} units ran", done, all.size());
  }
  if (result.problem.empty()) result.problem = machine.check_redundant_outputs();
  result.redundant_passes = machine.redundant_passes;
  result.gathers = gathers(program);
  machine.add_first_gathers(result.gathers);
  for (RankState& state : machine.states_) {
    if (workload.shape.tied_embeddings) {
      Machine::for_tied_rows(state.weights, workload.size() - 1,
                             [](auto& first, auto& last) { last = first; });
    }
    result.parameters.push_back(std::move(state.weights));
  }
  return result;
}

}  // namespace orrery::models
