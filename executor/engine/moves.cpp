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
  ORRERY_CHECK(held.begin <= region.begin && region.end <= held.end,
               "units {}-{} of parameter {} of block {} where {}-{} are held", region.begin,
               region.end, region.parameter, block.value, held.begin, held.end);
  const bool gradient = region.tensor == ir::TensorKind::gradient;
  return part(gradient ? held.gradient : held.weight,
              as_size((region.begin - held.begin) * held.info.unit),
              as_size((region.end - held.begin) * held.info.unit));
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

OpGroupRing::OpGroupRing(Backend& backend, Transport& transport, RingGroup group,
                         const RingTag& tag)
    : backend_(backend), transport_(transport), group_(std::move(group)), tag_(tag) {}

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
    all_gather(transport_, group_, element, all, parts, tag_);
    if (element == ElementType::f32) {
      take_maximum<float>(all, n, data);
    } else {
      take_maximum<double>(all, n, data);
    }
    bytes_ += ring_bytes(all.size(), degree(), 1);
  });
  tag_.first_part += 2 * static_cast<std::uint64_t>(degree());
}

}  // namespace orrery::executor
