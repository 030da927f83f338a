#include "tests/models_lower/number_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>

#include "models/base/rng.h"
#include "models/sharding/layout.h"

namespace orrery::models {
namespace {

double number(std::uint64_t key) { return Rng(0x5eed).fork(key).uniform() - 0.5; }

/// What one block computes on the rows [begin, end) of A and B that a rank holds.
struct Weights {
  const BlockNumbers& full;  ///< With rows outside [begin, end) empty.
  std::int64_t begin;
  std::int64_t end;
};

std::vector<double> forward_row(const std::vector<double>& x, const Weights& w) {
  std::vector<double> y(x.size(), 0);
  for (std::int64_t j = w.begin; j < w.end; ++j) {
    const auto row = static_cast<std::size_t>(j);
    double h = 0;
    for (std::size_t i = 0; i < x.size(); ++i) h += x[i] * w.full[0][0][i] * w.full[1][row][i];
    for (std::size_t i = 0; i < x.size(); ++i) y[i] += h * w.full[2][row][i];
  }
  return y;
}

/// Adds the gradients of A and B; returns the (partial) gradient of x diag(g).
std::vector<double> backward_row(const std::vector<double>& x, const std::vector<double>& dy,
                                 const Weights& w, BlockNumbers& gradient) {
  std::vector<double> dz(x.size(), 0);
  for (std::int64_t j = w.begin; j < w.end; ++j) {
    const auto row = static_cast<std::size_t>(j);
    double h = 0;
    double dh = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      h += x[i] * w.full[0][0][i] * w.full[1][row][i];
      dh += dy[i] * w.full[2][row][i];
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      gradient[2][row][i] += h * dy[i];
      gradient[1][row][i] += dh * x[i] * w.full[0][0][i];
      dz[i] += dh * w.full[1][row][i];
    }
  }
  return dz;
}

BlockNumbers zeros(int d, int f) {
  const Rows inner(static_cast<std::size_t>(f),
                   std::vector<double>(static_cast<std::size_t>(d), 0));
  return {Rows(1, std::vector<double>(static_cast<std::size_t>(d), 0)), inner, inner};
}

void descend(BlockNumbers& weights, const BlockNumbers& gradient, double rate) {
  for (std::size_t p = 0; p < weights.size(); ++p) {
    for (std::size_t r = 0; r < weights[p].size(); ++r) {
      for (std::size_t i = 0; i < weights[p][r].size(); ++i) {
        weights[p][r][i] -= rate * gradient[p][r][i];
      }
    }
  }
}

}  // namespace

Workload number_workload(int blocks, int d, int f, int tokens_per_sample) {
  Workload workload;
  workload.name = "numbers";
  workload.sequence_length = tokens_per_sample;
  workload.dtype = ir::Dtype::fp64;
  workload.shape.layers = blocks;
  workload.shape.hidden = d;
  for (int b = 0; b < blocks; ++b) {
    Block block;
    block.kind = ir::BlockKind::transformer;
    block.parameters = {{"g", d, 0, false},
                        {"a", std::int64_t{d} * f, f, false},
                        {"b", std::int64_t{d} * f, f, false}};
    block.tensor_collectives = 1;
    block.input_bytes = block.output_bytes = Bytes{8.0 * d * tokens_per_sample};
    block.kept_split = block.input_bytes;
    workload.blocks.push_back(std::move(block));
  }
  return workload;
}

BlockNumbers initial_block(int block, int d, int f) {
  BlockNumbers numbers = zeros(d, f);
  std::uint64_t key = static_cast<std::uint64_t>(block) << 32;
  for (double& g : numbers[0][0]) g = 1.0 + 0.1 * number(++key);
  for (const std::size_t p : {1, 2}) {
    for (std::vector<double>& row : numbers[p]) {
      for (double& value : row) value = number(++key);
    }
  }
  return numbers;
}

std::vector<double> data_row(std::int64_t sample, int token, int d) {
  std::vector<double> row(static_cast<std::size_t>(d));
  const std::uint64_t key = (1ULL << 60) + static_cast<std::uint64_t>(sample) * 4096 +
                            static_cast<std::uint64_t>(token) * 64;
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = number(key + i);
  return row;
}

std::vector<BlockNumbers> reference_step(const Workload& workload, std::int64_t samples, int d,
                                         int f, double rate) {
  std::vector<BlockNumbers> weights;
  std::vector<BlockNumbers> gradients;
  for (int b = 0; b < workload.size(); ++b) {
    weights.push_back(initial_block(b, d, f));
    gradients.push_back(zeros(d, f));
  }
  const bool tied = workload.shape.tied_embeddings;
  if (tied) weights.back()[1] = weights.front()[1];
  for (std::int64_t s = 0; s < samples; ++s) {
    for (int t = 0; t < workload.sequence_length; ++t) {
      Rows x = {data_row(s, t, d)};
      for (int b = 0; b < workload.size(); ++b) {
        x.push_back(forward_row(x.back(), {weights[static_cast<std::size_t>(b)], 0, f}));
      }
      std::vector<double> dy = x.back();
      for (int b = workload.size() - 1; b >= 0; --b) {
        const auto i = static_cast<std::size_t>(b);
        std::vector<double> dz = backward_row(x[i], dy, {weights[i], 0, f}, gradients[i]);
        for (std::size_t k = 0; k < dz.size(); ++k) {
          gradients[i][0][0][k] += dz[k] * x[i][k];
          dz[k] *= weights[i][0][0][k];
        }
        dy = std::move(dz);
      }
    }
  }
  if (tied) {
    for (std::size_t r = 0; r < gradients.front()[1].size(); ++r) {
      for (std::size_t i = 0; i < gradients.front()[1][r].size(); ++i) {
        gradients.front()[1][r][i] += gradients.back()[1][r][i];
      }
    }
    gradients.back()[1] = gradients.front()[1];
  }
  for (std::size_t b = 0; b < weights.size(); ++b) descend(weights[b], gradients[b], rate);
  return weights;
}

namespace {

/// Everything that one rank holds.
struct RankState {
  std::map<int, BlockNumbers> weights;
  std::map<int, BlockNumbers> gradients;
  /// (micro-batch, block, token): activation that leaves the block; block -1 is the data.
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
      if (op.segment == ir::kNone) continue;
      const ir::SegmentInfo& info = segment(op);
      for (int b = info.first_block.value; b <= info.last_block.value; ++b) hold(op.rank, info, b);
    }
  }

  /// Runs one op, or all that meet with it. Returns a problem or nothing.
  std::string run(const std::vector<OpId>& ops) {
    const ir::Op& first = program_.op(ops.front());
    switch (first.kind) {
      case ir::OpKind::forward:
        return compute(ops, false);
      case ir::OpKind::backward:
        return compute(ops, true);
      case ir::OpKind::send:
      case ir::OpKind::recv:
        return transfer(ops);
      case ir::OpKind::collective:
        return collective(ops);
      case ir::OpKind::optimizer_step:
        for (auto& [block, weights] : state(first).weights) {
          descend(weights, state(first).gradients.at(block), rate_);
        }
        return "";
      default:
        return fmt::format("unexpected op {}", name_of(first.kind));
    }
  }

  std::vector<RankState> states_;

 private:
  const ir::SegmentInfo& segment(const ir::Op& op) const {
    return program_.segments[static_cast<std::size_t>(op.segment)];
  }
  RankState& state(const ir::Op& op) { return states_[op.rank.index()]; }

  /// The first parameter matrix of the first and of the last block is one and the same.
  bool tied() const { return workload_.shape.tied_embeddings; }

  Slice rows_of(RankId rank, const ir::SegmentInfo& info) const {
    const int position = program_.ranks[rank.index()].position;
    std::vector<int> owners(static_cast<std::size_t>(info.tensor_parallel));
    std::iota(owners.begin(), owners.end(), 0);
    return split(f_, owners)
        .pieces[static_cast<std::size_t>(position % info.tensor_parallel)]
        .slice;
  }

  void hold(RankId rank, const ir::SegmentInfo& info, int block) {
    RankState& mine = states_[rank.index()];
    if (mine.weights.count(block) > 0) return;
    BlockNumbers weights = initial_block(block, d_, f_);
    if (tied() && block + 1 == workload_.size()) weights[1] = initial_block(0, d_, f_)[1];
    BlockNumbers gradients = zeros(d_, f_);
    const Slice rows = rows_of(rank, info);
    for (const std::size_t p : {1, 2}) {
      for (std::int64_t j = 0; j < f_; ++j) {
        if (rows.begin <= j && j < rows.end) continue;
        weights[p][static_cast<std::size_t>(j)].clear();
        gradients[p][static_cast<std::size_t>(j)].clear();
      }
    }
    mine.weights[block] = std::move(weights);
    mine.gradients[block] = std::move(gradients);
  }

  std::vector<std::int64_t> tokens(const ir::SegmentInfo& info) const {
    std::vector<std::int64_t> all;
    for (std::int64_t t = info.first_sample * workload_.sequence_length;
         t < (info.first_sample + info.samples) * workload_.sequence_length; ++t) {
      all.push_back(t);
    }
    return all;
  }

  /// Whether the op's inner collectives sum over the tensor-parallel group of its device.
  bool sums(const ir::Op& op) const {
    if (op.inner == ir::kNone) return false;
    for (const auto& inner : program_.inner_sets[static_cast<std::size_t>(op.inner)]) {
      if (inner.purpose != ir::Purpose::tensor_parallel ||
          inner.kind != ir::CollectiveKind::all_reduce) {
        continue;
      }
      for (const std::int32_t g : inner.groups) {
        const auto& devices = program_.groups[static_cast<std::size_t>(g)].devices;
        const DeviceId mine = program_.ranks[op.rank.index()].device;
        if (std::find(devices.begin(), devices.end(), mine) != devices.end()) return true;
      }
    }
    return false;
  }

  const std::vector<double>* input(RankState& mine, const ir::SegmentInfo& info, int micro_batch,
                                   int block, std::int64_t token) {
    if (block < 0) {
      const ir::PipelineInfo& pipeline =
          program_.pipelines[static_cast<std::size_t>(info.pipeline)];
      const std::int64_t sample = pipeline.first_sample +
                                  std::int64_t{micro_batch} * pipeline.micro_batch_size +
                                  token / workload_.sequence_length;
      return &(mine.activations[{micro_batch, block, token}] =
                   data_row(sample, static_cast<int>(token % workload_.sequence_length), d_));
    }
    const auto at = mine.activations.find({micro_batch, block, token});
    return at == mine.activations.end() ? nullptr : &at->second;
  }

  std::string compute(const std::vector<OpId>& ops, bool backward) {
    const ir::SegmentInfo& info = segment(program_.op(ops.front()));
    const int first = info.first_block.value;
    const int last = info.last_block.value;
    for (int i = 0; i <= last - first; ++i) {
      const int block = backward ? last - i : first + i;
      for (const std::int64_t token : tokens(info)) {
        const std::string problem = backward ? backward_token(ops, info, block, token)
                                             : forward_token(ops, info, block, token);
        if (!problem.empty()) return problem;
      }
    }
    return "";
  }

  std::string forward_token(const std::vector<OpId>& ops, const ir::SegmentInfo& info, int block,
                            std::int64_t token) {
    std::vector<double> sum(static_cast<std::size_t>(d_), 0);
    std::vector<std::vector<double>> own;
    for (const OpId id : ops) {
      const ir::Op& op = program_.op(id);
      const auto* x = input(state(op), info, op.micro_batch.value, block - 1, token);
      if (x == nullptr) {
        return fmt::format("rank {} lacks the input of block {} token {}", op.rank.value, block,
                           token);
      }
      const Slice rows = rows_of(op.rank, info);
      own.push_back(forward_row(*x, {state(op).weights.at(block), rows.begin, rows.end}));
      for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += own.back()[k];
    }
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const ir::Op& op = program_.op(ops[i]);
      state(op).activations[{op.micro_batch.value, block, token}] = sums(op) ? sum : own[i];
    }
    return "";
  }

  std::string backward_token(const std::vector<OpId>& ops, const ir::SegmentInfo& info, int block,
                             std::int64_t token) {
    std::vector<double> sum(static_cast<std::size_t>(d_), 0);
    std::vector<std::vector<double>> own;
    for (const OpId id : ops) {
      const ir::Op& op = program_.op(id);
      RankState& mine = state(op);
      const std::tuple key{op.micro_batch.value, block, token};
      if (block + 1 == workload_.size()) {
        const auto y = mine.activations.find(key);
        if (y == mine.activations.end()) return "backward before forward";
        mine.activation_gradients[key] = y->second;
      }
      const auto dy = mine.activation_gradients.find(key);
      const auto x = mine.activations.find({op.micro_batch.value, block - 1, token});
      if (dy == mine.activation_gradients.end() || x == mine.activations.end()) {
        return fmt::format("rank {} lacks the output gradient of block {} token {}", op.rank.value,
                           block, token);
      }
      const Slice rows = rows_of(op.rank, info);
      own.push_back(backward_row(x->second, dy->second,
                                 {mine.weights.at(block), rows.begin, rows.end},
                                 mine.gradients.at(block)));
      for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += own.back()[k];
    }
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const ir::Op& op = program_.op(ops[i]);
      RankState& mine = state(op);
      std::vector<double> dz = sums(op) ? sum : own[i];
      const auto& x = mine.activations.at({op.micro_batch.value, block - 1, token});
      for (std::size_t k = 0; k < dz.size(); ++k) {
        mine.gradients.at(block)[0][0][k] += dz[k] * x[k];
        dz[k] *= mine.weights.at(block)[0][0][k];
      }
      mine.activation_gradients[{op.micro_batch.value, block - 1, token}] = std::move(dz);
    }
    return "";
  }

  auto& store(RankState& state, ir::TensorKind tensor) {
    return tensor == ir::TensorKind::activation ? state.activations : state.activation_gradients;
  }

  std::string copy_activations(const std::vector<ir::Region>& regions, int micro_batch, int from,
                               int to) {
    for (const ir::Region& region : regions) {
      auto& source = store(states_[static_cast<std::size_t>(from)], region.tensor);
      auto& target = store(states_[static_cast<std::size_t>(to)], region.tensor);
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
    return index == ir::kNone ? kEmpty : program_.region_sets[static_cast<std::size_t>(index)];
  }

  std::string transfer(const std::vector<OpId>& ops) {
    const ir::Op* send = &program_.op(ops[0]);
    const ir::Op* recv = &program_.op(ops[1]);
    if (send->kind == ir::OpKind::recv) std::swap(send, recv);
    const auto& moved = regions(send->regions);
    if (send->purpose == ir::Purpose::pipeline) {
      return copy_activations(moved, send->micro_batch.value, send->rank.value, recv->rank.value);
    }
    copy_numbers(moved, send->rank.value, recv->rank.value);
    return "";
  }

  std::vector<double*> numbers(int rank, const ir::Region& region) {
    std::vector<double*> out;
    auto& tensors = region.tensor == ir::TensorKind::gradient
                        ? states_[static_cast<std::size_t>(rank)].gradients
                        : states_[static_cast<std::size_t>(rank)].weights;
    for (int b = region.first_block.value; b <= region.last_block.value; ++b) {
      // A rank of the last stage keeps its own copy of the tied matrix.
      const bool copy = tied() && b == 0 && region.parameter == 1 && tensors.count(0) == 0;
      auto& rows =
          tensors.at(copy ? workload_.size() - 1 : b)[static_cast<std::size_t>(region.parameter)];
      for (std::int64_t r = region.begin; r < region.end; ++r) {
        for (double& value : rows[static_cast<std::size_t>(r)]) out.push_back(&value);
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
    for (const DeviceId device : program_.groups[static_cast<std::size_t>(part.group)].devices) {
      out.push_back(rank_of_.at(device));
    }
    return out;
  }

  std::string collective(const std::vector<OpId>& ops) {
    const ir::Op& first = program_.op(ops.front());
    const auto& shape = program_.collective_shapes[static_cast<std::size_t>(
        program_.collectives[static_cast<std::size_t>(first.match)].shape)];
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
          const std::string problem = copy_activations(moved, first.micro_batch.value, from, to);
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
    return "";
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
};

/// Ops that run as one: a transfer, a collective, a team; else the op alone.
std::vector<std::vector<OpId>> units(const ir::Program& program) {
  std::vector<std::vector<OpId>> out;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const ir::Op& op = program.ops[i];
    const OpId id = {static_cast<std::int32_t>(i)};
    std::vector<OpId> unit = {id};
    if (op.kind == ir::OpKind::send || op.kind == ir::OpKind::recv) {
      unit = {id, {op.match}};
    } else if (op.match != ir::kNone) {
      const auto meeting = op.kind == ir::OpKind::collective
                               ? program.collectives[static_cast<std::size_t>(op.match)].members
                               : program.teams[static_cast<std::size_t>(op.match)];
      const auto members = program.members_of(meeting);
      unit.assign(members.begin(), members.end());
    }
    if (*std::min_element(unit.begin(), unit.end()) == id) out.push_back(std::move(unit));
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
    if (a != b && after[static_cast<std::size_t>(a)].insert(b).second) {
      ++waits[static_cast<std::size_t>(b)];
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
  Rng rng(order_seed);
  std::vector<int> ready;
  for (std::size_t u = 0; u < all.size(); ++u) {
    if (waits[u] == 0) ready.push_back(static_cast<int>(u));
  }
  MachineResult result;
  std::size_t done = 0;
  while (!ready.empty() && result.problem.empty()) {
    const auto pick =
        static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(ready.size()) - 1));
    const int unit = ready[pick];
    ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(pick));
    result.problem = machine.run(all[static_cast<std::size_t>(unit)]);
    ++done;
    for (const int next : after[static_cast<std::size_t>(unit)]) {
      if (--waits[static_cast<std::size_t>(next)] == 0) ready.push_back(next);
    }
  }
  if (result.problem.empty() && done != all.size()) {
    result.problem = fmt::format("deadlock: {} of {} units ran", done, all.size());
  }
  for (RankState& state : machine.states_) result.parameters.push_back(std::move(state.weights));
  return result;
}

}  // namespace orrery::models
