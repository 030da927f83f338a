#include "executor/bench/network_bench.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <string>

#include "executor/launcher/messages.h"
#include "executor/net/clock.h"
#include "executor/net/ring.h"
#include "models/base/check.h"

namespace orrery::executor {
namespace {

using ir::CollectiveKind;
using ir::MeasurementKind;

/// Parts of the tag (case, repetition, part).
enum Part : std::uint64_t { kAsk, kAnswer, kGo, kReady, kStart, kData, kBack, kTimes, kRing = 16 };
/// Repetition numbers of the exchanges that compare clocks; those of samples are below.
constexpr std::uint64_t kClockOp = 0xfff000;
constexpr int kClockRounds = 16;

struct ClockAnswer {
  std::int64_t now_ns = 0;
  std::uint64_t machine = 0;
};

/// When a member began and ended, on its own clock.
struct MemberTimes {
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
};

std::uint64_t this_machine() {
  static const std::uint64_t kHash = std::hash<std::string>()(boot_id());
  return kHash;
}

/// One rank's side of a case.
class Member {
 public:
  Member(const BenchCase& one, std::uint64_t number, Transport& transport,
         const RankOfDevice& ranks)
      : case_(one), number_(number), transport_(transport) {
    for (const DeviceId device : one.devices) group_.ranks.push_back(ranks.at(device));
    const auto me = std::find(group_.ranks.begin(), group_.ranks.end(), transport.rank());
    ORRERY_CHECK(me != group_.ranks.end(), "rank {} has no part in its case", transport.rank());
    group_.position = static_cast<int>(me - group_.ranks.begin());
    const auto bytes = static_cast<std::size_t>(one.key.bytes.value);
    const bool message = one.key.kind == MeasurementKind::point_to_point;
    out_.resize(message ? bytes : bytes / sizeof(float) * sizeof(float));
    if (message) in_.resize(bytes);
  }

  void lead(const SamplingRule& rule, const std::vector<ir::Measurement>& before,
            const BenchSink& sink) {
    Sampler sampler(rule, before);
    compare_clocks();
    auto op = static_cast<std::uint64_t>(sampler.next_repetition());
    tell(kClockOp + kClockRounds, kGo, op);
    for (int warm = 0; warm < rule.warm_up && !sampler.done(); ++warm) repeat(op++);
    try {
      while (!sampler.done()) {
        sink.check();
        ir::Measurement sample = case_.key;
        sample.wall = repeat(op++);
        sample.repetition = sampler.next_repetition();
        sampler.add(sample.wall, false);
        sink.sample(sample);
      }
    } catch (const BenchInterrupted&) {
      tell(op, kGo, 0);
      throw;
    }
    tell(op, kGo, 0);
  }

  void follow() {
    answer_clock();
    // The first repetition's number comes with the first word.
    std::uint64_t op = hear(kClockOp + kClockRounds, kGo);
    while (hear(op, kGo) != 0) {
      const RequestPointer coming = post_receive(op);
      std::uint64_t word = 1;
      // Not waited for before the run: what this rank waits for may be here sooner.
      const RequestPointer ready = transport_.send(lead_rank(), tag(op, kReady), bytes_of(word));
      if (starts_on_word()) hear(op, kStart);
      MemberTimes times = run(op, coming);
      ready->wait();
      transport_.send(lead_rank(), tag(op, kTimes), bytes_of(times))->wait();
      ++op;
    }
  }

 private:
  Tag tag(std::uint64_t op, Part part) const { return make_tag(number_, op, part); }
  int lead_rank() const { return group_.ranks.front(); }
  bool message() const { return case_.key.kind == MeasurementKind::point_to_point; }
  /// One-way messages and broadcasts start at the first device, which is the leader, alone, when
  /// all others wait for them.
  bool starts_on_word() const {
    if (message()) return case_.key.both_ways;
    return case_.key.collective != CollectiveKind::broadcast;
  }

  /// To all others, from the leader.
  void tell(std::uint64_t op, Part part, std::uint64_t word) {
    std::vector<RequestPointer> requests;
    for (std::size_t m = 1; m < group_.ranks.size(); ++m) {
      requests.push_back(transport_.send(group_.ranks[m], tag(op, part), bytes_of(word)));
    }
    for (const RequestPointer& request : requests) request->wait();
  }
  std::uint64_t hear(std::uint64_t op, Part part) {
    std::uint64_t word = 0;
    transport_.receive(lead_rank(), tag(op, part), bytes_of(word))->wait();
    return word;
  }

  void compare_clocks() {
    offsets_.assign(group_.ranks.size(), 0);
    for (std::size_t m = 1; m < group_.ranks.size(); ++m) {
      std::int64_t shortest = 0;
      for (int round = 0; round < kClockRounds; ++round) {
        const std::uint64_t op = kClockOp + static_cast<std::uint64_t>(round);
        std::uint64_t word = 0;
        ClockAnswer answer;
        const std::int64_t asked = now_ns();
        const auto coming = transport_.receive(group_.ranks[m], tag(op, kAnswer), bytes_of(answer));
        transport_.send(group_.ranks[m], tag(op, kAsk), bytes_of(word))->wait();
        coming->wait();
        const std::int64_t there_and_back = now_ns() - asked;
        if (round > 0 && there_and_back >= shortest) continue;
        shortest = there_and_back;
        const bool same = answer.machine == this_machine();
        offsets_[m] = same ? 0 : answer.now_ns - (asked + there_and_back / 2);
      }
    }
  }

  void answer_clock() {
    for (int round = 0; round < kClockRounds; ++round) {
      const std::uint64_t op = kClockOp + static_cast<std::uint64_t>(round);
      hear(op, kAsk);
      ClockAnswer answer{now_ns(), this_machine()};
      transport_.send(lead_rank(), tag(op, kAnswer), bytes_of(answer))->wait();
    }
  }

  /// The leader's side of one repetition.
  Seconds repeat(std::uint64_t op) {
    const std::size_t others = group_.ranks.size() - 1;
    std::vector<std::uint64_t> words(others);
    std::vector<MemberTimes> times(others);
    std::vector<RequestPointer> ready;
    std::vector<RequestPointer> told;
    for (std::size_t m = 0; m < others; ++m) {
      const int rank = group_.ranks[m + 1];
      ready.push_back(transport_.receive(rank, tag(op, kReady), bytes_of(words[m])));
      told.push_back(transport_.receive(rank, tag(op, kTimes), bytes_of(times[m])));
    }
    tell(op, kGo, 1);
    for (const RequestPointer& one : ready) one->wait();
    const RequestPointer coming = post_receive(op);
    if (starts_on_word()) tell(op, kStart, 1);
    const MemberTimes own = run(op, coming);
    std::int64_t start = own.start_ns;
    std::int64_t end = own.end_ns;
    for (std::size_t m = 0; m < others; ++m) {
      told[m]->wait();
      // Those that were only to receive were ready before, whenever they noticed.
      if (starts_on_word()) start = std::max(start, times[m].start_ns - offsets_[m + 1]);
      end = std::max(end, times[m].end_ns - offsets_[m + 1]);
    }
    // Errors of the clocks' comparison may exceed a short message's time.
    return Seconds{1e-9 * static_cast<double>(std::max<std::int64_t>(end - start, 1))};
  }

  /// Posts the receive of a message to this rank; null where there is none.
  RequestPointer post_receive(std::uint64_t op) {
    if (!message()) return nullptr;
    const bool leads = group_.position == 0;
    if (leads && !case_.key.both_ways) return nullptr;
    return transport_.receive(group_.ranks[leads ? 1 : 0], tag(op, leads ? kBack : kData), in_);
  }

  MemberTimes run(std::uint64_t op, const RequestPointer& coming) {
    const bool leads = group_.position == 0;
    MemberTimes times{now_ns(), 0};
    if (message()) {
      RequestPointer going;
      if (leads || case_.key.both_ways) {
        going = transport_.send(group_.ranks[leads ? 1 : 0], tag(op, leads ? kData : kBack), out_);
      }
      if (coming) coming->wait();
      times.end_ns = coming ? now_ns() : times.start_ns;
      if (going) going->wait();
      return times;
    }
    const RingTag ring{number_, op, kRing};
    const auto parts = even_parts(out_.size() / sizeof(float), group_.size());
    switch (case_.key.collective) {
      case CollectiveKind::all_reduce:
        all_reduce(transport_, group_, ElementType::f32, out_, ring);
        break;
      case CollectiveKind::reduce_scatter:
        reduce_scatter(transport_, group_, ElementType::f32, out_, parts, ring);
        break;
      case CollectiveKind::all_gather:
        all_gather(transport_, group_, ElementType::f32, out_, parts, ring);
        break;
      case CollectiveKind::broadcast:
        broadcast(transport_, group_, out_, ring);
        break;
      case CollectiveKind::all_to_all:
        ORRERY_CHECK(false, "the executor has no all-to-all");
    }
    times.end_ns = now_ns();
    return times;
  }

  const BenchCase& case_;
  std::uint64_t number_;
  Transport& transport_;
  RingGroup group_;
  std::vector<std::byte> out_;
  std::vector<std::byte> in_;
  std::vector<std::int64_t> offsets_;  ///< By member: its clock minus the leader's.
};

}  // namespace

void time_transfer(const BenchCase& one, std::uint64_t number, Transport& transport,
                   const RankOfDevice& ranks, const SamplingRule& rule,
                   const std::vector<ir::Measurement>& before, const BenchSink& sink) {
  const bool leads = ranks.at(one.devices.front()) == transport.rank();
  Member member(one, number, transport, ranks);
  if (leads) {
    member.lead(rule, before, sink);
  } else {
    member.follow();
  }
}

}  // namespace orrery::executor
