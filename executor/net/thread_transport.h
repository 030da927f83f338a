/// Ranks that are threads of one process: messages are copies in memory. For tests and for emulated
/// devices that share a process.
#pragma once
#include <memory>
#include <vector>

#include "executor/net/transport.h"

namespace orrery::executor {

/// One transport for each of `size` ranks. They share state that lives as long as any of them. A
/// transport that is destroyed has left: receives from it that have not come fail.
std::vector<std::unique_ptr<Transport>> make_thread_transports(int size);

}  // namespace orrery::executor
