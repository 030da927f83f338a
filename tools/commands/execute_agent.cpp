/// orrery execute-agent: starts ranks on this machine for a launcher on another one.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <stdexcept>

#include "executor/launcher/agent.h"
#include "executor/launcher/rank.h"
#include "executor/netlab/namespaces.h"
#include "experiments/study/inputs.h"
#include "experiments/study/run_tasks.h"
#include "models/base/file.h"
#include "models/base/subprocess.h"
#include "tools/cli/command.h"

namespace orrery::tools {
namespace {

/// Starts ranks on this machine for a launcher on another one.
struct ExecuteAgentSettings {
  std::string store;
  std::string node;
  std::optional<std::string> address;
  std::int64_t wait = 60;  ///< Seconds that it looks for its launcher.
  std::optional<std::string> token_file;
  std::optional<std::string> network_namespace;  ///< To enter first.
};

void describe(config::Visitor& v, ExecuteAgentSettings& settings) {
  v.required("store", settings.store, "HOST:PORT that the launcher printed");
  v.required("node", settings.node, "this machine's name in the launcher's --hosts");
  v.optional("address", settings.address, "that its ranks listen on; default: the node's name");
  v.optional("token_file", settings.token_file,
             "file with the run's token, which the launcher wrote; default: $ORRERY_TOKEN");
  v.optional("wait", settings.wait, "seconds to look for the launcher; default: 60");
  v.optional("namespace", settings.network_namespace, "network namespace to enter first");
  v.at_least("wait", settings.wait, std::int64_t{1});
}

/// From the file or the environment; empty with a problem noted.
std::string read_token(const ExecuteAgentSettings& args, config::Diagnostics& diagnostics) {
  std::string token;
  if (args.token_file) {
    if (const auto problem = read_file(*args.token_file, token)) {
      diagnostics.add(experiments::at_setting("token_file"), *problem);
      return "";
    }
    token.erase(std::find_if(token.begin(), token.end(), [](char c) { return c == '\n'; }),
                token.end());
    if (token.empty()) diagnostics.add(experiments::at_setting("token_file"), "is empty");
    return token;
  }
  const char* variable = std::getenv("ORRERY_TOKEN");
  if (variable != nullptr) token = variable;
  if (token.empty()) {
    diagnostics.add({"ORRERY_TOKEN", 0, 0}, "is not set",
                    "the launcher prints it, or writes it with --token-file");
  }
  return token;
}

int run_agent(const ExecuteAgentSettings& args, config::Diagnostics& diagnostics) {
  executor::AgentOptions options;
  options.token = read_token(args, diagnostics);
  try {
    options.store = executor::endpoint_from(args.store);
  } catch (const std::runtime_error& error) {
    diagnostics.add(experiments::at_setting("store"), error.what());
  }
  diagnostics.raise();
  options.wait = std::chrono::seconds(args.wait);
  options.node = args.node;
  options.address = args.address.value_or(args.node);
  options.executable = own_executable();
  options.arguments = {"execute-rank"};
  const experiments::Cancellation cancellation;
  options.interrupted = cancellation.flag();
  if (!args.network_namespace) {  // Else a launcher of this machine has started it, and speaks.
    options.on_joined = [&options](const std::string& address) {
      fmt::print(stderr, "orrery: joined the run of {}:{} as {}; ranks will listen on {}\n",
                 options.store.host, options.store.port, options.node, address);
    };
  }
  // Agents that a launcher started inherit SIGINT ignored: Ctrl-C is the launcher's, who then ends
  // them.
  struct sigaction of_launcher {};
  ::sigaction(SIGINT, nullptr, &of_launcher);
  using Listener = experiments::Cancellation::Listener;
  const Listener listener = of_launcher.sa_handler == SIG_IGN
                                ? Listener(cancellation, {SIGTERM})
                                : Listener(cancellation, {SIGINT, SIGTERM});
  if (args.network_namespace) executor::enter_namespace(*args.network_namespace);
  try {
    executor::run_agent(options);
  } catch (const executor::AgentRefused& refusal) {
    diagnostics.add(experiments::at_setting("node"), refusal.what());
    diagnostics.raise();
  }
  return cancellation.requested() ? experiments::kInterrupted : 0;
}

}  // namespace

extern const Command kExecuteAgent;
const Command kExecuteAgent = printing_command<ExecuteAgentSettings, run_agent>(
    "execute-agent", "Start ranks on this machine for a launcher on another one",
    "execute-agent --store head:4321 --node b",
    "The run's token comes from --token-file or ORRERY_TOKEN.");

}  // namespace orrery::tools
