/// Agents of named hosts: the command for each of them, ssh, or processes of this machine. Private
/// to executor/launcher.
#pragma once
#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "executor/launcher/launcher.h"
#include "executor/net/socket.h"

namespace orrery::executor {

std::string own_host_name();

class RemoteAgents {
 public:
  /// Prints a command for each host, or runs it by ssh, or here where HostSlots::local_agent says
  /// so. ssh reads the token from standard input, so that it stands on no command line.
  RemoteAgents(const std::vector<HostSlots>& hosts, const Endpoint& store,
               const std::string& executable, const std::string& token, bool ssh,
               const std::function<void(const std::string&)>& say);
  /// Ends what still runs of ssh and of agents here.
  ~RemoteAgents();
  /// Host and how its ssh or agent ended, of those that ended since the last question.
  std::vector<std::pair<std::string, std::string>> take_ended();
  /// True when all agents were started, none is waited for that a person has to start.
  bool all_started() const { return all_started_; }

 private:
  /// `words` with the token as the first line of standard input and in the environment.
  void start(const std::string& host, std::vector<std::string> words, const std::string& token,
             bool here);
  std::vector<std::pair<std::string, pid_t>> children_;
  bool all_started_ = true;
};

}  // namespace orrery::executor
