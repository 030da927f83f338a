/// Ranks that are processes, joined by a mesh of TCP connections: one thread per rank moves what
/// the sockets cannot take or give at once. Messages are authenticated and in sequence (frame.h). A
/// peer is lost when its connection ends without goodbye, or when nothing came from it for the
/// silence limit (heartbeats come all the time). The first error ends all waits.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/net/socket.h"
#include "executor/net/transport.h"

namespace orrery::executor {

struct TcpOptions {
  std::string token;
  std::uint32_t generation = 0;
  std::chrono::milliseconds connect{20'000};   ///< Until the mesh is complete.
  std::chrono::milliseconds deadline{60'000};  ///< Of waits, see Transport::set_deadline.
  std::chrono::milliseconds heartbeat{500};
  std::chrono::milliseconds silence{10'000};
};

/// Joins the mesh: connects to all lower ranks at their endpoints and admits all higher ones on
/// `listener`. Strangers are refused and do no harm. Throws TransportError.
std::unique_ptr<Transport> make_tcp_transport(int rank, Listener listener,
                                              const std::vector<Endpoint>& endpoints,
                                              const TcpOptions& options);

}  // namespace orrery::executor
