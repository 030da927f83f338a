#include "executor/engine/moves.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "executor/net/clock.h"
#include "models/base/check.h"
#include "models/base/ids.h"

namespace orrery::executor {
namespace {

/// Bytes that a member of a ring sends: each step but the last of a pass passes one part on.
std::int64_t ring_bytes(std::size_t bytes, int members, int passes) {
  const auto n = static_cast<std::int64_t>(members);
  return passes * static_cast<std::int64_t>(bytes) * (n - 1) / n;
}

template <class T>
void take_maximum(std::span<const std::byte> all, std::size_t parts, std::span<std::byte> out) {
  const auto* values = reinterpret_cast<const T*>(all.data());
  auto* into = reinterpret_cast<T*>(out.data());
  const std::size_t count = out.size() / sizeof(T);
  std::copy(values, values + count, into);
  for (std::size_t p = 1; p < parts; ++p) {
    for (std::size_t i = 0; i < count; ++i) into[i] = std::max(into[i], values[p * count + i]);
  }
}

}  // namespace

ElementType element_of(const Backend& backend, bool wide) {
  switch (backend.precision()) {
    case Precision::fp32:
      return ElementType::f32;
    case Precision::fp64:
      return ElementType::f64;
    case Precision::bf16:
      return wide ? ElementType::f32 : ElementType::bf16;
  }
  ORRERY_CHECK(false, "precision {}", static_cast<int>(backend.precision()));
  return ElementType::f32;
}

Mover::Mover(const RankView& view, ModelShard& shard, ActivationStore& activations)
    : view_(view), shard_(shard), backend_(shard.backend()), activations_(activations) {}

std::size_t Mover::width(const Tensor& tensor) const {
  return backend_.element_bytes(tensor.wide) * tensor.elements;
}

Tensor Mover::part_of(const ir::Region& region, BlockId block) {
  const HeldParameter& held = shard_.parameters(block)[region.parameter];
  const bool gradient = region.tensor == ir::TensorKind::gradient;
  return held.units(gradient ? held.gradient : held.weight, region.begin, region.end);
}

std::vector<Tensor> Mover::tensors(const ir::Op& op, const std::vector<ir::Region>& regions) {
  std::vector<Tensor> out;
  const std::int32_t pipeline =
      op.segment == ir::kNone ? view_.program().rank_of(op).pipeline : view_.segment(op).pipeline;
  for (const ir::Region& region : regions) {
    const bool gradient = region.tensor == ir::TensorKind::activation_gradient;
    if (gradient || region.tensor == ir::TensorKind::activation) {
      const ActivationKey key = {pipeline, op.micro_batch.value, region.first_block.value,
                                 gradient};
      out.push_back(activations_.rows(key, region.begin, region.end));
      continue;
    }
    for (const BlockId b : ids_from_to(region.first_block, region.last_block)) {
      out.push_back(part_of(region, b));
    }
  }
  return out;
}

std::size_t Mover::bytes(const std::vector<Tensor>& tensors) const {
  std::size_t sum = 0;
  for (const Tensor& tensor : tensors) sum += width(tensor);
  return sum;
}

std::vector<std::byte> Mover::pack(const std::vector<Tensor>& tensors) {
  std::vector<std::byte> out(bytes(tensors));
  std::size_t at = 0;
  for (const Tensor& tensor : tensors) {
    backend_.download(tensor, std::span(out).subspan(at, width(tensor)));
    at += width(tensor);
  }
  return out;
}

void Mover::unpack(std::span<const std::byte> bytes, const std::vector<Tensor>& tensors) {
  std::size_t at = 0;
  for (const Tensor& tensor : tensors) {
    backend_.upload(bytes.subspan(at, width(tensor)), tensor);
    at += width(tensor);
  }
}

std::int64_t Mover::run_collective(const ir::Op& op, Transport& transport, const RingTag& tag) {
  const ir::CollectiveShape& shape = view_.shape(op);
  ORRERY_CHECK(shape.parts.size() == 1, "{} parts in an expanded program", shape.parts.size());
  const auto& layout = shape.parts.front();
  const RingGroup group = view_.ring(view_.program().groups[layout.group]);
  const int n = group.size();
  using Kind = ir::CollectiveKind;
  if (shape.kind == Kind::all_reduce || shape.kind == Kind::broadcast) {
    const std::vector<Tensor> all = tensors(op, view_.regions(shape.regions));
    const bool sends = shape.kind == Kind::all_reduce || group.position == 0;
    std::vector<std::byte> data = sends ? pack(all) : std::vector<std::byte>(bytes(all));
    if (shape.kind == Kind::broadcast) {
      broadcast(transport, group, data, tag);
    } else {
      all_reduce(transport, group, element_of(backend_, all.empty() || all.front().wide), data,
                 tag);
    }
    unpack(data, all);
    return shape.kind == Kind::broadcast
               ? (group.position + 1 < n ? static_cast<std::int64_t>(data.size()) : 0)
               : ring_bytes(data.size(), n, 2);
  }
  // Parts of the members one after the other, each with its own regions.
  std::vector<Extent> parts;
  std::vector<Tensor> all;
  std::size_t at = 0;
  bool wide = true;
  for (const std::vector<ir::Region>& regions : layout.member_regions) {
    const std::vector<Tensor> of_member = tensors(op, regions);
    const std::size_t begin = at;
    for (const Tensor& tensor : of_member) {
      at += tensor.elements;
      wide = tensor.wide;
      all.push_back(tensor);
    }
    parts.push_back({begin, at});
  }
  std::vector<std::byte> data = pack(all);
  const ElementType element = element_of(backend_, wide);
  if (shape.kind == Kind::reduce_scatter) {
    reduce_scatter(transport, group, element, data, parts, tag);
  } else {
    all_gather(transport, group, element, data, parts, tag);
  }
  unpack(data, all);
  return ring_bytes(data.size(), n, 1);
}

OpGroupRing::OpGroupRing(Backend& backend, Transport& transport, PassGroups groups,
                         const RingTag& tag)
    : backend_(backend),
      transport_(transport),
      group_(std::move(groups.tensor)),
      experts_(std::move(groups.experts)),
      tag_(tag) {}

template <class Ring>
void OpGroupRing::on_host(const Tensor& tensor, Ring ring) {
  backend_.synchronize();
  const std::int64_t begin = now_ns();
  const std::int64_t begin_cpu = thread_cpu_ns();
  const std::size_t width = backend_.element_bytes(tensor.wide);
  if (backend_.on_host()) {
    ring(std::span(tensor.memory->data() + tensor.offset * width, tensor.elements * width));
  } else {
    std::vector<std::byte> host(tensor.elements * width);
    backend_.download(tensor, host);
    ring(std::span(host));
    backend_.upload(host, tensor);
  }
  nanoseconds_ += now_ns() - begin;
  cpu_nanoseconds_ += thread_cpu_ns() - begin_cpu;
}

void OpGroupRing::all_reduce(const Tensor& tensor) {
  if (degree() < 2) return;
  on_host(tensor, [&](std::span<std::byte> data) {
    executor::all_reduce(transport_, group_, element_of(backend_, tensor.wide), data, tag_);
    bytes_ += ring_bytes(data.size(), degree(), 2);
  });
  tag_.first_part += 2 * static_cast<std::uint64_t>(degree());
}

void OpGroupRing::all_reduce_maximum(const Tensor& tensor) {
  if (degree() < 2) return;
  const ElementType element = element_of(backend_, tensor.wide);
  ORRERY_CHECK(element != ElementType::bf16, "maxima are wide");
  on_host(tensor, [&](std::span<std::byte> data) {
    const std::size_t n = degree();
    std::vector<std::byte> all(n * data.size());
    std::copy(data.begin(), data.end(),
              all.begin() + static_cast<std::ptrdiff_t>(data.size()) * position());
    std::vector<Extent> parts;
    for (std::size_t i = 0; i < n; ++i) {
      parts.push_back({i * tensor.elements, (i + 1) * tensor.elements});
    }
    executor::all_gather(transport_, group_, element, all, parts, tag_);
    if (element == ElementType::f32) {
      take_maximum<float>(all, n, data);
    } else {
      take_maximum<double>(all, n, data);
    }
    bytes_ += ring_bytes(all.size(), degree(), 1);
  });
  tag_.first_part += 2 * static_cast<std::uint64_t>(degree());
}

void OpGroupRing::for_each_run(const TokenRows& rows, const Run& run) const {
  const std::int64_t width = rows.width;
  std::int64_t staged = 0;
  for (int member = 0; member < degree(); ++member) {
    const UnitRange tokens = even_slice(rows.tokens, degree(), member);
    const std::int64_t length = (tokens.end - tokens.begin) * width;
    for (int sample = 0; sample < rows.samples; ++sample, staged += length) {
      const std::int64_t begin = (std::int64_t{sample} * rows.tokens + tokens.begin) * width;
      run({as_size(begin), as_size(begin + length)}, {as_size(staged), as_size(staged + length)});
    }
  }
}

std::vector<Extent> OpGroupRing::members(const TokenRows& rows) const {
  std::vector<Extent> out;
  std::size_t at = 0;
  for (int member = 0; member < degree(); ++member) {
    const UnitRange tokens = even_slice(rows.tokens, degree(), member);
    const std::size_t size =
        as_size((tokens.end - tokens.begin) * rows.samples * std::int64_t{rows.width});
    out.push_back({at, at + size});
    at += size;
  }
  return out;
}

void OpGroupRing::reduce_scatter(const Tensor& whole, const TokenRows& rows, const Tensor& own) {
  const Tensor staged = backend_.allocate(whole.elements, whole.wide);
  for_each_run(rows, [&](const Extent& from, const Extent& to) {
    backend_.copy(part(whole, from.begin, from.end), part(staged, to.begin, to.end));
  });
  const std::vector<Extent> parts = members(rows);
  on_host(staged, [&](std::span<std::byte> data) {
    executor::reduce_scatter(transport_, group_, element_of(backend_, whole.wide), data, parts,
                             tag_);
    bytes_ += ring_bytes(data.size(), degree(), 1);
  });
  const Extent& mine = parts[position()];
  backend_.copy(part(staged, mine.begin, mine.end), own);
  tag_.first_part += 2 * static_cast<std::uint64_t>(degree());
}

void OpGroupRing::all_gather(const Tensor& own, const TokenRows& rows, const Tensor& whole) {
  const Tensor staged = backend_.allocate(whole.elements, whole.wide);
  const std::vector<Extent> parts = members(rows);
  const Extent& mine = parts[position()];
  backend_.copy(own, part(staged, mine.begin, mine.end));
  on_host(staged, [&](std::span<std::byte> data) {
    executor::all_gather(transport_, group_, element_of(backend_, whole.wide), data, parts, tag_);
    bytes_ += ring_bytes(data.size(), degree(), 1);
  });
  for_each_run(rows, [&](const Extent& to, const Extent& from) {
    backend_.copy(part(staged, from.begin, from.end), part(whole, to.begin, to.end));
  });
  tag_.first_part += 2 * static_cast<std::uint64_t>(degree());
}

void OpGroupRing::broadcast(const Tensor& tensor) {
  if (degree() < 2) return;
  on_host(tensor, [&](std::span<std::byte> data) {
    executor::broadcast(transport_, group_, data, tag_);
    if (position() + 1 < degree()) bytes_ += static_cast<std::int64_t>(data.size());
  });
  tag_.first_part += kMostBroadcastPieces;
}

void OpGroupRing::exchange(const Tensor& from, const std::vector<std::size_t>& sent,
                           const Tensor& to, const std::vector<std::size_t>& received) {
  const std::size_t members = as_size(expert_degree());
  const std::size_t width = backend_.element_bytes(from.wide);
  backend_.synchronize();
  const std::int64_t begin = now_ns();
  const std::int64_t begin_cpu = thread_cpu_ns();
  std::vector<std::byte> out(from.elements * width), in(to.elements * width);
  backend_.download(from, out);
  const auto pieces = [&](std::vector<std::byte>& all, const std::vector<std::size_t>& sizes) {
    ORRERY_CHECK(sizes.size() == members, "{} sizes among {}", sizes.size(), members);
    std::vector<std::span<std::byte>> cut;
    std::size_t at = 0;
    for (const std::size_t size : sizes) {
      cut.push_back(std::span(all).subspan(at, size * width));
      at += size * width;
    }
    ORRERY_CHECK(at == all.size(), "sizes of {} bytes for {}", at, all.size());
    return cut;
  };
  const auto outgoing = pieces(out, sent), incoming = pieces(in, received);
  const std::size_t self = as_size(expert_position());
  const Tag tag = make_tag(tag_.step, tag_.op, tag_.first_part++);
  std::vector<RequestPointer> requests;
  for (std::size_t member = 0; member < members; ++member) {
    if (member == self || incoming[member].empty()) continue;
    requests.push_back(transport_.receive(experts_.ranks[member], tag, incoming[member]));
  }
  // Each begins with the next one, so that no one gets from all at once.
  for (std::size_t step = 1; step < members; ++step) {
    const std::size_t member = (self + step) % members;
    if (outgoing[member].empty()) continue;
    requests.push_back(transport_.send(experts_.ranks[member], tag, outgoing[member]));
    bytes_ += static_cast<std::int64_t>(outgoing[member].size());
  }
  std::ranges::copy(outgoing[self], incoming[self].begin());
  for (const RequestPointer& request : requests) request->wait();
  backend_.upload(in, to);
  nanoseconds_ += now_ns() - begin;
  cpu_nanoseconds_ += thread_cpu_ns() - begin_cpu;
}

}  // namespace orrery::executor
