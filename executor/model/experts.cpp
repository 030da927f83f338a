// Experts. Rows of tokens lie by expert, sample and place where the tokens are, and by expert,
// member, sample and place where the experts are. Places that no token took are rows of zeros,
// which the experts compute as any other, as programs count them.
#include <cstddef>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "executor/model/block.h"
#include "executor/model/numbers.h"
#include "models/base/ids.h"

namespace orrery::executor {
namespace {

/// Sizes of the rows on their way between the members that hold experts together.
class Rows {
 public:
  Rows(const BlockWork& work, const Routing& routing)
      : own_(as_size(work.place.expert_position)), hidden_(as_size(work.hidden())) {
    const std::size_t experts = as_size(work.header.model.experts);
    const std::size_t each = routing.rows.size() / experts;
    for (const ExpertMember& member : work.place.expert_members) {
      held_.push_back(as_size(member.experts));
      sent_.push_back(as_size(member.samples) * each / as_size(work.batch.samples));
    }
    if (!held_.empty()) return;
    const std::size_t members = as_size(work.place.expert_degree);
    held_.assign(members, experts / members);
    sent_.assign(members, each);
  }
  std::size_t members() const { return held_.size(); }
  /// Experts here, and rows of each of them: from all members, and elements of those from one.
  std::size_t experts() const { return held_[own_]; }
  std::size_t of_expert() const { return std::accumulate(sent_.begin(), sent_.end(), 0UL); }
  std::size_t elements_from(std::size_t member) const { return sent_[member] * hidden_; }
  /// By member: elements that this one sends to its experts, and that come from it to those here.
  std::vector<std::size_t> to_others() const {
    std::vector<std::size_t> sizes;
    for (const std::size_t held : held_) sizes.push_back(held * elements_from(own_));
    return sizes;
  }
  std::vector<std::size_t> from_others() const {
    std::vector<std::size_t> sizes;
    for (std::size_t m = 0; m < members(); ++m) sizes.push_back(experts() * elements_from(m));
    return sizes;
  }

 private:
  std::size_t own_, hidden_;
  std::vector<std::size_t> held_, sent_;  ///< By member: its experts, its rows of each expert.
};

int as_int(std::size_t value) { return static_cast<int>(value); }

/// Part `number` of `count` equal ones.
Tensor equal_part(const Tensor& tensor, std::size_t number, std::size_t count) {
  const std::size_t size = tensor.elements / count;
  return part(tensor, number * size, (number + 1) * size);
}

/// Rows of the experts here from the order by (member, expert) to that by (expert, member), or with
/// `back` the other way, in new memory.
Tensor reordered(const BlockWork& work, const Rows& rows, const Tensor& tensor, bool back) {
  Tensor out = work.backend.allocate(tensor.elements, tensor.wide);
  const std::size_t of_expert = tensor.elements / rows.experts();
  std::size_t by_member = 0, before = 0;  // Before: of an expert's rows, those of former members.
  for (std::size_t member = 0; member < rows.members(); ++member) {
    const std::size_t size = rows.elements_from(member);
    for (std::size_t expert = 0; expert < rows.experts(); ++expert, by_member += size) {
      const std::size_t by_expert = expert * of_expert + before;
      const std::size_t from = back ? by_expert : by_member, to = back ? by_member : by_expert;
      work.backend.copy(part(tensor, from, from + size), part(out, to, to + size));
    }
    before += size;
  }
  return out;
}

/// Rows by expert, sample and place to those that the experts here get.
Tensor to_experts(const BlockWork& work, TensorGroup& group, const Rows& rows, const Tensor& sent) {
  if (rows.members() == 1) return sent;
  const std::vector<std::size_t> sizes = rows.from_others();
  const Tensor arrived =
      work.backend.allocate(std::accumulate(sizes.begin(), sizes.end(), 0UL), false);
  group.exchange(sent, rows.to_others(), arrived, sizes);
  return rows.experts() == 1 ? arrived : reordered(work, rows, arrived, false);
}

Tensor from_experts(const BlockWork& work, TensorGroup& group, const Rows& rows,
                    const Tensor& made) {
  if (rows.members() == 1) return made;
  const Tensor sent = rows.experts() == 1 ? made : reordered(work, rows, made, true);
  const std::vector<std::size_t> sizes = rows.to_others();
  Tensor returned = work.backend.allocate(std::accumulate(sizes.begin(), sizes.end(), 0UL), false);
  group.exchange(sent, rows.from_others(), returned, sizes);
  return returned;
}

/// Rows of `from` by number; -1: zeros.
Tensor pick_rows(const BlockWork& work, const Tensor& from, std::span<const std::int32_t> numbers) {
  const int hidden = work.hidden();
  Tensor out = work.backend.allocate(numbers.size() * as_size(hidden), false);
  work.backend.embed(numbers, from, 0, as_int(from.elements) / hidden, hidden, out);
  return out;
}

void scale(const BlockWork& work, const Tensor& rows, const std::vector<double>& factors) {
  const Tensor on_device = work.backend.allocate(factors.size(), true);
  upload_numbers(work.backend, factors, on_device);
  work.backend.scale_rows(rows, on_device, as_int(factors.size()), work.hidden(), rows);
}

/// x w^T of each expert's rows and its matrix, or with `back` x w; biases where there are any.
Tensor products(const BlockWork& work, const Rows& rows, const Tensor& x,
                const ParameterPair& numbers, bool back, bool biased) {
  Backend& backend = work.backend;
  const std::size_t experts = rows.experts(), hidden = as_size(work.hidden());
  const Tensor& weights = work.parameters[numbers.main].weight;
  const std::size_t columns = weights.elements / experts / hidden;
  const std::size_t in = back ? columns : hidden, out = back ? hidden : columns;
  Tensor y = backend.allocate(experts * rows.of_expert() * out, false);
  for (std::size_t e = 0; e < experts; ++e) {
    const Tensor own = equal_part(y, e, experts);
    backend.gemm(false, !back, as_int(rows.of_expert()), as_int(out), as_int(in), 1,
                 equal_part(x, e, experts), equal_part(weights, e, experts), 0, own);
    if (!biased || numbers.bias == kAbsent) continue;
    backend.add_row(equal_part(work.parameters[numbers.bias].weight, e, experts),
                    as_int(rows.of_expert()), as_int(out), own);
  }
  return y;
}

/// Of each expert: left^T right, and of its bias the sums of the rows of `dy`.
void add_gradients(const BlockWork& work, const Rows& rows, const ParameterPair& numbers,
                   const Tensor& left, const Tensor& right, const Tensor& dy) {
  const std::size_t experts = rows.experts();
  for (std::size_t e = 0; e < experts; ++e) {
    add_weight_gradient(work, equal_part(left, e, experts), equal_part(right, e, experts),
                        equal_part(work.parameters[numbers.main].gradient, e, experts));
    if (numbers.bias == kAbsent) continue;
    const Tensor sums = equal_part(work.parameters[numbers.bias].gradient, e, experts);
    work.backend.sum_rows(equal_part(dy, e, experts), as_int(rows.of_expert()),
                          as_int(sums.elements), sums);
  }
}

/// By place: the weight of the choice that took it.
std::vector<double> weights_of_places(const Routing& routing, const std::vector<double>& weights) {
  std::vector<double> out(routing.choices.size(), 0.0);
  for (std::size_t place = 0; place < out.size(); ++place) {
    if (routing.choices[place] >= 0) out[place] = weights[as_size(routing.choices[place])];
  }
  return out;
}

}  // namespace

void experts_forward(const BlockWork& work, TensorGroup& group, BlockKept& kept, Tensor& output) {
  Backend& backend = work.backend;
  const ir::ModelShape& shape = work.header.model;
  const TransformerParameters numbers = transformer_parameters(shape);
  std::vector<double> scores = download_numbers(
      backend,
      project(work, kept.norm2, work.parameters[numbers.router.main].weight, work.hidden()));
  kept.routing = route(shape, work.batch.samples, scores);
  kept.probabilities = backend.allocate(scores.size(), true);
  upload_numbers(backend, scores, kept.probabilities);
  const Rows rows(work, kept.routing);
  kept.arrived = to_experts(work, group, rows, pick_rows(work, kept.norm2, kept.routing.rows));
  kept.up = products(work, rows, kept.arrived, numbers.up, false, true);
  if (numbers.gate.main != kAbsent) {
    kept.gate = products(work, rows, kept.arrived, numbers.gate, false, true);
  }
  activate(work, kept);
  // A bias of the whole output belongs to one of the summands.
  kept.returned = from_experts(
      work, group, rows,
      products(work, rows, kept.activated, numbers.down, true, work.place.position == 0));
  const std::vector<double> weights = weights_of(kept.routing, shape, scores);
  const std::size_t count = as_size(work.rows());
  Tensor sum;
  for (int k = 0; k < shape.top_k; ++k) {
    const Tensor chosen = pick_rows(work, kept.returned, kept.routing.places_of(k, work.rows()));
    const auto first = weights.begin() + static_cast<std::ptrdiff_t>(as_size(k) * count);
    scale(work, chosen, {first, first + static_cast<std::ptrdiff_t>(count)});
    if (k == 0) {
      sum = chosen;
    } else {
      backend.add(chosen, sum);
    }
  }
  output = sum_over(work, group, sum);
}

Tensor experts_input_gradient(const BlockWork& work, TensorGroup& group, BlockKept& kept) {
  Backend& backend = work.backend;
  const ir::ModelShape& shape = work.header.model;
  const TransformerParameters numbers = transformer_parameters(shape);
  const Rows rows(work, kept.routing);
  const int hidden = work.hidden();
  const std::size_t count = as_size(work.rows());
  const std::vector<double> probabilities = download_numbers(backend, kept.probabilities);

  // The weight of a choice multiplies what the expert made: the product of it and d_output. Each
  // member has a summand of that. Those of the router add up as all gradients of whole parameters
  // do: between members only with sequence parallelism.
  const Tensor d_weights = backend.allocate(as_size(shape.top_k) * count, true);
  for (int k = 0; k < shape.top_k; ++k) {
    backend.dot_rows(pick_rows(work, kept.returned, kept.routing.places_of(k, work.rows())),
                     kept.d_output_all, work.rows(), hidden,
                     equal_part(d_weights, as_size(k), as_size(shape.top_k)));
  }
  if (!work.sequence && work.place.degree > 1) group.all_reduce(d_weights);
  kept.d_scores = backend.allocate(kept.probabilities.elements, false);
  upload_numbers(
      backend,
      score_gradients(kept.routing, shape, probabilities, download_numbers(backend, d_weights)),
      kept.d_scores);

  const Tensor d_sent = pick_rows(work, kept.d_output_all, kept.routing.rows);
  scale(work, d_sent,
        weights_of_places(kept.routing, weights_of(kept.routing, shape, probabilities)));
  kept.d_arrived = to_experts(work, group, rows, d_sent);
  activate_backward(work, products(work, rows, kept.d_arrived, numbers.down, false, false), kept);
  const Tensor d_made = products(work, rows, kept.d_up, numbers.up, true, false);
  if (numbers.gate.main != kAbsent) {
    backend.add(products(work, rows, kept.d_gate, numbers.gate, true, false), d_made);
  }
  const Tensor d_rows = from_experts(work, group, rows, d_made);
  Tensor d_norm = pick_rows(work, d_rows, kept.routing.places_of(0, work.rows()));
  for (int k = 1; k < shape.top_k; ++k) {
    backend.add(pick_rows(work, d_rows, kept.routing.places_of(k, work.rows())), d_norm);
  }
  const Tensor of_router =
      project_back(work, kept.d_scores, work.parameters[numbers.router.main].weight, hidden);
  if (work.sequence) backend.add(of_router, d_norm);
  d_norm = sum_over(work, group, d_norm);
  if (!work.sequence) backend.add(of_router, d_norm);
  return d_norm;
}

void experts_weight_gradients(const BlockWork& work, const BlockKept& kept) {
  const TransformerParameters numbers = transformer_parameters(work.header.model);
  const Rows rows(work, kept.routing);
  add_gradients(work, rows, numbers.down, kept.activated, kept.d_arrived, kept.d_arrived);
  add_gradients(work, rows, numbers.up, kept.d_up, kept.arrived, kept.d_up);
  if (numbers.gate.main != kAbsent) {
    add_gradients(work, rows, numbers.gate, kept.d_gate, kept.arrived, kept.d_gate);
  }
  add_weight_gradient(work, kept.d_scores, kept.norm2,
                      work.parameters[numbers.router.main].gradient);
}

}  // namespace orrery::executor
