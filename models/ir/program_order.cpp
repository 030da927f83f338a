#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "models/base/ids.h"
#include "models/ir/names.h"
#include "models/ir/op_traits.h"
#include "models/ir/program_check.h"

namespace orrery::ir {
namespace {

class BufferChecker {
 public:
  explicit BufferChecker(const Program& program) : p_(program) {}

  std::string run() {
    check_buffers();
    return std::move(problem_);
  }

 private:
  template <class... Args>
  bool fail(fmt::format_string<Args...> text, Args&&... args) {
    problem_ = fmt::format(text, std::forward<Args>(args)...);
    return false;
  }
  const Op& op(std::size_t i) const { return p_.ops[i]; }
  std::string describe(std::size_t i) const { return describe_op(p_, i); }

  /// One allocation or free of a rank.
  struct Change {
    std::tuple<BufferKind, std::int32_t, std::int32_t> buffer;  ///< Kind, segment, micro-batch.
    std::size_t order = 0;                                      ///< Op's index + 1; 0: resident.
    bool free = false;
    bool per_micro_batch = false;
    Bytes bytes;
  };

  bool check_buffers() {
    std::vector<Change> changes;
    for (std::size_t r = 0; r < p_.ranks.size(); ++r) {
      changes.clear();
      if (r < p_.resident.size()) {
        for (const BufferEffect& effect : p_.resident[r]) {
          if (effect.action != BufferEffect::Action::allocate || effect.per_micro_batch) {
            return fail("rank {} has a resident buffer that is not there from the start", r);
          }
          changes.push_back({{effect.kind, effect.segment, kNone}, 0, false, false, effect.bytes});
        }
      }
      for (std::size_t i = p_.stream_begin[r * kStreams]; i < p_.stream_begin[(r + 1) * kStreams];
           ++i) {
        if (!add_changes(i, changes)) return false;
      }
      if (!check_balance(r, changes)) return false;
    }
    return true;
  }

  bool add_changes(std::size_t i, std::vector<Change>& changes) {
    const Op& o = op(i);
    for (const BufferEffect& effect : p_.buffers_of(o)) {
      if (effect.action == BufferEffect::Action::transient) continue;
      if (effect.per_micro_batch && !o.micro_batch.valid()) {
        return fail("{} has no micro-batch, but its buffers are told apart by it", describe(i));
      }
      changes.push_back(
          {{effect.kind, effect.segment, effect.per_micro_batch ? o.micro_batch.value : kNone},
           i + 1,
           effect.action == BufferEffect::Action::free,
           effect.per_micro_batch,
           effect.bytes});
    }
    return true;
  }

  bool check_balance(std::size_t rank, std::vector<Change>& changes) {
    std::stable_sort(changes.begin(), changes.end(),
                     [](const Change& a, const Change& b) { return a.buffer < b.buffer; });
    for (auto begin = changes.begin(); begin != changes.end();) {
      const auto end = std::find_if(begin, changes.end(),
                                    [&](const Change& c) { return c.buffer != begin->buffer; });
      int live = 0;
      double bytes = 0;
      double largest = 0;
      bool serial = true;  // All in the compute stream: then they happen in this order.
      for (auto at = begin; at != end; ++at) {
        serial = serial && (at->order == 0 || op(at->order - 1).stream == Stream::compute);
      }
      for (auto at = begin; at != end; ++at) {
        live += at->free ? -1 : 1;
        bytes += at->free ? -at->bytes.value : at->bytes.value;
        largest = std::max(largest, at->bytes.value);
        if (serial && live < 0) {
          return fail("{} frees a buffer ({}) that is not allocated", describe(at->order - 1),
                      name_of(std::get<BufferKind>(at->buffer)));
        }
      }
      const char* kind = name_of(std::get<BufferKind>(begin->buffer));
      if (live < 0) return fail("rank {} frees a buffer ({}) twice", rank, kind);
      if (live > 0 && begin->per_micro_batch) {
        return fail("rank {} never frees a buffer ({}) of micro-batch {}", rank, kind,
                    std::get<2>(begin->buffer));
      }
      if (live == 0 && std::abs(bytes) > 1e-9 * largest) {
        return fail("rank {} frees more or fewer bytes of a buffer ({}) than it allocates", rank,
                    kind);
      }
      begin = end;
    }
    return true;
  }

  const Program& p_;
  std::string problem_;
};

class OrderChecker {
 public:
  explicit OrderChecker(const Program& program) : p_(program) {}

  /// Kahn's algorithm over nodes: an order of execution exists if it reaches all of them.
  std::string run() const {
    const std::vector<std::uint32_t> node = make_nodes();
    const std::size_t count = p_.ops.size();
    std::vector<std::uint32_t> waits(count);      // Edges into a node.
    std::vector<std::uint32_t> begin(count + 1);  // Edges out of a node, in `after`.
    for_each_edge([&](std::size_t before, std::size_t after) {
      ++waits[node[after]];
      ++begin[node[before] + 1];
    });
    for (std::size_t i = 0; i < count; ++i) begin[i + 1] += begin[i];
    std::vector<std::uint32_t> after(begin.back());
    std::vector<std::uint32_t> fill(begin.begin(), begin.end() - 1);
    for_each_edge(
        [&](std::size_t before, std::size_t next) { after[fill[node[before]]++] = node[next]; });
    std::vector<std::uint32_t> ready;
    for (std::uint32_t i = 0; i < count; ++i) {
      if (waits[i] == 0) ready.push_back(i);
    }
    while (!ready.empty()) {
      const std::uint32_t done = ready.back();
      ready.pop_back();
      for (std::uint32_t e = begin[done]; e < begin[done + 1]; ++e) {
        if (--waits[after[e]] == 0) ready.push_back(after[e]);
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (waits[i] > 0) return "a cycle: " + cycle(node, waits);
    }
    return "";
  }

 private:
  const Op& op(std::size_t i) const { return p_.ops[i]; }
  std::string describe(std::size_t i) const { return describe_op(p_, i); }

  /// Ops that start together are one node: a send and its recv, members of a collective or an op
  /// group.
  std::vector<std::uint32_t> make_nodes() const {
    std::vector<std::uint32_t> node(p_.ops.size());
    for (std::size_t i = 0; i < node.size(); ++i) {
      const bool second = is_transfer(op(i).kind) && as_size(op(i).match) < i;
      node[i] = static_cast<std::uint32_t>(second ? as_size(op(i).match) : i);
    }
    const auto join = [&](const Rendezvous& rendezvous) {
      const auto members = p_.members_of(rendezvous);
      for (const OpId member : members) {
        node[member.index()] = static_cast<std::uint32_t>(members.front().value);
      }
    };
    for (const Collective& collective : p_.collectives) join(collective.members);
    for (const Rendezvous& op_group : p_.op_groups) join(op_group);
    return node;
  }

  /// Calls visit(before, op) for each pair of ops in order: stream by stream, then dependencies.
  template <class Visit>
  void for_each_edge(Visit visit) const {
    for (std::size_t slot = 0; slot + 1 < p_.stream_begin.size(); ++slot) {
      if (static_cast<Stream>(slot % kStreams) == Stream::p2p) continue;
      for (std::size_t i = p_.stream_begin[slot] + 1; i < p_.stream_begin[slot + 1]; ++i) {
        visit(i - 1, i);
      }
    }
    for (std::size_t i = 0; i < p_.ops.size(); ++i) {
      for (const OpId before : p_.dependencies_of({static_cast<std::int32_t>(i)})) {
        visit(before.index(), i);
      }
    }
  }

  /// Ops of one cycle, for the message. Every node that still waits has one before it that does.
  std::string cycle(const std::vector<std::uint32_t>& node,
                    const std::vector<std::uint32_t>& waits) const {
    constexpr auto kNo = UINT32_MAX;
    std::vector<std::uint32_t> before(node.size(), kNo);
    std::uint32_t at = kNo;
    for_each_edge([&](std::size_t from, std::size_t to) {
      if (waits[node[from]] == 0 || waits[node[to]] == 0) return;
      before[node[to]] = node[from];
      at = node[to];
    });
    std::vector<bool> seen(node.size());
    while (!seen[at]) {
      seen[at] = true;
      at = before[at];
    }
    std::string text;
    constexpr int kShown = 6;
    const std::uint32_t start = at;
    for (int shown = 0; shown < kShown; ++shown) {
      text += describe(at) + " waits for ";
      at = before[at];
      if (at == start) break;
    }
    return text + (at == start ? describe(at) : "... for the first");
  }

  const Program& p_;
};

}  // namespace

std::string find_buffer_defect(const Program& program) { return BufferChecker(program).run(); }

std::string find_order_defect(const Program& program) { return OrderChecker(program).run(); }

}  // namespace orrery::ir
