#include "experiments/study/claims.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "tests/experiments/support.h"

namespace orrery::experiments::claims_test {
namespace {

using std::chrono::milliseconds;
using support::TempFolder;

/// A process that has taken the run and sleeps.
class Taker {
 public:
  Taker(const std::string& folder, const std::string& run) {
    int pipes[2];
    EXPECT_EQ(pipe(pipes), 0);
    pid_ = fork();
    if (pid_ == 0) {
      Claims claims(folder);
      claims.enter();
      const char taken = claims.take(run) ? 'y' : 'n';
      if (write(pipes[1], &taken, 1) != 1) _exit(1);
      for (;;) pause();
    }
    char taken = 0;
    EXPECT_EQ(read(pipes[0], &taken, 1), 1);
    EXPECT_EQ(taken, 'y');
    close(pipes[0]);
    close(pipes[1]);
  }
  ~Taker() { end(); }
  void end() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
};

/// Files of a call on another host: its kernel is another one.
void write_distant_call(const TempFolder& folder, const std::string& call, int beat) {
  write_text_file(folder / (call + ".call"), "another kernel\n\n" + std::to_string(beat) + "\n");
}

TEST(Claims, ARunIsTakenOnceAndCanBeGivenBack) {
  const TempFolder folder;
  Claims one(folder.path());
  Claims other(folder.path());
  one.enter();
  other.enter();
  EXPECT_TRUE(one.take("run"));
  EXPECT_FALSE(other.take("run"));
  EXPECT_TRUE(other.is_at_work_on("run"));
  EXPECT_TRUE(other.take("another"));
  one.give_back("run");
  EXPECT_FALSE(other.is_at_work_on("run"));
  EXPECT_TRUE(other.take("run"));
}

TEST(Claims, LeaveNothingInTheFolder) {
  const TempFolder folder;
  const std::string below = folder / "work";
  {
    Claims claims(below);
    claims.enter();
    EXPECT_TRUE(claims.take("run"));
    EXPECT_EQ(support::names_in(below).size(), 2u);
  }
  EXPECT_FALSE(support::fs::exists(below));
}

TEST(Claims, OfAProcessThatIsKilledAreFreeAtOnce) {
  const TempFolder folder;
  Claims claims(folder.path());
  claims.enter();
  Taker taker(folder.path(), "run");
  EXPECT_FALSE(claims.take("run"));
  EXPECT_TRUE(claims.is_at_work_on("run"));
  taker.end();
  EXPECT_FALSE(claims.is_at_work_on("run"));
  EXPECT_TRUE(claims.take("run"));
  claims.give_back("run");
  claims.tidy();
  EXPECT_EQ(support::names_in(folder.path()), std::vector<std::string>{claims.name() + ".call"});
}

TEST(Claims, OfAnotherHostAreFreeWhenItsCallStaysSilent) {
  const TempFolder folder;
  Claims claims(folder.path(), "", milliseconds(400));
  claims.enter();
  write_distant_call(folder, "distant", 1);
  write_text_file(folder / "run.taken", "distant");
  EXPECT_FALSE(claims.take("run"));
  EXPECT_FALSE(claims.is_at_work_on("run"));  // nothing is known of it yet
  write_distant_call(folder, "distant", 2);
  EXPECT_TRUE(claims.is_at_work_on("run"));
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_FALSE(claims.take("run"));
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_TRUE(claims.take("run"));
}

TEST(Claims, OfAGroupThatHasEndedAreFree) {
  const TempFolder folder;
  Claims claims(folder.path());
  claims.enter();
  write_text_file(folder / "distant.call", "another kernel\nslurm 7\n1\n");
  write_text_file(folder / "run.taken", "distant");
  EXPECT_FALSE(claims.take("run"));
  claims.dissolve("slurm 8");
  EXPECT_FALSE(claims.take("run"));
  claims.dissolve("slurm 7");
  EXPECT_TRUE(claims.take("run"));
}

TEST(Claims, ManyProcessesTakeEachRunOnce) {
  constexpr int kProcesses = 4;
  constexpr int kRuns = 200;
  const TempFolder folder;
  std::vector<pid_t> pids;
  for (int p = 0; p < kProcesses; ++p) {
    const pid_t pid = fork();
    if (pid == 0) {
      Claims claims(folder / "work");
      claims.enter();
      std::string taken;
      for (int run = 0; run < kRuns; ++run) {
        if (claims.take("run" + std::to_string(run))) taken += std::to_string(run) + "\n";
      }
      write_text_file(folder / ("of-" + std::to_string(p)), taken);
      // Nothing is given back before all have tried.
      while (support::names_in(folder.path()).size() < kProcesses + 1) usleep(1000);
      _exit(0);
    }
    pids.push_back(pid);
  }
  for (const pid_t pid : pids) waitpid(pid, nullptr, 0);
  std::map<std::string, int> times;
  for (int p = 0; p < kProcesses; ++p) {
    for (const auto& row : parse_csv(read_text_file(folder / ("of-" + std::to_string(p))))) {
      ++times[row.at(0)];
    }
  }
  EXPECT_EQ(times.size(), static_cast<std::size_t>(kRuns));
  for (const auto& [run, count] : times) EXPECT_EQ(count, 1) << run;
}

}  // namespace
}  // namespace orrery::experiments::claims_test
