/// The command line: which command, with which flags. Help texts, did-you-mean and messages.
#pragma once
#include <span>
#include <string>
#include <variant>

#include "tools/cli/command.h"

namespace orrery::tools {

/// A command and what its flags gave it.
struct Invocation {
  const Command* command = nullptr;
  config::Value settings;
  config::Value view;
  bool json = false;             ///< `--json`, the flag of all commands that have a result.
  config::Diagnostics problems;  ///< Malformed NAME=VALUE.
};

/// Instead of a command: --help and --version (status 0), or what is wrong (status 2).
struct Reply {
  std::string text;
  int status = 0;
};

std::variant<Invocation, Reply> parse_command_line(std::span<const Command* const> commands,
                                                   std::span<const CommandGroup> groups,
                                                   const std::string& version, int argc,
                                                   const char* const* argv);

}  // namespace orrery::tools
