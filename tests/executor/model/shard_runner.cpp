#include "tests/executor/model/shard_runner.h"

#include <algorithm>
#include <barrier>
#include <memory>
#include <thread>

#include "models/base/check.h"
#include "models/base/ids.h"
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

using Kind = ir::CollectiveKind;

/// Sums in the order of the members, so that all get equal bits.
class ThreadTensorGroup : public TensorGroup {
 public:
  ThreadTensorGroup(Rendezvous& tensor, Rendezvous& experts, Backend& backend, int position,
                    int expert_position, int skipped)
      : meeting_(tensor),
        experts_(experts),
        backend_(backend),
        position_(position),
        expert_position_(expert_position),
        skipped_(skipped) {}
  int degree() const override { return static_cast<int>(meeting_.values.size()); }
  int position() const override { return position_; }
  void all_reduce(const Tensor& tensor) override { reduce(tensor, false); }
  void all_reduce_maximum(const Tensor& tensor) override { reduce(tensor, true); }
  void reduce_scatter(const Tensor& whole, const TokenRows& rows, const Tensor& own) override {
    if (skip(Kind::reduce_scatter, whole)) return backend_.fill(own, 0);
    meet(meeting_, position_, whole, [&](const auto& all) {
      const std::vector<double> sum = joined(all, false);
      std::vector<double> out;
      for (const std::size_t i : places(rows, position_)) out.push_back(sum[i]);
      put(out, own);
    });
  }
  void all_gather(const Tensor& own, const TokenRows& rows, const Tensor& whole) override {
    if (skip(Kind::all_gather, whole)) return backend_.fill(whole, 0);
    meet(meeting_, position_, own, [&](const auto& all) {
      std::vector<double> out(whole.elements);
      for (int member = 0; member < degree(); ++member) {
        const std::vector<std::size_t> to = places(rows, member);
        for (std::size_t i = 0; i < to.size(); ++i) out[to[i]] = all[as_size(member)][i];
      }
      put(out, whole);
    });
  }
  void broadcast(const Tensor& tensor) override {
    meet(meeting_, position_, tensor, [&](const auto& all) { put(all[0], tensor); });
  }
  int expert_degree() const override { return static_cast<int>(experts_.values.size()); }
  int expert_position() const override { return expert_position_; }
  /// Of equal parts.
  void exchange(const Tensor& from, const std::vector<std::size_t>& sent, const Tensor& to,
                const std::vector<std::size_t>& received) override {
    if (skip(Kind::all_to_all, from)) return backend_.fill(to, 0);
    ORRERY_CHECK(sent == received && sent.front() == sent.back(), "parts of {} and {} elements",
                 sent.front(), sent.back());
    meet(experts_, expert_position_, from, [&](const auto& all) {
      std::vector<double> out;
      const std::size_t size = from.elements / all.size();
      for (const std::vector<double>& one : all) {
        const auto begin = one.begin() + expert_position_ * static_cast<std::ptrdiff_t>(size);
        out.insert(out.end(), begin, begin + static_cast<std::ptrdiff_t>(size));
      }
      put(out, to);
    });
  }

  void set_pass(const std::string& pass) { pass_ = pass; }
  std::vector<Sum> sums;

 private:
  bool skip(Kind kind, const Tensor& tensor, bool maximum = false) {
    sums.push_back({pass_, tensor.elements, maximum, tensor.wide, kind});
    return static_cast<int>(sums.size()) - 1 == skipped_;
  }
  void reduce(const Tensor& tensor, bool maximum) {
    if (skip(Kind::all_reduce, tensor, maximum)) return;
    meet(meeting_, position_, tensor, [&](const auto& all) { put(joined(all, maximum), tensor); });
  }
  static std::vector<double> joined(const std::vector<std::vector<double>>& all, bool maximum) {
    std::vector<double> out = all[0];
    for (std::size_t member = 1; member < all.size(); ++member) {
      for (std::size_t i = 0; i < out.size(); ++i) {
        const double other = all[member][i];
        out[i] = maximum ? std::max(out[i], other) : out[i] + other;
      }
    }
    return out;
  }
  /// `use` has what every member brought.
  template <class Use>
  void meet(Rendezvous& meeting, int position, const Tensor& mine, const Use& use) {
    meeting.values[as_size(position)] = to_numbers(backend_, mine);
    meeting.barrier.arrive_and_wait();
    const std::vector<std::vector<double>> all = meeting.values;
    meeting.barrier.arrive_and_wait();
    use(all);
  }
  void put(const std::vector<double>& numbers, const Tensor& to) {
    backend_.copy(to_tensor(backend_, numbers, to.wide), to);
  }
  /// Elements of the member's tokens among those of all.
  std::vector<std::size_t> places(const TokenRows& rows, int member) const {
    const UnitRange tokens = even_slice(rows.tokens, degree(), member);
    std::vector<std::size_t> out;
    for (std::int64_t sample = 0; sample < rows.samples; ++sample) {
      for (std::int64_t i = tokens.begin * rows.width; i < tokens.end * rows.width; ++i) {
        out.push_back(as_size(sample * rows.tokens * rows.width + i));
      }
    }
    return out;
  }

  Rendezvous& meeting_;
  Rendezvous& experts_;
  Backend& backend_;
  int position_;
  int expert_position_;
  int skipped_;
  std::string pass_;
};

class Member {
 public:
  Member(const ir::ProgramHeader& header, const ShardRun& how, Rendezvous& tensor,
         Rendezvous& experts, int position, int expert_position)
      : header_(header),
        how_(how),
        backend_(make_cpu_backend(how.precision, "eigen")),
        shard_(*backend_, header, blocks(position, expert_position)),
        group_(tensor, experts, *backend_, position, expert_position, how.skipped_sum) {
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
        for (const UnitRange& slice : held.slices) {
          backend_->copy(to_tensor(*backend_, {first + slice.begin * held.info.unit,
                                               first + slice.end * held.info.unit}),
                         held.units(held.weight, slice.begin, slice.end));
        }
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
  std::vector<ModelShard::HeldBlock> blocks(int position, int expert_position) const {
    std::vector<ModelShard::HeldBlock> all;
    for (std::int32_t b = 0; b < static_cast<std::int32_t>(header_.blocks.size()); ++b) {
      all.push_back({.block = {b},
                     .degree = how_.degree,
                     .position = position,
                     .expert_degree = how_.expert_degree,
                     .expert_position = expert_position,
                     .sequence = how_.sequence && how_.degree > 1});
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

/// Puts gradients of slices together. Copies of key-value heads add up; what members hold whole
/// must be equal, but for that of which each saw its own tokens.
void put_together(std::vector<std::unique_ptr<Member>>& members, const reference::Weights& weights,
                  const ShardRun& how, ShardResult& out) {
  for (std::size_t b = 0; b < weights.size(); ++b) {
    out.whole.gradients.emplace_back();
    for (std::size_t p = 0; p < weights[b].size(); ++p) {
      std::vector<double> whole(weights[b][p].size(), 0);
      std::vector<double> first;  // Of the first member of the group.
      for (std::size_t m = 0; m < members.size(); ++m) {
        const HeldParameter& held =
            members[m]->shard().parameters({static_cast<std::int32_t>(b)})[p];
        const std::vector<double> own = to_numbers(members[m]->backend(), held.gradient);
        const bool is_first = m % as_size(how.degree) == 0;
        if (is_first) first = own;
        const bool whole_here = held.info.split_length == held.info.experts;
        const bool alike = whole_here && (!how.sequence || held.info.experts > 0);
        if (alike && !is_first) {
          if (own != first) out.unequal += held.info.name + " ";
          continue;
        }
        std::size_t i = 0;
        for (const UnitRange& slice : held.slices) {
          const std::size_t end = as_size(slice.end * held.info.unit);
          for (std::size_t at = as_size(slice.begin * held.info.unit); at < end; ++at) {
            whole[at] += own[i++];
          }
        }
      }
      out.whole.gradients.back().push_back(std::move(whole));
    }
  }
}

/// Share `part` of `parts` of the samples.
Tokens share_of(const Tokens& all, int part, int parts) {
  Tokens out;
  out.samples = all.samples / parts;
  const auto size = static_cast<std::ptrdiff_t>(all.tokens.size() / as_size(parts));
  out.tokens.assign(all.tokens.begin() + part * size, all.tokens.begin() + (part + 1) * size);
  out.targets.assign(all.targets.begin() + part * size, all.targets.begin() + (part + 1) * size);
  return out;
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

ir::ProgramHeader with_experts(ir::ProgramHeader header, int experts, int top_k,
                               double capacity_factor) {
  header.model.experts = experts;
  header.model.top_k = top_k;
  header.model.capacity_factor = capacity_factor;
  std::replace(header.blocks.begin(), header.blocks.end(), ir::BlockKind::transformer,
               ir::BlockKind::moe);
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
  std::vector<std::unique_ptr<Rendezvous>> tensor, experts;
  for (int g = 0; g < how.expert_degree; ++g) {
    tensor.push_back(std::make_unique<Rendezvous>(how.degree));
  }
  for (int position = 0; position < how.degree; ++position) {
    experts.push_back(std::make_unique<Rendezvous>(how.expert_degree));
  }
  std::vector<std::unique_ptr<Member>> members;
  std::vector<std::thread> threads;
  for (int g = 0; g < how.expert_degree; ++g) {
    for (int position = 0; position < how.degree; ++position) {
      members.push_back(std::make_unique<Member>(header, how, *tensor[as_size(g)],
                                                 *experts[as_size(position)], position, g));
      std::vector<Tokens> own;
      for (const Tokens& all : batches) own.push_back(share_of(all, g, how.expert_degree));
      threads.emplace_back(
          [&weights, at = members.back().get(), own = std::move(own)] { at->run(weights, own); });
    }
  }
  for (std::thread& thread : threads) thread.join();
  ShardResult out;
  out.sums = members.front()->sums();
  out.kept = members.front()->kept_bytes;
  for (std::size_t m = 0; m < members.size(); ++m) {
    const std::vector<double>& losses = members[m]->losses;
    const std::size_t first = m - m % as_size(how.degree);
    out.kept_at_end += members[m]->kept_at_end;
    if (m == first) out.whole.losses.insert(out.whole.losses.end(), losses.begin(), losses.end());
    if (losses != members[first]->losses) out.unequal += "losses ";
  }
  put_together(members, weights, how, out);
  return out;
}

}  // namespace orrery::executor
