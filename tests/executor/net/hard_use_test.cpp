// Does a broken peer give a clear error before the deadline, and never a hang?
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "executor/net/clock.h"
#include "executor/net/crypto.h"
#include "executor/net/frame.h"
#include "executor/net/gate.h"
#include "executor/net/handshake.h"
#include "executor/net/store.h"
#include "models/base/subprocess.h"
#include "tests/executor/net/meshes.h"

namespace orrery::executor::hard_use_test {
namespace {

/// A name with ::1 and then 127.0.0.1 (getaddrinfo() below).
constexpr const char* kTwoAddresses = "two-addresses.test";

}  // namespace
}  // namespace orrery::executor::hard_use_test

/// In place of the C library's, as machines rarely have a name with two addresses.
extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints,
                           addrinfo** found) {
  static const auto lookup =
      reinterpret_cast<decltype(&getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  if (name != std::string(orrery::executor::hard_use_test::kTwoAddresses)) {
    return lookup(name, service, hints, found);
  }
  const int status = lookup("::1", service, hints, found);
  return status != 0 ? status : lookup("127.0.0.1", service, hints, &(*found)->ai_next);
}

namespace orrery::executor::hard_use_test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using Kind = TransportError::Kind;

/// For what comes at once, unless the machine is busy with other things.
SteadyTime soon() { return Clock::now() + std::chrono::minutes(1); }

/// Rank 0 of a mesh of two whose rank 1 does as `stranger` says; returns what rank 0 ran into.
TransportError rank_zero_meets(const std::function<void(Joined)>& stranger,
                               const TcpOptions& options = test_options()) {
  Listener listener;
  const Endpoint endpoint{"127.0.0.1", listener.port()};
  std::thread other([&] { stranger(join(endpoint, "a token", {Role::rank, 1, 2, 0}, soon(), 0)); });
  TransportError result(Kind::local, -1, "nothing happened");
  try {
    const auto transport =
        make_tcp_transport(0, std::move(listener), {endpoint, {"127.0.0.1", 0}}, options);
    std::vector<std::byte> buffer(64);
    transport->receive(1, make_tag(0, 1, 0), buffer)->wait();
  } catch (const TransportError& error) {
    result = error;
  }
  other.join();
  return result;
}

void send_frame(const Socket& socket, FrameHeader header, std::vector<std::byte> payload) {
  write_all(socket, std::as_bytes(std::span(&header, 1)), soon(), 0);
  write_all(socket, payload, soon(), 0);
  std::this_thread::sleep_for(milliseconds(300));
}

TEST(HardUse, AClosedConnectionIsALostPeer) {
  const TransportError error = rank_zero_meets([](Joined joined) { joined.socket.close(); });
  EXPECT_EQ(error.kind(), Kind::peer_lost) << error.what();
  EXPECT_EQ(error.peer(), 1);
}

TEST(HardUse, AHalfOpenConnectionIsALostPeerAfterTheSilenceLimit) {
  TcpOptions options = test_options();
  options.silence = milliseconds(1'000);
  std::promise<void> noticed;  // The connection stays open until then.
  std::thread rank;
  TransportError error(Kind::local, -1, "nothing happened");
  {
    std::promise<Joined> open;
    rank = std::thread([&] {
      error = rank_zero_meets([&](Joined joined) { open.set_value(std::move(joined)); }, options);
      noticed.set_value();
    });
    const Joined joined = open.get_future().get();
    EXPECT_EQ(noticed.get_future().wait_for(std::chrono::minutes(1)), std::future_status::ready);
  }
  rank.join();
  EXPECT_EQ(error.kind(), Kind::peer_lost) << error.what();
  EXPECT_NE(std::string(error.what()).find("silent"), std::string::npos) << error.what();
}

TEST(HardUse, FramesThatMakeNoSenseAreFound) {
  const std::vector<std::byte> payload(64, std::byte{7});
  const auto header = [&](const Joined& joined, std::uint64_t op, std::uint64_t sequence = 0) {
    return make_header(Authenticator(joined.keys.send), FrameKind::data, sequence,
                       make_tag(0, op, 0), payload);
  };
  const std::map<std::string, std::function<void(const Joined&)>> strangers = {
      {"garbage", [&](const Joined& to) { send_frame(to.socket, {}, payload); }},
      {"a flipped bit in the payload",
       [&](const Joined& to) {
         std::vector<std::byte> flipped = payload;
         flipped[17] ^= std::byte{4};
         send_frame(to.socket, header(to, 1), flipped);
       }},
      {"a flipped bit in the header",
       [&](const Joined& to) {
         FrameHeader flipped = header(to, 1);
         flipped.tag ^= 1;
         send_frame(to.socket, flipped, payload);
       }},
      {"a repeated frame",
       [&](const Joined& to) {
         send_frame(to.socket, header(to, 9), payload);
         send_frame(to.socket, header(to, 9), payload);
       }},
      {"a missing frame",
       [&](const Joined& to) { send_frame(to.socket, header(to, 1, 1), payload); }},
      {"a frame of another connection",
       [&](const Joined& to) {
         const FrameHeader foreign =
             make_header(Authenticator(Bytes32{}), FrameKind::data, 0, make_tag(0, 1, 0), payload);
         send_frame(to.socket, foreign, payload);
       }},
      {"one's own frame, sent back",
       [&](const Joined& to) {
         const FrameHeader reflected = make_header(Authenticator(to.keys.receive), FrameKind::data,
                                                   0, make_tag(0, 1, 0), payload);
         send_frame(to.socket, reflected, payload);
       }},
      {"a message of another size", [&](const Joined& to) {
         const std::vector<std::byte> half(32, std::byte{7});
         send_frame(
             to.socket,
             make_header(Authenticator(to.keys.send), FrameKind::data, 0, make_tag(0, 1, 0), half),
             half);
       }}};
  for (const auto& [what, stranger] : strangers) {
    const TransportError error = rank_zero_meets(stranger);
    EXPECT_EQ(error.kind(), Kind::corrupt) << what << ": " << error.what();
  }
}

TEST(HardUse, AHeaderThatClaimsMuchTakesNoMemory) {
  const TransportError error = rank_zero_meets([](const Joined& to) {
    FrameHeader header =
        make_header(Authenticator(to.keys.send), FrameKind::data, 0, make_tag(0, 9, 0), {});
    header.bytes = std::uint64_t{1} << 36;  // 64 GiB, more than the machine has.
    header.mac = Authenticator(to.keys.send)
                     .mac(Authenticator::Part::header, 0,
                          {std::as_bytes(std::span(&header, 1)).first(offsetof(FrameHeader, mac))});
    send_frame(to.socket, header, std::vector<std::byte>(1 << 20));
  });
  EXPECT_EQ(error.kind(), Kind::peer_lost) << error.what();
}

/// Strangers that connect and say nothing, for as long as they live.
std::vector<Socket> silent_strangers(const Endpoint& endpoint, int count) {
  std::vector<Socket> strangers;
  for (int i = 0; i < count; ++i) strangers.push_back(connect_to(endpoint, soon(), 0));
  return strangers;
}

TEST(HardUse, SilentStrangersKeepNoRankWaiting) {
  Listener listener;
  const Endpoint endpoint{"127.0.0.1", listener.port()};
  const std::vector<Socket> strangers = silent_strangers(endpoint, 200);
  TcpOptions options = test_options();
  // One after the other, each with its patience, they would take 400 s.
  options.connect = milliseconds(50'000);
  auto one = std::async(std::launch::async, [&] {
    return make_tcp_transport(1, Listener(), {endpoint, {}}, options);
  });
  auto zero = std::async(std::launch::async, [&] {
    return make_tcp_transport(0, std::move(listener), {endpoint, {}}, options);
  });
  EXPECT_NO_THROW(one.get());
  EXPECT_NO_THROW(zero.get());
}

TEST(HardUse, ARankThatLeavesLosesNothingOnItsWay) {
  Listener listener;
  const Endpoint endpoint{"127.0.0.1", listener.port()};
  constexpr std::size_t kBytes = std::size_t{2} << 20;  // More than the peer's kernel keeps unread.
  const auto leaving = std::async(std::launch::async, [&] {
    const auto transport =
        make_tcp_transport(0, std::move(listener), {endpoint, {"127.0.0.1", 0}}, test_options());
    transport->send(1, make_tag(0, 1, 0), std::vector<std::byte>(kBytes))->wait();
  });
  const Joined to = join(endpoint, "a token", {Role::rank, 1, 2, 0}, soon(), 0);
  std::this_thread::sleep_for(milliseconds(200));
  // Had it closed its end by now, its kernel would forget what it still has to send.
  send_frame(to.socket, make_header(Authenticator(to.keys.send), FrameKind::heartbeat, 0, {}, {}),
             {});
  FrameHeader header;
  std::size_t got = 0;
  while (header.kind != FrameKind::goodbye) {
    read_all(to.socket, std::as_writable_bytes(std::span(&header, 1)), soon(), 0);
    std::vector<std::byte> payload(header.bytes);
    read_all(to.socket, payload, soon(), 0);
    got += payload.size();
  }
  EXPECT_EQ(got, kBytes);
}

TEST(HardUse, APeerThatBeatsButDoesNotSendRunsIntoTheDeadline) {
  TcpOptions options = test_options();
  options.deadline = milliseconds(300);
  std::promise<void> over;
  const auto errors = run_mesh(
      "tcp", 2,
      [&](Transport& transport) {
        std::vector<std::byte> buffer(8);
        if (transport.rank() == 1) return over.get_future().wait();
        const RequestPointer request = transport.receive(1, make_tag(0, 1, 0), buffer);
        try {
          request->wait();
        } catch (...) {
          over.set_value();
          throw;
        }
        over.set_value();
      },
      options);
  EXPECT_NE(first_error(errors).find("waited 300 ms"), std::string::npos) << first_error(errors);
}

TEST(HardUse, AStrangerWithTheWrongTokenIsRefusedAndDoesNoHarm) {
  Listener listener;
  const Endpoint endpoint{"127.0.0.1", listener.port()};
  std::promise<void> refused;
  std::thread ranks([&] {
    std::thread one([&] {
      refused.get_future().wait();
      make_tcp_transport(1, Listener(), {endpoint, {}}, test_options());
    });
    make_tcp_transport(0, std::move(listener), {endpoint, {}}, test_options());
    one.join();
  });
  const Socket socket = connect_to(endpoint, soon(), 0);
  try {
    introduce(socket, "another token", {Role::rank, 1, 2, 0}, soon(), 0);
    ADD_FAILURE() << "was admitted";
  } catch (const TransportError& error) {
    EXPECT_EQ(error.kind(), Kind::refused);
    EXPECT_STREQ(error.what(), "refused: wrong token");
  }
  refused.set_value();
  ranks.join();
}

TEST(HardUse, AnotherGenerationIsRefused) {
  Gate gate(Listener(), "t", {Role::rank, 0, 2, 4});
  const Endpoint endpoint{"127.0.0.1", gate.port()};
  auto stranger = std::async(std::launch::async, [&] {
    join(endpoint, "t", {Role::rank, 1, 2, 3}, soon(), 0);
  });
  EXPECT_FALSE(gate.next(Clock::now() + milliseconds(500)));
  EXPECT_EQ(gate.last_refusal(), "generation 3 where 4 runs");
  EXPECT_THROW(stranger.get(), TransportError);
}

// As where somebody without the token exchanges the connections of a rank to two others.
TEST(HardUse, AConnectionThatIsLedToAnotherRankIsRefused) {
  Gate gate(Listener(), "t", {Role::rank, 1, 3, 4});
  const Endpoint endpoint{"127.0.0.1", gate.port()};
  auto led = std::async(std::launch::async, [&] {
    join(endpoint, "t", {Role::rank, 2, 3, 4}, soon(), 0);
  });
  EXPECT_FALSE(gate.next(Clock::now() + milliseconds(500)));
  EXPECT_EQ(gate.last_refusal(), "a connection for rank 0 at rank 1");
  EXPECT_THROW(led.get(), TransportError);
}

TEST(HardUse, AnImpostorThatAcceptsIsFound) {
  Listener listener;
  auto impostor = std::async(std::launch::async, [&] {
    const Socket socket = listener.accept(soon());
    wire::Challenge challenge = make_challenge();
    write_all(socket, bytes_of(challenge), soon(), 1);
    wire::Hello hello;
    read_all(socket, bytes_of(hello), soon(), 1);
    Judgment judgment = judge(challenge, hello, "a guess", {Role::rank, 0, 2, 0});
    judgment.verdict.welcome = 1;
    write_all(socket, bytes_of(judgment.verdict), soon(), 1);
  });
  try {
    join({"127.0.0.1", listener.port()}, "t", {Role::rank, 1, 2, 0}, soon(), 0);
    ADD_FAILURE() << "was believed";
  } catch (const TransportError& error) {
    EXPECT_STREQ(error.what(), "the other side does not know the run's token");
  }
  impostor.get();
}

TEST(HardUse, AllAddressesOfANameAreTried) {
  const Listener listener("127.0.0.1");
  EXPECT_TRUE(
      connect_to({kTwoAddresses, listener.port()}, Clock::now() + std::chrono::seconds(10), 0)
          .open());
}

TEST(HardUse, TwoListenersOnOnePortAreAClearError) {
  const Listener first;
  try {
    const Listener second("", first.port());
    ADD_FAILURE() << "both listen";
  } catch (const TransportError& error) {
    EXPECT_NE(std::string(error.what()).find("Address already in use"), std::string::npos);
  }
}

TEST(HardUse, AKilledProcessIsNoticedByAll) {
  std::vector<Listener> listeners(3);
  std::vector<Endpoint> endpoints;
  for (const Listener& listener : listeners) endpoints.push_back({"127.0.0.1", listener.port()});
  std::vector<Subprocess> children;
  for (int rank = 0; rank < 3; ++rank) {
    SubprocessOptions child;
    child.body = [&, rank] {
      try {
        const std::size_t index = rank;
        const auto transport =
            make_tcp_transport(rank, std::move(listeners[index]), endpoints, test_options());
        std::vector<std::byte> buffer(8);
        if (rank == 2) raise(SIGKILL);
        transport->receive(2, make_tag(0, 1, 0), buffer)->wait();
      } catch (const TransportError& error) {
        return error.kind() == Kind::peer_lost ? 42 : 1;
      }
      return 0;
    };
    children.emplace_back(child);
  }
  EXPECT_EQ(children[0].wait().code, 42);
  EXPECT_EQ(children[1].wait().code, 42);
  EXPECT_EQ(children[2].wait().signal, SIGKILL);
}

TEST(Store, KeepsValuesAndNumbers) {
  StoreServer server(Listener(), "token");
  const Endpoint endpoint{"127.0.0.1", server.port()};
  StoreClient client(endpoint, "token");
  client.set("a/1", "one");
  client.set("a/2", std::string("with \0 zero", 11));
  client.set("b", "");
  EXPECT_EQ(client.get("a/1", milliseconds(0)), "one");
  EXPECT_EQ(client.get("c", milliseconds(20)), std::nullopt);
  const std::map<std::string, std::string> both = {{"a/1", "one"},
                                                   {"a/2", std::string("with \0 zero", 11)}};
  EXPECT_EQ(client.list("a/"), both);
  EXPECT_EQ(client.add("n", 2), 2);
  EXPECT_EQ(client.add("n", 3), 5);
  EXPECT_EQ(client.get("n", milliseconds(0)), "5");
  client.remove("a/1");
  EXPECT_EQ(client.get("a/1", milliseconds(0)), std::nullopt);
  auto late = std::async(std::launch::async, [&] {
    StoreClient other(endpoint, "token");
    std::this_thread::sleep_for(milliseconds(50));
    other.set("late", "value");
  });
  EXPECT_EQ(client.get("late", milliseconds(60'000)), "value");
  late.get();
}

TEST(Store, OutlivesMoreStrangersThanItHasDescriptors) {
  SubprocessOptions child;
  child.body = [] {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 128;
    setrlimit(RLIMIT_NOFILE, &limit);
    StoreServer server(Listener(), "token");
    const Endpoint endpoint{"127.0.0.1", server.port()};
    // The strangers live in a process of their own, with descriptors of its own.
    SubprocessOptions siege;
    siege.body = [&] {
      limit.rlim_cur = limit.rlim_max;
      setrlimit(RLIMIT_NOFILE, &limit);
      const std::vector<Socket> strangers = silent_strangers(endpoint, 400);
      pause();
      return 0;
    };
    siege.death_signal = SIGKILL;
    Subprocess strangers(siege);
    std::this_thread::sleep_for(milliseconds(200));
    int served = 0;
    for (int i = 0; i < 20; ++i) {
      StoreClient client(endpoint, "token");
      served += client.add("n", 1) == i + 1 ? 1 : 0;
    }
    strangers.signal(SIGKILL);
    strangers.wait();
    return served;
  };
  Subprocess store(child);
  EXPECT_EQ(store.wait().code, 20);
}

TEST(Store, RefusesAWrongToken) {
  StoreServer server(Listener(), "token");
  EXPECT_THROW(StoreClient({"127.0.0.1", server.port()}, "guess"), TransportError);
}

std::string hex(std::span<const std::byte> bytes) {
  std::string out;
  for (const std::byte b : bytes) out += fmt::format("{:02x}", std::to_integer<int>(b));
  return out;
}

TEST(Crypto, AgreesWithPublishedVectors) {
  const std::string data = "what do ya want for nothing?";
  EXPECT_EQ(hex(hmac("Jefe", {std::as_bytes(std::span<const char>(data))})),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843")  // RFC 4231, 4.3
      << "HMAC-SHA-256";
  EXPECT_EQ(hex(Authenticator(Bytes32{}).mac(Authenticator::Part::header, 0, {})),
            "530f8afbc74536b9a963b4f1c4cb738b")  // McGrew and Viega, GCM, test case 13
      << "GMAC";
}

TEST(Clocks, OfOneMachineAgreeWithinTheirUncertainty) {
  const auto errors = run_mesh("tcp", 3, [](Transport& transport) {
    const ClockEstimate estimate = estimate_clock(transport, 0);
    if (std::abs(estimate.offset_ns) > estimate.uncertainty_ns) {
      throw std::runtime_error("offset beyond the uncertainty");
    }
  });
  EXPECT_EQ(first_error(errors), "");
}

}  // namespace
}  // namespace orrery::executor::hard_use_test
