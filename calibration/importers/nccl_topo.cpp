// NCCL's topology file.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <memory>
#include <optional>

#include "calibration/importers/lines.h"
#include "calibration/importers/node_topology.h"

namespace orrery::calibration {
namespace {

struct XmlElement {
  std::string name;
  std::map<std::string, std::string> attributes;
  std::vector<std::unique_ptr<XmlElement>> children;
  config::Position at;
  std::string attribute(const std::string& key) const {
    const auto found = attributes.find(key);
    return found == attributes.end() ? std::string() : found->second;
  }
};

/// Real files nest a handful of elements; what follows walks and frees them by recursion.
constexpr std::size_t kMostNested = 100;
constexpr std::size_t kMostElements = 100'000;

/// The part of XML that such files use: elements, attributes in quotes, comments, declarations. No
/// text, no entities.
class XmlReader {
 public:
  XmlReader(const std::vector<TextLine>& lines, std::string path, config::Diagnostics& diagnostics)
      : path_(std::move(path)), diagnostics_(diagnostics) {
    for (const TextLine& line : lines) text_ += line.text + "\n";
  }

  /// The outermost element; nothing after a problem.
  std::unique_ptr<XmlElement> read() {
    std::unique_ptr<XmlElement> root;
    std::vector<XmlElement*> open;
    std::size_t elements = 0;
    while (ok_) {
      skip_to('<');
      if (end()) break;
      if (skip_special()) continue;
      if (peek(1) == '/') {
        close(open);
        continue;
      }
      auto element = std::make_unique<XmlElement>();
      const bool empty = read_tag(*element);
      if (!ok_) break;
      XmlElement* own = element.get();
      if (!open.empty()) {
        open.back()->children.push_back(std::move(element));
      } else if (root == nullptr) {
        root = std::move(element);
      } else {
        problem("a second outermost element");
      }
      if (++elements > kMostElements) problem(fmt::format("more than {} elements", kMostElements));
      if (!empty) open.push_back(own);
      if (open.size() > kMostNested) {
        problem(fmt::format("elements inside each other, more than {} deep", kMostNested));
      }
    }
    if (ok_ && root == nullptr) problem("no element");
    if (ok_ && !open.empty()) problem(fmt::format("<{}> is not closed", open.back()->name));
    return ok_ ? std::move(root) : nullptr;
  }

 private:
  bool end() const { return next_ >= text_.size(); }
  char peek(std::size_t ahead = 0) const {
    return next_ + ahead < text_.size() ? text_[next_ + ahead] : '\0';
  }
  void take() {
    column_ = text_[next_] == '\n' ? 1 : column_ + 1;
    line_ += text_[next_] == '\n' ? 1 : 0;
    ++next_;
  }
  config::Position here() const { return {path_, line_, column_}; }
  void problem(const std::string& what) {
    if (ok_) diagnostics_.add(here(), what, "a file of NCCL_TOPO_DUMP_FILE");
    ok_ = false;
  }
  void skip_to(char wanted) {
    while (!end() && peek() != wanted) take();
  }
  void skip_blanks() {
    while (!end() && std::isspace(static_cast<unsigned char>(peek())) != 0) take();
  }
  /// Comments and declarations.
  bool skip_special() {
    if (peek(1) != '!' && peek(1) != '?') return false;
    const bool comment = text_.compare(next_, 4, "<!--") == 0;
    const std::size_t stop = text_.find(comment ? "-->" : ">", next_);
    if (stop == std::string::npos) {
      problem("has no end");
      return true;
    }
    while (next_ < stop) take();
    return true;
  }
  std::string name() {
    std::string out;
    while (!end() && (std::isalnum(static_cast<unsigned char>(peek())) != 0 || peek() == '_' ||
                      peek() == '-' || peek() == ':')) {
      out += peek();
      take();
    }
    if (out.empty()) problem("a name is missing");
    return out;
  }
  void close(std::vector<XmlElement*>& open) {
    take();
    take();
    const std::string closed = name();
    if (!ok_) return;
    if (open.empty() || open.back()->name != closed) {
      return problem(fmt::format("</{}> closes nothing", closed));
    }
    open.pop_back();
  }
  /// Behind the tag; whether it has no content.
  bool read_tag(XmlElement& element) {
    element.at = here();
    take();
    element.name = name();
    while (ok_) {
      skip_blanks();
      if (end()) {
        problem(fmt::format("<{}> has no end", element.name));
        return true;
      }
      if (peek() == '>') {
        take();
        return false;
      }
      if (peek() == '/' && peek(1) == '>') {
        take();
        take();
        return true;
      }
      const std::string key = name();
      if (!ok_) return true;
      const char quote = peek(1);
      if (peek() != '=' || (quote != '"' && quote != '\'')) {
        problem(fmt::format("{}: a value in quotes is missing", key));
        return true;
      }
      take();
      take();
      std::string value;
      while (!end() && peek() != quote) {
        value += peek();
        take();
      }
      if (!end()) take();
      element.attributes[key] = value;
    }
    return true;
  }

  std::string text_;
  std::string path_;
  config::Diagnostics& diagnostics_;
  std::size_t next_ = 0;
  int line_ = 1;
  int column_ = 1;
  bool ok_ = true;
};

/// A GPU or NIC and its position in the tree.
struct PciDevice {
  const XmlElement* element = nullptr;
  const XmlElement* cpu = nullptr;
  std::vector<const XmlElement*>
      bridges;        ///< <pci> around the device's own <pci>, outermost first.
  std::string busid;  ///< Of its own <pci>.
};

void find_devices(const XmlElement& element, PciDevice where, std::vector<const XmlElement*> pci,
                  std::vector<PciDevice>& gpus, std::vector<PciDevice>& nics) {
  if (element.name == "cpu") where.cpu = &element;
  if (element.name == "pci") pci.push_back(&element);
  const bool net = std::any_of(element.children.begin(), element.children.end(),
                               [](const auto& child) { return child->name == "net"; });
  if (element.name == "gpu" || (element.name == "nic" && net)) {
    PciDevice found = where;
    found.element = &element;
    found.bridges = pci;
    if (!found.bridges.empty()) {
      found.busid = found.bridges.back()->attribute("busid");
      found.bridges.pop_back();
    }
    (element.name == "gpu" ? gpus : nics).push_back(found);
  }
  for (const auto& child : element.children) find_devices(*child, where, pci, gpus, nics);
}

/// 0: a common bridge; 1: the same CPU; 2: neither.
int distance(const PciDevice& a, const PciDevice& b) {
  if (!a.bridges.empty() && !b.bridges.empty() && a.bridges.front() == b.bridges.front()) return 0;
  return a.cpu == b.cpu ? 1 : 2;
}

std::optional<int> device_number(const PciDevice& gpu) {
  const std::string text = gpu.element->attribute("dev");
  int number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || stop != text.data() + text.size()) return std::nullopt;
  return number;
}

constexpr const char* kBridgeClass = "0x068000";  ///< PCI class of NVSwitch and other bridges.

}  // namespace

NodeTopology read_nccl_topo(const std::string& path, config::Diagnostics& diagnostics) {
  NodeTopology topology;
  const std::size_t before = diagnostics.problems().size();
  const std::vector<TextLine> lines = read_lines(path, diagnostics);
  if (diagnostics.problems().size() != before) return topology;
  const std::unique_ptr<XmlElement> root = XmlReader(lines, path, diagnostics).read();
  if (root == nullptr) return topology;
  std::vector<PciDevice> gpus, nics;
  find_devices(*root, {}, {}, gpus, nics);
  if (gpus.empty()) diagnostics.add(root->at, "no <gpu> in the file");
  if (gpus.size() + nics.size() > kMostNodeDevices) {
    diagnostics.add(root->at, fmt::format("more than {} GPUs and NICs", kMostNodeDevices));
  }
  for (const PciDevice& gpu : gpus) {
    if (!device_number(gpu)) diagnostics.add(gpu.element->at, "<gpu> without a number `dev`");
  }
  if (diagnostics.problems().size() != before) return topology;
  std::stable_sort(gpus.begin(), gpus.end(), [](const PciDevice& a, const PciDevice& b) {
    return *device_number(a) < *device_number(b);
  });
  const std::size_t count = gpus.size();
  topology.nvlink.assign(count, std::vector<bool>(count, false));
  topology.same_switch.assign(count, std::vector<bool>(count, false));
  topology.nic_distance.resize(count);
  std::vector<std::size_t> switched;
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j < count; ++j) {
      topology.same_switch[i][j] = i != j && distance(gpus[i], gpus[j]) == 0;
    }
    for (const PciDevice& nic : nics) topology.nic_distance[i].push_back(distance(gpus[i], nic));
    bool bridge = false;
    for (const auto& child : gpus[i].element->children) {
      if (child->name != "nvlink") continue;
      bridge = bridge || child->attribute("tclass") == kBridgeClass;
      for (std::size_t j = 0; j < count; ++j) {
        if (child->attribute("target") != gpus[j].busid || i == j) continue;
        topology.nvlink[i][j] = topology.nvlink[j][i] = true;
      }
    }
    if (bridge) switched.push_back(i);
  }
  for (const std::size_t i : switched) {
    for (const std::size_t j : switched) topology.nvlink[i][j] = i != j;
  }
  return topology;
}

}  // namespace orrery::calibration
