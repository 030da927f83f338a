#include "tools/python/channel.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tools/python/session.h"

namespace orrery::python {
namespace {

bool write_all(int socket, const char* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t count = ::send(socket, bytes, size, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes += count;
    size -= count;
  }
  return true;
}

/// False at the end of the stream.
bool read_all(int socket, char* bytes, std::size_t size, const std::function<void()>& on_signal) {
  while (size > 0) {
    const ssize_t count = read(socket, bytes, size);
    if (count < 0 && errno == EINTR) {
      if (on_signal) on_signal();
      continue;
    }
    if (count <= 0) return false;
    bytes += count;
    size -= count;
  }
  return true;
}

}  // namespace

Channel::~Channel() {
  if (socket_ >= 0) close(socket_);
}

void Channel::send(char kind, std::string_view bytes) const {
  char head[1 + sizeof(std::size_t)];
  const std::size_t size = bytes.size();
  head[0] = kind;
  std::memcpy(head + 1, &size, sizeof size);
  if (!write_all(socket_, head, sizeof head) || !write_all(socket_, bytes.data(), size)) {
    throw ChannelError(fmt::format("the helper process has ended ({})", std::strerror(errno)));
  }
}

std::optional<Channel::Message> Channel::receive(const std::function<void()>& on_signal) const {
  char head[1 + sizeof(std::size_t)];
  if (!read_all(socket_, head, sizeof head, on_signal)) return std::nullopt;
  std::size_t size = 0;
  std::memcpy(&size, head + 1, sizeof size);
  Message message{head[0], std::string(size, '\0')};
  if (!read_all(socket_, message.bytes.data(), size, on_signal)) return std::nullopt;
  return message;
}

void Channel::send_file(int file) const {
  char byte = 'f';
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(head), &file, sizeof file);
  if (sendmsg(socket_, &message, MSG_NOSIGNAL) != 1) {
    throw ChannelError(fmt::format("the helper process has ended ({})", std::strerror(errno)));
  }
}

int Channel::receive_file() const {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t count = 0;
  do {
    count = recvmsg(socket_, &message, 0);
  } while (count < 0 && errno == EINTR);
  const cmsghdr* head = count == 1 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (head == nullptr || head->cmsg_type != SCM_RIGHTS) return -1;
  int file = -1;
  std::memcpy(&file, CMSG_DATA(head), sizeof file);
  return file;
}

void serve(int socket) {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGCHLD, SIG_IGN);  // Sessions are reaped by the system.
  const Channel parent{socket};
  for (int file = parent.receive_file(); file >= 0; file = parent.receive_file()) {
    const pid_t child = fork();
    if (child == 0) {
      signal(SIGCHLD, SIG_DFL);
      signal(SIGINT, SIG_DFL);  // Python's handler would only take note.
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      close(socket);
      try {
        run_session(Channel(file));
      } catch (const ChannelError&) {
        // The parent has gone, or does not want the answer any more.
      }
      _exit(0);
    }
    close(file);
  }
}

}  // namespace orrery::python
