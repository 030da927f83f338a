#include "tests/executor/model/shard_runner.h"

#include <algorithm>
#include <barrier>
#include <memory>
#include <thread>

#include "models/base/rng.h"
#include "tests/executor/compute/host_tensor.h"

namespace orrery::executor {
namespace {

/// What the members of a group have in common.
struct Rendezvous {
  explicit Rendezvous(int degree) : barrier(degree), values(static_cast<std::size_t>(degree)) {}
  std::barrier<> barrier;
  std::vector<std::vector<double>> values;
};

/// Sums in the order of the members, so that all get equal bits.
class ThreadTensorGroup : public TensorGroup {
 public:
  ThreadTensorGroup(Rendezvous& rendezvous, Backend& backend, int position, int skipped)
      : meeting_(rendezvous), backend_(backend), position_(position), skipped_(skipped) {}
  int degree() const override { return static_cast<int>(meeting_.values.size()); }
  int position() const override { return position_; }
  void all_reduce(const Tensor& tensor) override { meet(tensor, false); }
  void all_reduce_maximum(const Tensor& tensor) override { meet(tensor, true); }

  void set_pass(const std::string& pass) { pass_ = pass; }
  std::vector<Sum> sums;

 private:
  void meet(const Tensor& tensor, bool maximum) {
    sums.push_back({pass_, tensor.elements, maximum, tensor.wide});
    if (static_cast<int>(sums.size()) - 1 == skipped_) return;
    meeting_.values[static_cast<std::size_t>(position_)] = to_numbers(backend_, tensor);
    meeting_.barrier.arrive_and_wait();
    std::vector<double> out = meeting_.values[0];
    for (std::size_t member = 1; member < meeting_.values.size(); ++member) {
      for (std::size_t i = 0; i < out.size(); ++i) {
        const double other = meeting_.values[member][i];
        out[i] = maximum ? std::max(out[i], other) : out[i] + other;
      }
    }
    meeting_.barrier.arrive_and_wait();
    backend_.copy(to_tensor(backend_, out, tensor.wide), tensor);
  }

  Rendezvous& meeting_;
  Backend& backend_;
  int position_;
  int skipped_;
  std::string pass_;
};

class Member {
 public:
  Member(const ir::ProgramHeader& header, const ShardRun& how, Rendezvous& rendezvous, int position)
      : header_(header),
        how_(how),
        backend_(make_cpu_backend(how.precision, "eigen")),
        shard_(*backend_, header, blocks(position)),
        group_(rendezvous, *backend_, position, how.skipped_sum) {
    if (how_.stages.empty()) {
      how_.stages = {{0, static_cast<int>(header.blocks.size()) - 1}};
    }
  }

  void run(const reference::Weights& weights, const std::vector<Tokens>& batches) {
    shard_.initialize();
    for (std::size_t b = 0; b < weights.size(); ++b) {
      auto& parameters = shard_.parameters({static_cast<std::int32_t>(b)});
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        const HeldParameter& held = parameters[p];
        if (held.tied) continue;
        const auto first = weights[b][p].begin();
        backend_->copy(to_tensor(*backend_, {first + held.begin * held.info.unit,
                                             first + held.end * held.info.unit}),
                       held.weight);
      }
    }
    for (const Tokens& tokens : batches) step(tokens);
  }

  ModelShard& shard() { return shard_; }
  Backend& backend() { return *backend_; }
  const std::vector<Sum>& sums() const { return group_.sums; }

  std::vector<double> losses;
  std::vector<std::size_t> kept_bytes;
  std::size_t kept_at_end = 0;

 private:
  std::vector<ModelShard::HeldBlock> blocks(int position) const {
    std::vector<ModelShard::HeldBlock> all;
    for (std::int32_t b = 0; b < static_cast<std::int32_t>(header_.blocks.size()); ++b) {
      all.push_back({{b}, how_.degree, position});
    }
    return all;
  }

  void step(const Tokens& tokens) {
    const MicroBatch batch = {tokens.samples, tokens.tokens, tokens.targets};
    std::vector<KeptPointer> kept;
    Tensor x;
    std::vector<double> of_batch;
    group_.set_pass("forward");
    for (const auto& [first, last] : how_.stages) {
      Tensor output;
      kept.push_back(
          shard_.forward({first}, {last}, batch, x, how_.recompute, group_, output, of_batch));
      kept_bytes.push_back(kept.back()->bytes());
      x = output;
    }
    losses.insert(losses.end(), of_batch.begin(), of_batch.end());
    group_.set_pass("backward");
    Tensor dy;
    for (std::size_t s = how_.stages.size(); s > 0; --s) {
      const auto [first, last] = how_.stages[s - 1];
      Tensor dx;
      shard_.backward(how_.split_backward ? ir::Pass::backward_input : ir::Pass::backward, {first},
                      {last}, batch, kept[s - 1], dy, how_.scale, group_, dx);
      dy = dx;
    }
    if (how_.split_backward) {
      for (std::size_t s = 0; s < how_.stages.size(); ++s) {
        const auto [first, last] = how_.stages[s];
        Tensor none;
        shard_.backward(ir::Pass::backward_weight, {first}, {last}, batch, kept[s], {}, how_.scale,
                        group_, none);
      }
    }
    for (const KeptPointer& one : kept) kept_at_end += one->bytes();
  }

  ir::ProgramHeader header_;
  ShardRun how_;
  std::unique_ptr<Backend> backend_;
  ModelShard shard_;
  ThreadTensorGroup group_;
};

/// Puts gradients of slices together. Copies of key-value heads add up; norms must be equal.
void put_together(std::vector<std::unique_ptr<Member>>& members, const reference::Weights& weights,
                  ShardResult& out) {
  for (std::size_t b = 0; b < weights.size(); ++b) {
    out.whole.gradients.emplace_back();
    for (std::size_t p = 0; p < weights[b].size(); ++p) {
      std::vector<double> whole(weights[b][p].size(), 0);
      for (std::size_t m = 0; m < members.size(); ++m) {
        const HeldParameter& held =
            members[m]->shard().parameters({static_cast<std::int32_t>(b)})[p];
        const std::vector<double> own = to_numbers(members[m]->backend(), held.gradient);
        if (held.info.split_length == 0 && m > 0) {
          if (own != whole) out.unequal += held.info.name + " ";
          continue;
        }
        const auto begin = static_cast<std::size_t>(held.begin * held.info.unit);
        for (std::size_t i = 0; i < own.size(); ++i) whole[begin + i] += own[i];
      }
      out.whole.gradients.back().push_back(std::move(whole));
    }
  }
}

}  // namespace

ir::ProgramHeader small_header(int heads, int kv_heads, ir::Activation activation, int vocabulary) {
  ir::ProgramHeader header;
  header.model.layers = 2;
  header.model.hidden = 20;
  header.model.heads = heads;
  header.model.kv_heads = kv_heads;
  header.model.head_dim = 6;
  header.model.ffn = 24;
  header.model.vocabulary = vocabulary;
  header.model.activation = activation;
  header.blocks = {ir::BlockKind::embedding, ir::BlockKind::transformer, ir::BlockKind::transformer,
                   ir::BlockKind::head};
  header.sequence_length = 7;
  header.global_batch = 4;
  header.dtype = ir::Dtype::fp32;
  header.seed = 11;
  return header;
}

ir::ProgramHeader small_gpt(int heads, int kv_heads, ir::Activation activation, int vocabulary,
                            bool tied_embeddings) {
  ir::ProgramHeader header = small_header(heads, kv_heads, activation, vocabulary);
  header.model.normalization = ir::Normalization::layer_norm;
  header.model.biases = true;
  header.model.positions = 9;  // Two more than there are tokens.
  header.model.tied_embeddings = tied_embeddings;
  return header;
}

reference::Weights random_weights(const ir::ProgramHeader& header, std::uint64_t seed) {
  reference::Weights out;
  for (std::int32_t b = 0; b < static_cast<std::int32_t>(header.blocks.size()); ++b) {
    out.emplace_back();
    for (const ParameterInfo& info : parameters_of(header, {b})) {
      const bool gain = info.name.find(".gain") != std::string::npos;
      out.back().push_back(
          random_numbers(static_cast<std::size_t>(info.elements()), ++seed, gain ? 0.125 : 0.25));
      if (!gain) continue;
      for (double& number : out.back().back()) number += 1;
    }
  }
  if (header.model.tied_embeddings) out.back().back() = out.front().front();
  return out;
}

Tokens random_tokens(const ir::ProgramHeader& header, int samples, std::uint64_t seed) {
  Tokens out;
  out.samples = samples;
  Rng rng(seed);
  for (std::int64_t i = 0; i < samples * header.sequence_length; ++i) {
    out.tokens.push_back(static_cast<std::int32_t>(rng.integer(0, header.model.vocabulary - 1)));
    out.targets.push_back(static_cast<std::int32_t>(rng.integer(0, header.model.vocabulary - 1)));
  }
  return out;
}

ShardResult run_shards(const ir::ProgramHeader& header, const reference::Weights& weights,
                       const std::vector<Tokens>& batches, const ShardRun& how) {
  Rendezvous rendezvous(how.degree);
  std::vector<std::unique_ptr<Member>> members;
  for (int position = 0; position < how.degree; ++position) {
    members.push_back(std::make_unique<Member>(header, how, rendezvous, position));
  }
  std::vector<std::thread> threads;
  for (const auto& member : members) {
    threads.emplace_back([&, at = member.get()] { at->run(weights, batches); });
  }
  for (std::thread& thread : threads) thread.join();
  ShardResult out;
  out.whole.losses = members.front()->losses;
  out.sums = members.front()->sums();
  out.kept = members.front()->kept_bytes;
  for (const auto& member : members) {
    out.kept_at_end += member->kept_at_end;
    if (member->losses != out.whole.losses) out.unequal += "losses ";
  }
  put_together(members, weights, out);
  return out;
}

}  // namespace orrery::executor
