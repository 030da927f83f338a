// The test program and, with "execute-rank" and "execute-agent", the processes that it starts.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <string>

#include "executor/launcher/agent.h"
#include "executor/launcher/rank.h"
#include "models/base/subprocess.h"

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  if (argc > 1 && std::string(argv[1]) == "execute-rank") {
    return orrery::executor::run_rank_process();
  }
  // execute-agent --store HOST:PORT --node NAME [--address ADDRESS]
  if (argc > 5 && std::string(argv[1]) == "execute-agent") {
    orrery::executor::AgentOptions options;
    options.store = orrery::executor::endpoint_from(argv[3]);
    options.node = argv[5];
    options.token = std::getenv("ORRERY_TOKEN");
    if (argc > 7) options.address = argv[7];
    options.executable = orrery::own_executable();
    options.arguments = {"execute-rank"};
    orrery::executor::run_agent(options);
    return 0;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
