/// Do labs have the rates and latencies that they were asked for, and leave nothing behind? Skipped
/// with the reason where namespaces and TAP devices are not permitted.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "executor/netlab/process.h"
#include "tests/executor/netlab/live_lab.h"

namespace orrery::executor::lab_test {
namespace {

constexpr double kMbit = 1e6;
constexpr std::size_t kMiB = std::size_t{1} << 20;

bool nothing_left(const LiveLab& lab) {
  for (int node = 0; node < static_cast<int>(lab.spec.nodes.size()); ++node) {
    if (namespace_exists(namespace_name(lab.spec, node))) return false;
  }
  return std::filesystem::is_empty(lab.options.state_folders[0]);
}

/// 1: of what the node's peer sends for a second something comes.
double datagram_comes(int node, int peer) {
  const Socket socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in own{}, theirs{};
  own.sin_family = theirs.sin_family = AF_INET;
  own.sin_port = theirs.sin_port = htons(kLabPort);
  inet_pton(AF_INET, netlab_address(node).c_str(), &own.sin_addr);
  inet_pton(AF_INET, netlab_address(peer).c_str(), &theirs.sin_addr);
  if (bind(socket.fd(), reinterpret_cast<sockaddr*>(&own), sizeof own) != 0) return -1;
  bool came = false;
  for (const auto start = LabClock::now(); seconds_since(start) < 1;) {
    const char word = 'x';
    sendto(socket.fd(), &word, 1, 0, reinterpret_cast<sockaddr*>(&theirs), sizeof theirs);
    pollfd waiting{socket.fd(), POLLIN, 0};
    char got = 0;
    if (poll(&waiting, 1, 20) > 0) came |= recv(socket.fd(), &got, 1, MSG_DONTWAIT) == 1;
  }
  return came ? 1 : 0;
}

// At rates that a core reaches while it does other work; netlab_bench measures how far up they
// hold, and fabric_test.cpp has the same questions in virtual time.
TEST(NetlabTraffic, TcpReachesTheConfiguredRateAndNoMore) {
  for (const auto& [rate, bytes] : {std::pair{10 * kMbit, kMiB / 2}, {100 * kMbit, 4 * kMiB}}) {
    LiveLab lab(equal_nodes(2, rate, 0.2e-3));
    netlab_up(lab.spec, lab.options);
    const double share = first_near([&] { return 8 * tcp_rate(lab, 0, 1, bytes) / rate; },
                                    [](double s) { return s > 0.85; });
    EXPECT_GT(share, 0.85) << "at " << rate / kMbit << " Mbit/s";
    EXPECT_LT(share, 1.05) << "at " << rate / kMbit << " Mbit/s";
  }
}

TEST(NetlabTraffic, RoundTripsTakeTwoLatenciesAndLessThanAMillisecondMore) {
  LiveLab lab(equal_nodes(2, 1000 * kMbit, 3e-3));
  netlab_up(lab.spec, lab.options);
  const double round_trip =
      first_near([&] { return tcp_round_trip(lab, 0, 1); }, [](double t) { return t < 7e-3; });
  EXPECT_GE(round_trip, 6e-3);
  EXPECT_LT(round_trip, 7e-3);
}

TEST(NetlabTraffic, APairOverrideHoldsForThePairAlone) {
  NetlabSpec spec = equal_nodes(3, 1000 * kMbit, 0.2e-3);
  spec.pairs.push_back({0, 2, BytesPerSecond{80 * kMbit / 8}, Seconds{5e-3}});
  LiveLab lab(spec);
  netlab_up(lab.spec, lab.options);
  const double slow =
      first_near([&] { return tcp_round_trip(lab, 2, 0); }, [](double t) { return t < 11e-3; });
  const double fast =
      first_near([&] { return tcp_round_trip(lab, 1, 0); }, [](double t) { return t < 1.4e-3; });
  EXPECT_GE(slow, 10e-3);
  EXPECT_LT(slow, 11e-3);
  EXPECT_GE(fast, 0.4e-3);
  EXPECT_LT(fast, 1.4e-3);
  EXPECT_LT(8 * tcp_rate(lab, 0, 2, 4 * kMiB), 1.05 * 80 * kMbit);
  EXPECT_GT(first_near([&] { return 8 * tcp_rate(lab, 0, 1, 8 * kMiB); },
                       [](double rate) { return rate > 160 * kMbit; }),
            160 * kMbit);
}

TEST(NetlabTraffic, RingAllReduceIsRightAndNotFasterThanItsBound) {
  LiveLab lab(equal_nodes(4, 400 * kMbit, 0.2e-3));
  netlab_up(lab.spec, lab.options);
  // How near it comes is measured by netlab_bench.
  EXPECT_GT(ring_seconds(lab, 8 * kMiB, 3), 0.97 * ring_bound(lab.spec, 8 * kMiB));
  const NetlabStatus status = netlab_status(lab.spec, lab.options);
  for (const NetlabPortStatus& port : status.ports) {
    EXPECT_GT(port.sent_bytes, static_cast<std::int64_t>(3 * 12 * kMiB));
    EXPECT_EQ(port.refused, 0);
  }
}

TEST(NetlabDisturbed, SumsAreRightWhereFramesAreLostAndOvertaken) {
  LiveLab lab(equal_nodes(3, 400 * kMbit, 0.2e-3));
  netlab_up(lab.spec, lab.options);
  const NetlabDisturbance told{0.02, 0.1, Seconds{2e-3}, {}};
  netlab_disturb(lab.spec, told, lab.options);
  EXPECT_FALSE(std::isnan(ring_seconds(lab, 2 * kMiB, 2)));
  const NetlabStatus status = netlab_status(lab.spec, lab.options);
  EXPECT_EQ(status.disturbance, told);
  std::int64_t lost = 0;
  for (const NetlabPortStatus& port : status.ports) lost += port.lost;
  EXPECT_GT(lost, 0);
}

TEST(NetlabDisturbed, OneWayIsCutUntilItIsToldOtherwise) {
  LiveLab lab(equal_nodes(3, 400 * kMbit, 0.2e-3));
  EXPECT_THROW(netlab_disturb(lab.spec, {}, lab.options), NetlabError);
  netlab_up(lab.spec, lab.options);
  const auto answers = [&] {  // Does a datagram from 0 come to 1, and one from 1 to 0?
    const auto got = lab.run({0, 1}, [&](int node) { return datagram_comes(node, 1 - node); });
    return std::pair(got[1] == 1, got[0] == 1);
  };
  EXPECT_EQ(answers(), std::pair(true, true));
  netlab_disturb(lab.spec, {0, 0, Seconds{}, {{0, 1}}}, lab.options);
  EXPECT_EQ(answers(), std::pair(false, true));
  netlab_disturb(lab.spec, {}, lab.options);
  EXPECT_EQ(answers(), std::pair(true, true));
}

TEST(NetlabLife, UpIsIdempotentAndDownLeavesNothing) {
  LiveLab lab(equal_nodes(3, 100 * kMbit, 0));
  EXPECT_FALSE(netlab_status(lab.spec, lab.options).known);
  EXPECT_EQ(netlab_up(lab.spec, lab.options), NetlabUp::created);
  const NetlabStatus first = netlab_status(lab.spec, lab.options);
  ASSERT_TRUE(first.up() && first.same);
  // Whoever asks at once is told what holds from then on.
  EXPECT_EQ(first.real_time, sched_getscheduler(first.switch_pid) == SCHED_RR);
  EXPECT_EQ(netlab_up(lab.spec, lab.options), NetlabUp::already_up);
  EXPECT_EQ(netlab_status(lab.spec, lab.options).switch_pid, first.switch_pid);
  NetlabSpec other = lab.spec;
  other.nodes[0].rate = {1e6};
  EXPECT_THROW(netlab_up(other, lab.options), NetlabError);

  const NetlabDown down = netlab_down(lab.spec, lab.options);
  EXPECT_TRUE(down.switch_ran);
  EXPECT_EQ(down.removed.size(), 3u);
  EXPECT_TRUE(down.processes.empty());
  EXPECT_EQ(find_process(first.switch_pid).pid, 0);
  EXPECT_TRUE(nothing_left(lab));
  EXPECT_TRUE(netlab_down(lab.spec, lab.options).removed.empty());
}

TEST(NetlabLife, ADeadSwitchIsSeenAndReplaced) {
  LiveLab lab(equal_nodes(2, 100 * kMbit, 0));
  netlab_up(lab.spec, lab.options);
  const ProcessId killed = find_process(netlab_status(lab.spec, lab.options).switch_pid);
  ASSERT_EQ(kill(killed.pid, SIGKILL), 0);
  while (is_running(killed)) std::this_thread::yield();
  EXPECT_TRUE(netlab_status(lab.spec, lab.options).known);
  EXPECT_FALSE(netlab_status(lab.spec, lab.options).up());
  EXPECT_EQ(netlab_up(lab.spec, lab.options), NetlabUp::created);
  EXPECT_GT(tcp_rate(lab, 0, 1, kMiB / 4), 0);
  const int second = netlab_status(lab.spec, lab.options).switch_pid;
  ASSERT_EQ(kill(second, SIGKILL), 0);
  netlab_down(lab.spec, lab.options);
  EXPECT_TRUE(nothing_left(lab));
}

TEST(NetlabLife, ASwitchWhoseStateIsGoneEnds) {
  LiveLab lab(equal_nodes(2, 100 * kMbit, 0));
  netlab_up(lab.spec, lab.options);
  const ProcessId process = find_process(netlab_status(lab.spec, lab.options).switch_pid);
  for (const auto& file : std::filesystem::directory_iterator(lab.options.state_folders[0])) {
    std::filesystem::remove(file);
  }
  const auto start = LabClock::now();
  while (is_running(process) && seconds_since(start) < 20) std::this_thread::yield();
  EXPECT_FALSE(is_running(process));
  EXPECT_THROW(netlab_up(lab.spec, lab.options), NetlabError);  // its namespaces are still there
  EXPECT_EQ(netlab_down(lab.spec, lab.options).removed.size(), 2u);
  EXPECT_EQ(netlab_up(lab.spec, lab.options), NetlabUp::created);
}

TEST(NetlabLife, AFailedStartLeavesNothing) {
  LiveLab lab(equal_nodes(2, 100 * kMbit, 0));
  lab.options.switch_command = {"/bin/false"};
  EXPECT_THROW(netlab_up(lab.spec, lab.options), NetlabError);
  EXPECT_TRUE(nothing_left(lab));
}

TEST(NetlabLife, SignalsWhileItStartsDoNotStopIt) {
  struct sigaction ours {
  }, before{};
  ours.sa_handler = [](int) {};
  ours.sa_flags = SA_RESTART;  // As for Ctrl-C; poll(2) ends all the same.
  ASSERT_EQ(sigaction(SIGUSR1, &ours, &before), 0);
  const pthread_t starts = pthread_self();
  std::atomic<bool> up = false;
  std::thread disturbs([&] {
    for (; !up; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
      pthread_kill(starts, SIGUSR1);
    }
  });
  LiveLab lab(equal_nodes(8, 100 * kMbit, 0));
  std::string problem;
  try {
    netlab_up(lab.spec, lab.options);
  } catch (const NetlabError& error) {
    problem = error.what();
  }
  up = true;
  disturbs.join();
  sigaction(SIGUSR1, &before, nullptr);
  EXPECT_EQ(problem, "");
}

TEST(NetlabLife, ProcessesInANodeAreSeen) {
  LiveLab lab(equal_nodes(2, 100 * kMbit, 0));
  netlab_up(lab.spec, lab.options);
  const auto seen = lab.run({1}, [&](int) {
    const NetlabStatus status = netlab_status(lab.spec, lab.options);
    return status.ports[0].processes.empty() && status.ports[1].processes == std::vector{getpid()}
               ? 1.0
               : 0.0;
  });
  EXPECT_EQ(seen, std::vector<double>{1});
}

}  // namespace
}  // namespace orrery::executor::lab_test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string reason = orrery::executor::netlab_unavailable();
  if (!reason.empty()) {
    std::printf("SKIP: %s\n", reason.c_str());
    constexpr int kSkipped = 77;
    return kSkipped;
  }
  return RUN_ALL_TESTS();
}
