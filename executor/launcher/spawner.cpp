#include "executor/launcher/spawner.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "executor/net/handshake.h"
#include "executor/net/message.h"
#include "models/base/subprocess.h"

namespace orrery::executor {
namespace {

/// Empty: loopback.
std::string listening_address(const SpawnOptions& o) {
  if (!o.listen.empty()) return o.listen;
  return o.hosts.empty() ? "" : "0.0.0.0";
}

std::string own_address(const SpawnOptions& o) {
  const std::string listens = listening_address(o);
  return listens.empty() || listens == "0.0.0.0" ? "127.0.0.1" : listens;
}

std::string advertised_address(const SpawnOptions& o) {
  if (!o.advertise.empty()) return o.advertise;
  if (!o.listen.empty() && o.listen != "0.0.0.0") return o.listen;
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) {
    throw std::runtime_error(fmt::format("gethostname: {}", std::strerror(errno)));
  }
  return name;
}

}  // namespace

RunStore::RunStore(SpawnOptions& o)
    : token_(o.token.empty() ? make_token() : o.token),
      own_address_(own_address(o)),
      advertised_address_(advertised_address(o)),
      server_(Listener(listening_address(o), o.port), token_),
      client_(for_this_machine(), token_) {
  if (o.settings.run.empty()) o.settings.run = make_token().substr(0, 16);
  if (o.executable.empty()) o.executable = own_executable();
  client_.set("settings", to_message(o.settings));
}

void RunStore::command(const std::string& text) {
  client_.set(fmt::format("command/{}", commands_++), text);
}

}  // namespace orrery::executor
