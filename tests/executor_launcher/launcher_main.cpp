// The test program and, with "execute-rank", the rank processes that it starts.
#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "executor/launcher/rank_process.h"

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  if (argc > 1 && std::string(argv[1]) == "execute-rank") {
    return orrery::executor::run_rank_process();
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
