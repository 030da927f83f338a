/// orrery init: a cluster file, from flags or by asking.
#include "experiments/study/init.h"

#include <unistd.h>

#include <iostream>

#include "tools/cli/command.h"
#include "tools/commands/tables.h"

namespace orrery::tools {
namespace {

using experiments::InitSettings;

/// An answer on a line; the default where it is empty. Ends the questions at the end of input.
std::string asked(const std::string& question, const std::string& otherwise) {
  print(question + (otherwise.empty() ? "" : " [" + otherwise + "]") + ": ");
  flush();
  std::string answer;
  std::getline(std::cin, answer);
  return answer.empty() ? otherwise : answer;
}

/// Asks for what flags did not say, if there is somebody to ask.
experiments::TextResult init(const InitSettings& given, const experiments::Call& call,
                             config::Diagnostics problems) {
  InitSettings settings = given;
  if (settings.nodes.empty() && isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1) {
    print("Nodes of one kind a line, as NODESxGPUSxTYPE (4x8xH100); an empty line ends.\n");
    for (std::string line = asked("nodes", ""); !line.empty(); line = asked("nodes", "")) {
      settings.nodes.push_back(line);
      const std::string type = line.substr(line.rfind('x') + 1);
      const std::string network = asked("  link class of their NICs (orrery list links)", "usual");
      if (network != "usual") settings.network[type] = network;
      const std::string nics = asked("  NICs of a node", "usual");
      if (nics != "usual") settings.nics[type] = nics;
    }
    settings.name = asked("name of the cluster", settings.name);
    if (!settings.output) settings.output = asked("file", settings.name + ".yaml");
  }
  return experiments::init_cluster(settings, call, std::move(problems));
}

void print_cluster(const experiments::TextResult& result, const InitSettings&) {
  if (result.file) {
    print("cluster: " + *result.file +
          " (orrery validate reads it, orrery list links -c shows its "
          "links)\n");
  } else {
    print(result.text);
  }
}

}  // namespace

extern const Command kInit;
const Command kInit = command<init, print_cluster>(
    "init", "Write a cluster file from a few words; without --nodes it asks",
    "init --nodes 4x8xH100,6x8xA100,5x4xL40S --network all=roce-200 -o cluster.yaml");

}  // namespace orrery::tools
