#include "calibration/importers/recorded_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>
#include <utility>

#include "models/base/check.h"
#include "models/base/ids.h"
#include "models/ir/names.h"
#include "models/ir/op_traits.h"
#include "models/ir/wire.h"

namespace orrery::calibration {
namespace {

/// An op of a rank.
struct At {
  std::size_t rank = 0;
  std::uint32_t op = 0;
  auto operator<=>(const At&) const = default;
};

/// Ops of several ranks that start and end together.
struct Meeting {
  std::vector<At> members;          ///< Of a collective in the order of its group; send, recv.
  std::vector<std::int64_t> ranks;  ///< The group.
  ir::CollectiveKind collective{};
  Bytes bytes;  ///< Full tensor, or the message.
};

bool is_communication(ir::OpKind kind) {
  return kind == ir::OpKind::collective || ir::is_transfer(kind);
}

/// Of a run, in nanoseconds; no op begins or lasts longer, as its reader sees to.
constexpr std::int64_t kMostTime = std::numeric_limits<std::int64_t>::max() / 4;

/// Host ops of a rank follow one another like those of a stream.
constexpr std::int64_t kHost = -2;
std::int64_t stream_of(const RecordedOp& op) {
  return op.kind == ir::OpKind::host ? kHost : op.stream;
}

Instant end_of(const RecordedOp& op) { return op.start + op.duration; }

class Builder {
 public:
  Builder(const RecordedRun& run, std::int32_t devices, config::Diagnostics& diagnostics)
      : run_(run), devices_(devices), diagnostics_(diagnostics), starts_(run.ranks.size()) {
    for (std::size_t r = 0; r < run.ranks.size(); ++r) {
      for (const RecordedOp& op : run.ranks[r].ops) starts_[r].push_back(op.start);
    }
  }

  RecordedProgram build() {
    const std::size_t before = diagnostics_.problems().size();
    check_durations();
    place_ranks();
    meet_collectives();
    meet_messages();
    if (diagnostics_.problems().size() != before) return {};
    index_meetings();
    if (!(run_.timed ? align_clocks() : schedule())) return {};
    for (std::size_t r = 0; r < run_.ranks.size(); ++r) add_rank(r);
    finish();
    if (const std::string defect = ir::find_defect(out_.program); !defect.empty()) {
      fail(0, "its ops cannot run in their order: " + defect);
      return {};
    }
    out_.log.program_hash = ir::program_hash(out_.program);
    return std::move(out_);
  }

 private:
  /// An op of the program before all ops have their places.
  struct Placed {
    ir::Op op;
    std::size_t number = 0;  ///< Among those of its rank, by start.
    Instant start;
    Nanoseconds duration;
    std::vector<std::size_t> after;  ///< Indices into placed_.
  };

  void fail(std::size_t rank, std::string what, std::string hint = "") {
    diagnostics_.add({run_.ranks[rank].file, 0, 0}, std::move(what), std::move(hint));
  }
  const RecordedOp& op(At at) const { return run_.ranks[at.rank].ops[at.op]; }

  /// Whatever runs after whatever, the time is a number.
  void check_durations() {
    std::int64_t sum = 0;
    for (std::size_t r = 0; r < run_.ranks.size(); ++r) {
      for (const RecordedOp& one : run_.ranks[r].ops) {
        if (one.duration.count <= kMostTime - sum) {
          sum += one.duration.count;
          continue;
        }
        return fail(r, fmt::format("{}: with it, ops take more than 73 years in all", one.name));
      }
    }
  }

  void place_ranks() {
    std::vector<std::int64_t> taken;
    for (std::size_t r = 0; r < run_.ranks.size(); ++r) {
      const std::int64_t device = run_.ranks[r].device.value_or(static_cast<std::int64_t>(r));
      if (device < 0 || device >= devices_) {
        fail(r, fmt::format("rank {} is on device {} of a cluster of {}", r, device, devices_),
             "name a cluster with as many GPUs as the run had");
        continue;
      }
      if (std::find(taken.begin(), taken.end(), device) != taken.end()) {
        fail(r, fmt::format("rank {} is on device {}, as another rank is", r, device));
      }
      taken.push_back(device);
      ir::Rank rank;
      rank.device = {static_cast<std::int32_t>(device)};
      rank.devices = {rank.device};
      rank.position = static_cast<std::int32_t>(r);
      out_.program.ranks.push_back(std::move(rank));
    }
  }

  void meet_collectives() {
    std::map<std::string, std::map<std::int64_t, std::vector<At>>> found;
    for (std::size_t r = 0; r < run_.ranks.size(); ++r) {
      for (const std::uint32_t i : by_start(r)) {
        const RecordedOp& one = run_.ranks[r].ops[i];
        if (one.kind != ir::OpKind::collective) continue;
        found[one.group][static_cast<std::int64_t>(r)].push_back({r, i});
      }
    }
    for (const auto& [group, by_rank] : found) meet_group(group, by_rank);
  }

  void meet_group(const std::string& group,
                  const std::map<std::int64_t, std::vector<At>>& by_rank) {
    const auto first_rank = static_cast<std::size_t>(by_rank.begin()->first);
    const auto known = run_.groups.find(group);
    if (known == run_.groups.end()) {
      return fail(first_rank, fmt::format("nothing says which ranks process group '{}' has, in {}",
                                          group, op(by_rank.begin()->second.front()).name));
    }
    const std::vector<std::int64_t>& ranks = known->second;
    for (const auto& [rank, ops] : by_rank) {
      if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) continue;
      return fail(static_cast<std::size_t>(rank),
                  fmt::format("rank {} takes part in {} of process group '{}', which it is not in",
                              rank, op(ops.front()).name, group));
    }
    std::size_t count = 0;
    for (const std::int64_t rank : ranks) {
      if (rank < 0 || as_size(rank) >= run_.ranks.size()) {
        return fail(first_rank,
                    fmt::format("process group '{}' has rank {}, of which there is no "
                                "trace",
                                group, rank),
                    "give the traces of all ranks");
      }
      const auto of = by_rank.find(rank);
      const std::size_t own = of == by_rank.end() ? 0 : of->second.size();
      if (rank == ranks.front()) count = own;
      if (own != count) {
        return fail(as_size(rank),
                    fmt::format("{} collectives of process group '{}', rank {} has {}", own, group,
                                ranks.front(), count),
                    "the traces must cover the same steps");
      }
    }
    for (std::size_t k = 0; k < count; ++k) {
      Meeting meeting{{}, ranks, op(by_rank.at(ranks.front())[k]).collective, {}};
      Bytes sum;
      Bytes most;
      for (const std::int64_t rank : ranks) {
        const At at = by_rank.at(rank)[k];
        if (op(at).collective != meeting.collective) {
          return fail(at.rank,
                      fmt::format("collective {} of process group '{}', {}, is {}; rank {} has {}",
                                  k, group, op(at).name, ir::name_of(op(at).collective),
                                  ranks.front(), ir::name_of(meeting.collective)));
        }
        sum += op(at).bytes;
        most = std::max(most, op(at).bytes);
        meeting.members.push_back(at);
      }
      const bool gathers = meeting.collective == ir::CollectiveKind::all_gather ||
                           meeting.collective == ir::CollectiveKind::all_to_all;
      meeting.bytes = gathers ? sum : most;
      meetings_.push_back(std::move(meeting));
    }
  }

  void meet_messages() {
    std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>,
             std::pair<std::vector<At>, std::vector<At>>>
        found;
    for (std::size_t r = 0; r < run_.ranks.size(); ++r) {
      for (const std::uint32_t i : by_start(r)) {
        const RecordedOp& one = run_.ranks[r].ops[i];
        if (!ir::is_transfer(one.kind)) continue;
        const auto self = static_cast<std::int64_t>(r);
        if (one.peer < 0 || as_size(one.peer) >= run_.ranks.size() || one.peer == self) {
          fail(r,
               fmt::format("{}: its peer is rank {} of {}", one.name, one.peer, run_.ranks.size()));
          continue;
        }
        const bool sends = one.kind == ir::OpKind::send;
        auto& ends = found[{sends ? self : one.peer, sends ? one.peer : self, one.tag}];
        (sends ? ends.first : ends.second).push_back({r, i});
      }
    }
    for (const auto& [key, ends] : found) {
      const auto& [source, destination, tag] = key;
      const auto& [sends, receives] = ends;
      if (sends.size() != receives.size()) {
        fail(as_size(source),
             fmt::format("{} messages to rank {} with tag {}, which takes {}", sends.size(),
                         destination, tag, receives.size()),
             "the traces must cover the same steps");
        continue;
      }
      for (std::size_t k = 0; k < sends.size(); ++k) {
        meetings_.push_back(
            {{sends[k], receives[k]}, {}, {}, std::max(op(sends[k]).bytes, op(receives[k]).bytes)});
      }
    }
  }

  void index_meetings() {
    for (const RecordedRank& rank : run_.ranks)
      meeting_of_.emplace_back(rank.ops.size(), kNoMeeting);
    for (std::size_t m = 0; m < meetings_.size(); ++m) {
      for (const At at : meetings_[m].members) meeting_of_[at.rank][at.op] = m;
    }
  }

  /// Ops of a rank in the order in which they started; of untimed runs in that of the trace.
  std::vector<std::uint32_t> by_start(std::size_t rank) const {
    std::vector<std::uint32_t> order(run_.ranks[rank].ops.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return starts_[rank][a] < starts_[rank][b];
    });
    return order;
  }

  /// What ranks did together ended at one time: the differences are those of their clocks. False,
  /// with a problem, if these are years.
  bool align_clocks() {
    std::map<std::pair<std::size_t, std::size_t>, std::vector<std::int64_t>> differences;
    for (const Meeting& meeting : meetings_) {
      const At first = meeting.members.front();
      for (const At other : meeting.members) {
        if (other.rank == first.rank) continue;
        const std::int64_t difference = (end_of(op(other)) - end_of(op(first))).count;
        differences[{first.rank, other.rank}].push_back(difference);
        differences[{other.rank, first.rank}].push_back(-difference);
      }
    }
    std::vector<std::optional<std::int64_t>> offsets(run_.ranks.size());
    std::vector<std::int64_t> uncertain(run_.ranks.size());
    for (std::size_t root = 0; root < offsets.size(); ++root) {
      if (offsets[root]) continue;
      // A rank that met no other began when rank 0 did.
      offsets[root] = (first_start(root) - first_start(0)).count;
      std::queue<std::size_t> next({root});
      while (!next.empty()) {
        const std::size_t from = next.front();
        next.pop();
        for (auto edge = differences.lower_bound({from, 0});
             edge != differences.end() && edge->first.first == from; ++edge) {
          const std::size_t to = edge->first.second;
          if (offsets[to]) continue;
          std::vector<std::int64_t>& found = edge->second;
          std::sort(found.begin(), found.end());
          std::int64_t offset = 0;
          if (__builtin_add_overflow(*offsets[from], found[found.size() / 2], &offset) ||
              offset < -kMostTime || offset > kMostTime) {
            fail(to, fmt::format("rank {} and rank {} have clocks that differ by years", to, root));
            return false;
          }
          offsets[to] = offset;
          const std::int64_t spread = found[found.size() * 3 / 4] - found[found.size() / 4];
          if (__builtin_add_overflow(uncertain[from], spread, &uncertain[to])) {
            uncertain[to] = std::numeric_limits<std::int64_t>::max();
          }
          next.push(to);
        }
      }
    }
    std::int64_t earliest = std::numeric_limits<std::int64_t>::max();
    for (std::size_t r = 0; r < offsets.size(); ++r) {
      if (starts_[r].empty()) continue;
      earliest = std::min(earliest, first_start(r).nanoseconds - *offsets[r]);
    }
    for (std::size_t r = 0; r < offsets.size(); ++r) {
      for (std::size_t i = 0; i < starts_[r].size(); ++i) {
        Instant& start = starts_[r][i];
        start.nanoseconds -= *offsets[r] + earliest;
        if (start.nanoseconds <= kMostTime) continue;
        fail(r, fmt::format("{}: it starts more than 73 years after the first op",
                            run_.ranks[r].ops[i].name));
        return false;
      }
      out_.log.clocks.push_back(
          {{static_cast<std::int32_t>(r)}, {*offsets[r] - *offsets[0]}, {uncertain[r]}});
    }
    return true;
  }

  Instant first_start(std::size_t rank) const {
    if (starts_[rank].empty()) return {};
    return *std::min_element(starts_[rank].begin(), starts_[rank].end());
  }

  /// Starts of an untimed run: ops of a stream one at a time, the first that can start first;
  /// communication takes no time. False, with a problem, if ranks wait for each other.
  bool schedule() {
    struct State {
      std::vector<std::vector<std::uint32_t>> next;
      std::vector<std::uint32_t> waits;
      std::vector<std::int64_t> ready;
      std::map<std::int64_t, std::int64_t> free;
    };
    std::vector<State> states(run_.ranks.size());
    using Event = std::tuple<std::int64_t, std::size_t, std::uint32_t>;  // when, rank, op
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
    std::size_t left = 0;
    for (std::size_t r = 0; r < states.size(); ++r) {
      const auto& ops = run_.ranks[r].ops;
      State& state = states[r];
      state.next.resize(ops.size());
      state.waits.resize(ops.size());
      state.ready.resize(ops.size());
      left += ops.size();
      for (std::uint32_t i = 0; i < ops.size(); ++i) {
        for (const std::uint32_t before : ops[i].after) state.next[before].push_back(i);
        state.waits[i] = static_cast<std::uint32_t>(ops[i].after.size());
        if (state.waits[i] == 0) events.emplace(0, r, i);
      }
    }
    std::vector<std::size_t> arrived(meetings_.size());
    const auto end = [&](At at, std::int64_t when) {
      --left;
      State& state = states[at.rank];
      for (const std::uint32_t after : state.next[at.op]) {
        state.ready[after] = std::max(state.ready[after], when);
        if (--state.waits[after] == 0) events.emplace(state.ready[after], at.rank, after);
      }
    };
    while (!events.empty()) {
      const auto [when, r, i] = events.top();
      events.pop();
      const RecordedOp& one = run_.ranks[r].ops[i];
      const std::size_t m = meeting_of_[r][i];
      if (m == kNoMeeting) {
        std::int64_t& free = states[r].free[stream_of(one)];
        const std::int64_t start =
            one.stream < 0 && one.kind != ir::OpKind::host ? when : std::max(when, free);
        free = start + one.duration.count;
        starts_[r][i] = {start};
        end({r, i}, free);
        continue;
      }
      starts_[r][i] = {when};
      if (++arrived[m] < meetings_[m].members.size()) continue;
      for (const At member : meetings_[m].members) end(member, when);  // the last one's time
    }
    if (left == 0) return true;
    for (std::size_t r = 0; r < states.size(); ++r) {
      for (std::uint32_t i = 0; i < states[r].waits.size(); ++i) {
        if (states[r].waits[i] == 0) continue;
        fail(r, fmt::format("{} never starts: ops wait for each other in a circle",
                            run_.ranks[r].ops[i].name));
        return false;
      }
    }
    fail(0, "ranks wait for each other in a circle");
    return false;
  }

  /// The stream with most of what `weigh` counts; -1 if there is none.
  template <class Weigh>
  std::int64_t main_stream(std::size_t rank, Weigh weigh) const {
    std::map<std::int64_t, std::int64_t> sums;
    for (const RecordedOp& one : run_.ranks[rank].ops) {
      if (one.stream >= 0) sums[one.stream] += weigh(one);
    }
    std::int64_t best = -1;
    std::int64_t most = 0;
    for (const auto& [stream, sum] : sums) {
      if (sum > most) std::tie(best, most) = std::pair(stream, sum);
    }
    return best;
  }

  void add_rank(std::size_t r) {
    const auto& ops = run_.ranks[r].ops;
    const std::int64_t compute = main_stream(r, [](const RecordedOp& one) {
      return one.kind == ir::OpKind::kernel ? one.duration.count + 1 : 0;
    });
    const std::int64_t collectives = main_stream(r, [](const RecordedOp& one) {
      return one.kind == ir::OpKind::collective ? std::int64_t{1} : std::int64_t{0};
    });
    const std::size_t base = placed_.size();
    first_of_rank_.push_back(base);
    placed_.resize(base + ops.size());
    std::map<std::int64_t, std::uint32_t> last;  // op of a stream
    std::size_t number = 0;
    for (const std::uint32_t i : by_start(r)) {
      const RecordedOp& one = ops[i];
      Placed placed;
      placed.number = number++;
      placed.op.kind = one.kind;
      placed.op.rank = {static_cast<std::int32_t>(r)};
      placed.op.stream = ir::Stream::p2p;
      if (one.kind == ir::OpKind::kernel && one.stream >= 0 && one.stream == compute) {
        placed.op.stream = ir::Stream::compute;
      } else if (one.kind == ir::OpKind::collective && one.stream >= 0 &&
                 one.stream == collectives && collectives != compute) {
        placed.op.stream = ir::Stream::collective;
      }
      if (one.kind == ir::OpKind::collective) placed.op.purpose = ir::Purpose::data_parallel;
      placed.start = starts_[r][i];
      placed.duration = one.duration;
      Instant ready{0};
      const auto wait_for = [&](std::uint32_t before) {
        placed.after.push_back(base + before);
        ready = std::max(ready, starts_[r][before] + ops[before].duration);
      };
      for (const std::uint32_t before : one.after) wait_for(before);
      const std::int64_t stream = stream_of(one);
      if (stream != -1) {
        if (const auto before = last.find(stream); before != last.end()) wait_for(before->second);
        last[stream] = i;
      }
      if (run_.timed && placed.start > ready) {
        Placed gap;
        gap.number = number++;
        gap.op.kind = ir::OpKind::host;
        gap.op.rank = placed.op.rank;
        gap.op.stream = ir::Stream::p2p;
        gap.start = ready;
        gap.duration = placed.start - ready;
        gap.after = placed.after;
        placed.after = {placed_.size()};
        placed_.push_back(std::move(gap));
      }
      placed_[base + i] = std::move(placed);
    }
  }

  /// Gives ops their places in the program, and says what they do together.
  void finish() {
    std::vector<std::size_t> order(placed_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    const auto key = [&](std::size_t i) {
      const Placed& one = placed_[i];
      return std::tuple(one.op.rank, one.op.stream, one.start, one.number);
    };
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
    std::vector<OpId> id(placed_.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      id[order[i]] = {static_cast<std::int32_t>(i)};
    }
    ir::Program& program = out_.program;
    program.pipelines.resize(1);
    program.resident.resize(program.ranks.size());
    add_meetings(id);
    program.stream_begin.assign(program.ranks.size() * ir::kStreams + 1, 0);
    program.dependency_begin.push_back(0);
    Instant end{0};
    for (const std::size_t i : order) {
      Placed& one = placed_[i];
      const std::size_t slot = one.op.rank.index() * ir::kStreams + index_of(one.op.stream);
      ++program.stream_begin[slot + 1];
      std::vector<OpId> after;
      for (const std::size_t before : one.after) after.push_back(id[before]);
      std::sort(after.begin(), after.end());
      after.erase(std::unique(after.begin(), after.end()), after.end());
      program.dependencies.insert(program.dependencies.end(), after.begin(), after.end());
      program.dependency_begin.push_back(static_cast<std::uint32_t>(program.dependencies.size()));
      out_.log.spans.push_back(
          {one.op.rank, id[i], one.start, one.start + one.duration, {}, one.op.bytes, {}});
      end = std::max(end, out_.log.spans.back().end);
      program.ops.push_back(one.op);
    }
    for (std::size_t slot = 1; slot < program.stream_begin.size(); ++slot) {
      program.stream_begin[slot] += program.stream_begin[slot - 1];
    }
    out_.log.source = run_.source;
    if (run_.timed) out_.log.iterations.push_back({0, Instant{0}, end});
  }

  void add_meetings(const std::vector<OpId>& id) {
    ir::Program& program = out_.program;
    std::map<std::vector<std::int64_t>, std::int32_t> groups;
    std::map<std::tuple<ir::CollectiveKind, std::int32_t, double>, std::int32_t> shapes;
    const auto placed = [&](At at) { return first_of_rank_[at.rank] + at.op; };
    for (const Meeting& meeting : meetings_) {
      if (meeting.ranks.empty()) {
        const std::size_t send = placed(meeting.members[0]);
        const std::size_t recv = placed(meeting.members[1]);
        const auto set = static_cast<std::int32_t>(program.transfer_sets.size());
        program.transfer_sets.push_back(
            {{program.ranks[meeting.members[0].rank].device,
              program.ranks[meeting.members[1].rank].device, meeting.bytes}});
        for (const std::size_t i : {send, recv}) {
          placed_[i].op.transfers = set;
          placed_[i].op.bytes = meeting.bytes;
        }
        placed_[send].op.match = id[recv].value;
        placed_[recv].op.match = id[send].value;
        continue;
      }
      const auto [group, new_group] =
          groups.try_emplace(meeting.ranks, static_cast<std::int32_t>(program.groups.size()));
      if (new_group) {
        ir::CommunicationGroup& devices = program.groups.emplace_back();
        for (const std::int64_t rank : meeting.ranks) {
          devices.devices.push_back(program.ranks[as_size(rank)].device);
        }
      }
      const auto [shape, new_shape] =
          shapes.try_emplace({meeting.collective, group->second, meeting.bytes.value},
                             static_cast<std::int32_t>(program.collective_shapes.size()));
      if (new_shape) {
        program.collective_shapes.push_back({meeting.collective,
                                             ir::Purpose::data_parallel,
                                             {{group->second, meeting.bytes, {}}},
                                             ir::kNone});
      }
      const auto number = static_cast<std::int32_t>(program.collectives.size());
      program.collectives.push_back({shape->second,
                                     {static_cast<std::uint32_t>(program.members.size()),
                                      static_cast<std::uint32_t>(meeting.members.size())}});
      for (const At member : meeting.members) {
        const std::size_t i = placed(member);
        placed_[i].op.match = number;
        placed_[i].op.bytes = meeting.bytes;
        program.members.push_back(id[i]);
      }
    }
  }

  const RecordedRun& run_;
  const std::int32_t devices_;
  config::Diagnostics& diagnostics_;
  static constexpr std::size_t kNoMeeting = SIZE_MAX;
  std::vector<Meeting> meetings_;
  std::vector<std::vector<std::size_t>> meeting_of_;  ///< By rank and op.
  std::vector<std::vector<Instant>> starts_;          ///< By rank and op, on one clock.
  std::vector<Placed> placed_;              ///< Those of the trace by rank, then its gaps.
  std::vector<std::size_t> first_of_rank_;  ///< Into placed_.
  RecordedProgram out_;
};

/// Ops that start and end together as one, and what comes after what.
struct JoinedOps {
  std::vector<std::size_t> node;               ///< By op: the first of those that meet.
  std::vector<std::vector<std::size_t>> next;  ///< By node.
  std::vector<std::uint32_t> waits;            ///< By node: edges into it.

  explicit JoinedOps(const ir::Program& program)
      : node(program.ops.size()), next(program.ops.size()), waits(program.ops.size()) {
    for (std::size_t i = 0; i < node.size(); ++i) {
      const ir::Op& op = program.ops[i];
      node[i] = i;
      if (ir::is_transfer(op.kind)) node[i] = std::min(i, as_size(op.match));
      if (op.kind == ir::OpKind::collective) {
        node[i] = program.members_of(program.collective_of(op).members).front().index();
      }
    }
    const auto edge = [&](std::size_t before, std::size_t after) {
      next[node[before]].push_back(node[after]);
      ++waits[node[after]];
    };
    for (std::size_t i = 0; i < node.size(); ++i) {
      const ir::Op& op = program.ops[i];
      const std::size_t slot = op.rank.index() * ir::kStreams + index_of(op.stream);
      if (op.stream != ir::Stream::p2p && i > program.stream_begin[slot]) edge(i - 1, i);
      for (const OpId before : program.dependencies_of({static_cast<std::int32_t>(i)})) {
        edge(before.index(), i);
      }
    }
  }

  /// Nodes that wait for nothing.
  std::vector<std::size_t> ready() const {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < node.size(); ++i) {
      if (node[i] == i && waits[i] == 0) found.push_back(i);
    }
    return found;
  }
};

}  // namespace

RecordedProgram to_program(const RecordedRun& run, std::int32_t devices,
                           config::Diagnostics& diagnostics) {
  ORRERY_CHECK(!run.ranks.empty(), "a recorded run without ranks");
  return Builder(run, devices, diagnostics).build();
}

std::vector<Seconds> recorded_times(const ir::Program& program, const ir::RunLog& log) {
  std::vector<Seconds> times(program.ops.size());
  for (const ir::Span& span : log.spans) {
    const ir::OpKind kind = program.op(span.op).kind;
    if (is_communication(kind)) continue;
    times[span.op.index()] = to_seconds(span.end - span.start);
  }
  return times;
}

Seconds replayed_as_recorded(const ir::Program& program, const ir::RunLog& log) {
  JoinedOps ops(program);
  const std::size_t count = program.ops.size();
  std::vector<std::int64_t> length(count, std::numeric_limits<std::int64_t>::max());
  for (const ir::Span& span : log.spans) {
    std::int64_t& own = length[ops.node[span.op.index()]];
    own = std::min(own, (span.end - span.start).count);
  }
  std::vector<std::int64_t> start(count);
  std::vector<std::size_t> ready = ops.ready();
  std::int64_t last = 0;
  while (!ready.empty()) {
    const std::size_t at = ready.back();
    ready.pop_back();
    const std::int64_t end = start[at] + length[at];
    last = std::max(last, end);
    for (const std::size_t after : ops.next[at]) {
      start[after] = std::max(start[after], end);
      if (--ops.waits[after] == 0) ready.push_back(after);
    }
  }
  return to_seconds(Nanoseconds{last});
}

std::vector<std::size_t> common_order(const ir::Program& program, const ir::RunLog& log) {
  JoinedOps ops(program);
  const std::size_t count = program.ops.size();
  std::vector<std::int64_t> met(count, std::numeric_limits<std::int64_t>::min());
  for (const ir::Span& span : log.spans) {
    std::int64_t& last = met[ops.node[span.op.index()]];
    last = std::max(last, span.start.nanoseconds);
  }
  using Next = std::pair<std::int64_t, std::size_t>;
  std::priority_queue<Next, std::vector<Next>, std::greater<>> ready;
  for (const std::size_t at : ops.ready()) ready.emplace(met[at], at);
  std::vector<std::size_t> place(count);
  std::size_t number = 0;
  while (!ready.empty()) {
    const std::size_t at = ready.top().second;
    ready.pop();
    place[at] = number++;
    for (const std::size_t after : ops.next[at]) {
      if (--ops.waits[after] == 0) ready.emplace(met[after], after);
    }
  }
  for (std::size_t i = 0; i < count; ++i) place[i] = place[ops.node[i]];
  return place;
}

}  // namespace orrery::calibration
