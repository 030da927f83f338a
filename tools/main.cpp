/// The command line: parses, runs one command, turns errors into messages and exit codes.
///   0  done
///   1  failed while running: a run failed, no plan exists, output could not be written
///   2  the command line or a file is wrong; every problem was named
/// 130  interrupted
#include <fmt/format.h>
#include <signal.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "models/config/diagnostics.h"
#include "tools/args.h"
#include "tools/commands/commands.h"
#include "tools/commands/output.h"

namespace {

constexpr int kFailed = 1;
constexpr int kBadInput = 2;

using orrery::tools::Command;
using orrery::tools::Reply;

int dispatch(const Command& command) {
  return std::visit([](const auto& args) { return orrery::tools::execute(args); }, command);
}

int run(int argc, char** argv) {
  const auto parsed = orrery::tools::parse_command_line(argc, argv);
  if (const Reply* reply = std::get_if<Reply>(&parsed)) {
    std::fputs(reply->text.c_str(), reply->status == 0 ? stdout : stderr);
    return reply->status;
  }
  return dispatch(std::get<Command>(parsed));
}

/// What was printed must have arrived: a full disk or a closed pipe is a failure.
int flush_output(int status) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  fmt::print(stderr, "orrery: cannot write to standard output{}{}\n", errno != 0 ? ": " : "",
             errno != 0 ? std::strerror(errno) : "");
  return status == 0 ? kFailed : status;
}

}  // namespace

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  int status = kFailed;
  try {
    status = run(argc, argv);
  } catch (const orrery::tools::OutputError& error) {
    fmt::print(stderr, "orrery: {}\n", error.what());
    return kFailed;
  } catch (const orrery::config::ConfigError& error) {
    fmt::print(stderr, "{}\n", error.what());
    status = kBadInput;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "orrery: out of memory\n");
  } catch (const std::exception& error) {
    fmt::print(stderr, "orrery: {}\n", error.what());
  }
  return flush_output(status);
}
