/// Agents on other machines: the command for each of them, or ssh. Private to executor/launcher.
#pragma once
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "executor/launcher/launcher.h"
#include "executor/net/socket.h"

namespace orrery::executor {

std::string own_host_name();

class RemoteAgents {
 public:
  /// Prints a command for each host, or runs it by ssh; ssh reads the token from standard input, so
  /// that it stands on no command line.
  RemoteAgents(const std::vector<HostSlots>& hosts, const Endpoint& store,
               const std::string& executable, const std::string& token, bool ssh,
               const std::function<void(const std::string&)>& say);
  /// Ends what still runs of ssh.
  ~RemoteAgents();

 private:
  void start(const std::string& host, const std::string& command, const std::string& token);
  std::vector<pid_t> children_;
};

}  // namespace orrery::executor
