// The test program and, with "calibrate-rank", the processes that it starts.
#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "executor/bench/bench_rank.h"

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  if (argc > 1 && std::string(argv[1]) == orrery::executor::kBenchRankCommand) {
    return orrery::executor::run_bench_rank_process();
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
