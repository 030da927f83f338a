#include "executor/netlab/switch.h"

#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <random>
#include <utility>

#include "executor/netlab/error.h"
#include "executor/netlab/fabric.h"
#include "executor/netlab/tap.h"

namespace orrery::executor {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr int kReadsAtOnce = 16;  // of one port, before the others have their turn
constexpr std::uint32_t kTimer = kMostNetlabNodes, kSignal = kMostNetlabNodes + 1;

std::int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kSecond + now.tv_nsec;
}

void add(std::atomic<std::int64_t>& counter, std::int64_t amount = 1) {
  counter.store(counter.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}

class Switch {
 public:
  Switch(const NetlabSpec& spec, const std::vector<Socket>& taps, NetlabCounters& counters)
      : taps_(taps),
        counters_(counters),
        fabric_(spec),
        buffer_(kMostTapBytes),
        poll_(epoll_create1(EPOLL_CLOEXEC)),
        timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)),
        signals_(block_signals()) {
    if (!poll_.open() || !timer_.open() || !signals_.open()) {
      throw_netlab("open the switch's timer and signals", errno);
    }
    for (std::size_t i = 0; i < taps_.size(); ++i) {
      watch(taps_[i].fd(), static_cast<std::uint32_t>(i));
    }
    watch(timer_.fd(), kTimer);
    watch(signals_.fd(), kSignal);
  }

  void run(const std::function<bool()>& keep_going) {
    std::int64_t next_check = monotonic_ns() + kSecond;
    set_timer(next_check);
    std::array<epoll_event, kMostNetlabNodes + 2> events{};
    while (true) {
      const int count = epoll_wait(poll_.fd(), events.data(), static_cast<int>(events.size()), -1);
      if (count < 0 && errno != EINTR) throw_netlab("wait for frames", errno);
      advance(monotonic_ns());
      for (int i = 0; i < count; ++i) {
        const std::uint32_t source = events[i].data.u32;
        if (source == kSignal) return;
        if (source == kTimer) {
          std::uint64_t times = 0;
          [[maybe_unused]] const ssize_t got = read(timer_.fd(), &times, sizeof times);
        } else {
          take_frames(static_cast<int>(source));
        }
      }
      const std::int64_t now = monotonic_ns();
      advance(now);
      count_drops();
      if (now >= next_check) {
        if (!keep_going()) return;
        next_check = now + kSecond;
      }
      set_timer(std::min(next_check, fabric_.next_event().value_or(next_check)));
    }
  }

 private:
  static Socket block_signals() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    return Socket(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  }

  void watch(int fd, std::uint32_t source) const {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u32 = source;
    if (epoll_ctl(poll_.fd(), EPOLL_CTL_ADD, fd, &event) != 0) throw_netlab("watch a port", errno);
  }

  void advance(std::int64_t now) {
    fabric_.advance(now, [&](NetlabFrame& frame, std::int64_t due) { give(frame, due); });
  }

  void take_frames(int from) {
    NetlabCounters::Port& port = counters_.ports[from];
    const int tap = taps_[from].fd();
    for (int i = 0; i < kReadsAtOnce; ++i) {
      const ssize_t got = read(tap, buffer_.data(), buffer_.size());
      if (got <= 0) return;
      const std::span<const char> data(buffer_.data(), got);
      const int to = tap_destination(data, static_cast<int>(taps_.size()));
      if (to < 0 || to == from) {
        add(port.stranded);
        continue;
      }
      const std::int64_t bytes = tap_wire_bytes(data);
      add(port.sent_frames);
      add(port.sent_bytes, bytes);
      if (is_lost(from, to)) {
        add(port.lost);
        continue;
      }
      const std::int64_t now = monotonic_ns();
      fabric_.offer({from, to, bytes, {data.begin(), data.end()}}, now, lateness());
    }
  }

  bool falls(const std::atomic<std::int64_t>& of_a_million) {
    const std::int64_t share = of_a_million.load(std::memory_order_relaxed);
    return share > 0 && std::uniform_int_distribution<std::int64_t>(1, 1'000'000)(draws_) <= share;
  }
  bool is_lost(int from, int to) {
    const std::uint64_t cut = counters_.told.cut[from].load(std::memory_order_relaxed);
    return (cut >> to & 1) != 0 || falls(counters_.told.lost);
  }
  std::int64_t lateness() {
    return falls(counters_.told.late) ? counters_.told.late_ns.load(std::memory_order_relaxed) : 0;
  }

  void give(NetlabFrame& frame, std::int64_t due) {
    NetlabCounters::Port& port = counters_.ports[frame.to];
    const std::int64_t late = monotonic_ns() - due;
    if (late > kLateNs) add(counters_.late_frames);
    if (late > counters_.worst_late_ns.load(std::memory_order_relaxed)) {
      counters_.worst_late_ns.store(late, std::memory_order_relaxed);
    }
    const int tap = taps_[frame.to].fd();
    if (write(tap, frame.data.data(), frame.data.size()) < 0) {
      add(port.refused);
    } else {
      add(port.received_frames);
      add(port.received_bytes, frame.wire_bytes);
    }
  }

  void count_drops() {
    for (int node = 0; node < static_cast<int>(taps_.size()); ++node) {
      counters_.ports[node].dropped.store(fabric_.drops(node), std::memory_order_relaxed);
    }
  }

  void set_timer(std::int64_t at) const {
    itimerspec timer{};
    timer.it_value.tv_sec = at / kSecond;
    timer.it_value.tv_nsec = at % kSecond;
    if (timerfd_settime(timer_.fd(), TFD_TIMER_ABSTIME, &timer, nullptr) != 0) {
      throw_netlab("set the switch's timer", errno);
    }
  }

  const std::vector<Socket>& taps_;
  NetlabCounters& counters_;
  NetlabFabric fabric_;
  std::mt19937_64 draws_{1};
  std::vector<char> buffer_;
  Socket poll_;
  Socket timer_;
  Socket signals_;
};

}  // namespace

void take_real_time(NetlabCounters& counters) {
  prctl(PR_SET_TIMERSLACK, 1UL);
  sched_param lowest{};
  lowest.sched_priority = sched_get_priority_min(SCHED_RR);
  const bool taken = sched_setscheduler(0, SCHED_RR, &lowest) == 0;
  counters.real_time.store(taken ? 1 : 0, std::memory_order_relaxed);
}

void run_netlab_switch(const NetlabSpec& spec, const std::vector<Socket>& taps,
                       NetlabCounters& counters, const std::function<bool()>& keep_going) {
  Switch(spec, taps, counters).run(keep_going);
}

}  // namespace orrery::executor
