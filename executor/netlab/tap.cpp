#include "executor/netlab/tap.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "executor/netlab/error.h"
#include "models/base/ids.h"

namespace orrery::executor {
namespace {

/// The header before each frame, as the Virtio standard, section 5.1.6, lays it out; the kernel's
/// linux/virtio_net.h of Debian 12 is not valid C++.
struct VirtioHeader {
  std::uint8_t flags = 0;
  std::uint8_t segmentation = 0;
  std::uint16_t header_bytes = 0;
  std::uint16_t segment_bytes = 0;
  std::uint16_t checksum_start = 0;
  std::uint16_t checksum_offset = 0;
};
static_assert(sizeof(VirtioHeader) == 10);
constexpr std::uint8_t kNeedsChecksum = 1;

constexpr std::size_t kEthernetHeader = 14;
constexpr std::size_t kMacBytes = 6;
constexpr int kQueueLength = 4000;  // frames between kernel and switch

using Mac = std::array<unsigned char, kMacBytes>;

/// Locally administered; its last bytes number the nodes from 1.
Mac mac_of(int node) {
  const int number = node + 1;
  return {2,
          0,
          0,
          0,
          static_cast<unsigned char>(number >> 8),
          static_cast<unsigned char>(number & 0xff)};
}

sockaddr_in internet_address(const std::string& text) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, text.c_str(), &address.sin_addr);
  return address;
}

ifreq request_for(const char* device) {
  ifreq request{};
  std::snprintf(request.ifr_name, sizeof request.ifr_name, "%s", device);
  return request;
}

/// Interface requests on one socket; the first that fails throws.
class Configurator {
 public:
  Configurator() : socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    if (!socket_.open()) throw_netlab("open a socket for interface requests", errno);
  }
  void call(unsigned long code, void* request, const std::string& what) const {
    if (ioctl(socket_.fd(), code, request) != 0) throw_netlab(what, errno);
  }
  void try_call(unsigned long code, void* request) const { ioctl(socket_.fd(), code, request); }
  void address(const char* device, unsigned long code, const std::string& text) const {
    ifreq request = request_for(device);
    const sockaddr_in value = internet_address(text);
    std::memcpy(&request.ifr_addr, &value, sizeof value);
    call(code, &request, fmt::format("give {} the address {}", device, text));
  }
  void bring_up(const char* device) const {
    ifreq request = request_for(device);
    call(SIOCGIFFLAGS, &request, fmt::format("read the flags of {}", device));
    request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP | IFF_RUNNING);
    call(SIOCSIFFLAGS, &request, fmt::format("bring up {}", device));
  }

 private:
  Socket socket_;
};

/// No router solicitations and the like; where the namespace has no IPv6 there is nothing to do.
void switch_off_ipv6() {
  const int file = open("/proc/sys/net/ipv6/conf/all/disable_ipv6", O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  if (write(file, "1", 1) != 1) {
    close(file);
    return;  // its frames go nowhere: the switch knows no destination for them
  }
  close(file);
}

void configure(const NetlabSpec& spec, int node) {
  const Configurator net;
  ifreq request = request_for(kNetlabDevice);
  request.ifr_hwaddr.sa_family = ARPHRD_ETHER;
  const Mac mac = mac_of(node);
  std::memcpy(request.ifr_hwaddr.sa_data, mac.data(), mac.size());
  net.call(SIOCSIFHWADDR, &request, "set the Ethernet address");
  request = request_for(kNetlabDevice);
  request.ifr_mtu = kNetlabMtu;
  net.call(SIOCSIFMTU, &request, "set the MTU");
  request = request_for(kNetlabDevice);
  request.ifr_qlen = kQueueLength;
  // Not for the root of a user namespace, where the queue keeps its ordinary length.
  net.try_call(SIOCSIFTXQLEN, &request);
  net.address(kNetlabDevice, SIOCSIFADDR, netlab_address(node));
  net.address(kNetlabDevice, SIOCSIFNETMASK, "255.255.255.0");
  net.bring_up(kNetlabDevice);
  net.bring_up("lo");
  // Known neighbors: the first message need not ask for an address.
  for (int peer = 0; peer < static_cast<int>(spec.nodes.size()); ++peer) {
    if (peer == node) continue;
    arpreq entry{};
    const sockaddr_in address = internet_address(netlab_address(peer));
    std::memcpy(&entry.arp_pa, &address, sizeof address);
    entry.arp_ha.sa_family = ARPHRD_ETHER;
    const Mac theirs = mac_of(peer);
    std::memcpy(entry.arp_ha.sa_data, theirs.data(), theirs.size());
    entry.arp_flags = ATF_PERM | ATF_COM;
    std::snprintf(entry.arp_dev, sizeof entry.arp_dev, "%s", kNetlabDevice);
    net.call(SIOCSARP, &entry, "add a neighbor");
  }
}

VirtioHeader header_of(std::span<const char> data) {
  VirtioHeader header;
  std::memcpy(&header, data.data(), sizeof header);
  return header;
}

}  // namespace

int attach_tap(int device, const char* name) {
  ifreq request = request_for(name);
  request.ifr_flags = static_cast<short>(IFF_TAP | IFF_NO_PI | IFF_VNET_HDR);
  if (ioctl(device, TUNSETIFF, &request) != 0) return errno;
  int bytes = sizeof(VirtioHeader);
  if (ioctl(device, TUNSETVNETHDRSZ, &bytes) != 0) return errno;
  return ioctl(device, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) == 0 ? 0 : errno;
}

Socket open_tap(const NetlabSpec& spec, int node) {
  Socket device(open(kTunDevice, O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!device.open()) throw_netlab(fmt::format("open {}", kTunDevice), errno);
  if (const int error = attach_tap(device.fd(), kNetlabDevice); error != 0) {
    throw_netlab(fmt::format("create a TAP device in {}", namespace_name(spec, node)), error);
  }
  switch_off_ipv6();
  configure(spec, node);
  return device;
}

int tap_destination(std::span<const char> data, int nodes) {
  if (data.size() < sizeof(VirtioHeader) + kEthernetHeader) return -1;
  Mac mac{};
  std::memcpy(mac.data(), data.data() + sizeof(VirtioHeader), mac.size());
  const int node = (mac[4] << 8 | mac[5]) - 1;
  return node >= 0 && node < nodes && mac == mac_of(node) ? node : -1;
}

std::int64_t tap_wire_bytes(std::span<const char> data) {
  const VirtioHeader header = header_of(data);
  const std::size_t bytes = data.size() - sizeof header;
  // For a segmented frame the kernel says where TCP starts; its header_bytes is only a hint.
  constexpr std::size_t kDataOffset = 12;  // of the byte of the TCP header that holds its length
  const std::size_t tcp = header.checksum_start;
  if (header.segmentation == 0 || header.segment_bytes == 0 ||
      (header.flags & kNeedsChecksum) == 0 || tcp + kDataOffset >= bytes) {
    return static_cast<std::int64_t>(bytes);
  }
  const auto offset = static_cast<unsigned char>(data[sizeof header + tcp + kDataOffset]);
  const std::size_t headers = std::min(bytes, tcp + 4 * as_size(offset >> 4));
  const std::size_t payload = bytes - headers;
  const std::size_t segments = (payload + header.segment_bytes - 1) / header.segment_bytes;
  return static_cast<std::int64_t>(payload + std::max<std::size_t>(segments, 1) * headers);
}

}  // namespace orrery::executor
