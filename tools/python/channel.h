/// Messages between the process of a notebook and those that simulate for it.
///
/// SimGrid's engine is one per process, for good, and simulations fork; neither belongs into a
/// process with threads, sockets and windows of its own. So a notebook never has an engine and
/// never forks: on first use it starts one small helper process (orrery/helper.py executes Python
/// anew), which forks a session for each simulator; a session builds one engine and forks for each
/// run. All of them end when their socket does.
#pragma once
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "tools/python/caster.h"

namespace orrery::python {

template <class... T>
std::string pack(const T&... values) {
  std::string bytes;
  (Convert<T>::write(values, bytes), ...);
  return bytes;
}
template <class... T>
std::tuple<T...> unpack(std::string_view bytes) {
  std::tuple<T...> values;
  std::apply([&](auto&... value) { (Convert<T>::read(bytes, value), ...); }, values);
  return values;
}

/// The other process ended, or said why it could not answer.
struct ChannelError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// One end of a stream socket, which it closes.
class Channel {
 public:
  explicit Channel(int socket) : socket_(socket) {}
  ~Channel();
  Channel(Channel&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}
  Channel& operator=(Channel&&) = delete;

  /// A kind, then bytes. Throws ChannelError where nobody reads any more.
  void send(char kind, std::string_view bytes) const;
  struct Message {
    char kind = 0;
    std::string bytes;
  };
  /// None at the end of the stream. `on_signal` is called whenever a signal interrupts the wait.
  std::optional<Message> receive(const std::function<void()>& on_signal = {}) const;

  /// Hands an open file to the other side, which gets a copy.
  void send_file(int file) const;
  /// -1 at the end of the stream.
  int receive_file() const;

 private:
  int socket_;
};

/// What a helper does until its parent closes the socket: forks a session for each file that it is
/// handed.
void serve(int socket);

}  // namespace orrery::python
