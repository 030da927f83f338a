#include "executor/net/ring.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "models/base/check.h"

namespace orrery::executor {
namespace {

/// Pieces of a broadcast; the pipeline's fill costs one piece for each further member.
constexpr std::size_t kBroadcastPiece = 256 * 1024;

template <class T>
void add_elements(std::byte* to, const std::byte* from, std::size_t count) {
  T* x = reinterpret_cast<T*>(to);
  const T* y = reinterpret_cast<const T*>(from);
  for (std::size_t i = 0; i < count; ++i) x[i] += y[i];
}

float widen(std::uint16_t value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

/// To nearest, ties to even; not-a-numbers stay so.
std::uint16_t narrow(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (value != value) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void add_bf16(std::byte* to, const std::byte* from, std::size_t count) {
  auto* x = reinterpret_cast<std::uint16_t*>(to);
  const auto* y = reinterpret_cast<const std::uint16_t*>(from);
  for (std::size_t i = 0; i < count; ++i) x[i] = narrow(widen(x[i]) + widen(y[i]));
}

void add(ElementType element, std::byte* to, const std::byte* from, std::size_t count) {
  switch (element) {
    case ElementType::f32:
      return add_elements<float>(to, from, count);
    case ElementType::f64:
      return add_elements<double>(to, from, count);
    case ElementType::bf16:
      return add_bf16(to, from, count);
  }
}

/// The steps of a ring: at each one the member sends one extent to the next and gets one from the
/// member before. Extents go in pieces of their own tags when nothing else.
class Ring {
 public:
  Ring(Transport& transport, const RingGroup& group, ElementType element, std::span<std::byte> data,
       const std::vector<Extent>& parts, const RingTag& tag)
      : transport_(transport),
        group_(group),
        element_(element),
        width_(size_of(element)),
        data_(data),
        parts_(parts),
        tag_(tag) {
    ORRERY_CHECK(static_cast<int>(parts.size()) == group.size(), "{} parts for {} members",
                 parts.size(), group.size());
    std::size_t longest = 0;
    for (const Extent& part : parts) {
      ORRERY_CHECK(part.begin <= part.end && part.end * width_ <= data.size(),
                   "part {}-{} of {} bytes", part.begin, part.end, data.size());
      longest = std::max(longest, part.size());
    }
    staging_.resize(longest * width_);
  }

  /// After n - 1 steps member i has the sum of part i: part p travels from member p + 1 around to
  /// p.
  void scatter(std::uint64_t first_step) {
    const int n = group_.size();
    for (int s = 0; s < n - 1; ++s) {
      const int send = wrap(group_.position - 1 - s);
      const int get = wrap(group_.position - 2 - s);
      step(send, get, first_step + static_cast<std::uint64_t>(s), true);
    }
  }

  void gather(std::uint64_t first_step) {
    const int n = group_.size();
    for (int s = 0; s < n - 1; ++s) {
      const int send = wrap(group_.position - s);
      const int get = wrap(group_.position - 1 - s);
      step(send, get, first_step + static_cast<std::uint64_t>(s), false);
    }
  }

 private:
  int wrap(int i) const {
    const int n = group_.size();
    return ((i % n) + n) % n;
  }
  std::span<std::byte> bytes(int part) const {
    const Extent& extent = parts_[part];
    return data_.subspan(extent.begin * width_, extent.size() * width_);
  }

  void step(int send, int get, std::uint64_t number, bool sum) {
    const int next = group_.ranks[wrap(group_.position + 1)];
    const int before = group_.ranks[wrap(group_.position - 1)];
    const Tag tag = make_tag(tag_.step, tag_.op, tag_.first_part + number);
    const std::span<std::byte> to = bytes(get);
    const std::span<std::byte> into = sum ? std::span<std::byte>(staging_).first(to.size()) : to;
    RequestPointer received;
    RequestPointer sent;
    if (!into.empty()) received = transport_.receive(before, tag, into);
    if (!bytes(send).empty()) sent = transport_.send(next, tag, bytes(send));
    if (received) received->wait();
    if (sum) add(element_, to.data(), staging_.data(), to.size() / width_);
    if (sent) sent->wait();
  }

  Transport& transport_;
  const RingGroup& group_;
  ElementType element_;
  std::size_t width_;
  std::span<std::byte> data_;
  const std::vector<Extent>& parts_;
  RingTag tag_;
  std::vector<std::byte> staging_;
};

}  // namespace

std::size_t size_of(ElementType element) {
  switch (element) {
    case ElementType::f32:
      return 4;
    case ElementType::f64:
      return 8;
    case ElementType::bf16:
      return 2;
  }
  ORRERY_CHECK(false, "element {}", static_cast<int>(element));
  return 0;
}

std::vector<Extent> even_parts(std::size_t length, int n) {
  std::vector<Extent> parts;
  const std::size_t count = n;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t size = length / count + (i < length % count ? 1 : 0);
    parts.push_back({begin, begin + size});
    begin += size;
  }
  return parts;
}

void all_reduce(Transport& transport, const RingGroup& group, ElementType element,
                std::span<std::byte> data, const RingTag& tag) {
  if (group.size() < 2) return;
  const auto parts = even_parts(data.size() / size_of(element), group.size());
  Ring ring(transport, group, element, data, parts, tag);
  ring.scatter(0);
  ring.gather(static_cast<std::uint64_t>(group.size()));
}

void reduce_scatter(Transport& transport, const RingGroup& group, ElementType element,
                    std::span<std::byte> data, const std::vector<Extent>& parts,
                    const RingTag& tag) {
  if (group.size() < 2) return;
  Ring(transport, group, element, data, parts, tag).scatter(0);
}

void all_gather(Transport& transport, const RingGroup& group, ElementType element,
                std::span<std::byte> data, const std::vector<Extent>& parts, const RingTag& tag) {
  if (group.size() < 2) return;
  Ring(transport, group, element, data, parts, tag).gather(0);
}

void broadcast(Transport& transport, const RingGroup& group, std::span<std::byte> data,
               const RingTag& tag) {
  if (group.size() < 2 || data.empty()) return;
  const std::size_t pieces = std::clamp<std::size_t>(
      (data.size() + kBroadcastPiece - 1) / kBroadcastPiece, 1, kMostBroadcastPieces);
  const bool first = group.position == 0;
  const bool last = group.position + 1 == group.size();
  const std::size_t position = group.position;
  std::vector<RequestPointer> received;
  std::vector<RequestPointer> sent;
  const std::vector<Extent> extents = even_parts(data.size(), static_cast<int>(pieces));
  const auto piece = [&](std::size_t i) {
    return data.subspan(extents[i].begin, extents[i].size());
  };
  const auto tag_of = [&](std::size_t i) { return make_tag(tag.step, tag.op, tag.first_part + i); };
  for (std::size_t i = 0; !first && i < pieces; ++i) {
    received.push_back(transport.receive(group.ranks[position - 1], tag_of(i), piece(i)));
  }
  for (std::size_t i = 0; i < pieces; ++i) {
    if (!first) received[i]->wait();
    if (!last) sent.push_back(transport.send(group.ranks[position + 1], tag_of(i), piece(i)));
  }
  for (const RequestPointer& request : sent) request->wait();
}

}  // namespace orrery::executor
