/// The only file that knows yaml-cpp: its parser events become a Value tree. yaml-cpp counts from
/// 0, keeps duplicate keys, expands aliases without limit and stops silently after a document;
/// all four are handled here.
#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "models/config/document.h"

namespace orrery::config {
namespace {

constexpr std::size_t kMostBytes = std::size_t{64} << 20;
constexpr std::size_t kMostNodes = 1'000'000;  // aliases expanded
constexpr std::size_t kMostDepth = 100;

/// Reading cannot go on; the problem is already recorded.
struct Stop {};

std::size_t count_nodes(const Value& value) {
  std::size_t count = 1;
  for (const Value& item : value.items) count += count_nodes(item);
  for (const Value::Entry& entry : value.entries) count += count_nodes(entry.value);
  return count;
}

std::size_t depth_of(const Value& value) {
  std::size_t below = 0;
  for (const Value& item : value.items) below = std::max(below, depth_of(item));
  for (const Value::Entry& entry : value.entries) below = std::max(below, depth_of(entry.value));
  return below + 1;
}

class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(std::string file, Diagnostics& problems)
      : file_(std::move(file)), problems_(problems) {}

  Value& root() { return root_; }
  Position position(const YAML::Mark& mark) const {
    if (mark.is_null()) return {file_, 1, 1};
    return {file_, mark.line + 1, mark.column + 1};
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ == 0) return;
    stop(position(mark), "content after the end of the document", "a file holds one document");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Value value;
    value.at = position(mark);
    if (!open_.empty() && open_.back().key && value.at.line != open_.back().key->at.line)
      value.at = open_.back().key->at;  // yaml-cpp marks the token after a missing value
    add(std::move(value), anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end())
      stop(position(mark), "alias refers to a node that holds it", "write the value out");
    if (open_.size() + found->second.depth > kMostDepth) too_deep(mark);
    nodes_ += found->second.nodes;
    check_size(mark);
    if (expects_key()) stop(position(mark), "a key must be text, not an alias", "");
    attach(found->second.value);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    if (expects_key()) {
      open_.back().key = Key{text, position(mark), false};
      open_.back().mark_duplicate(problems_);
      ++nodes_;
      check_size(mark);
      return;
    }
    Value value = Value::scalar(text, position(mark));
    value.quoted = tag == "!" || tag == kTagPrefix + "str";
    check_tag(mark, tag, {"str", "int", "float", "bool"});
    add(std::move(value), anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    check_tag(mark, tag, {"seq"});
    open(Value::list({}, position(mark)), mark, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    check_tag(mark, tag, {"map"});
    open(Value::map({}, position(mark)), mark, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Key {
    std::string text;
    Position at;
    bool duplicate;
  };
  struct Open {
    Value value;
    YAML::anchor_t anchor = 0;
    std::optional<Key> key;  // read, waiting for its value
    std::map<std::string, int> key_lines;

    void mark_duplicate(Diagnostics& problems) {
      const auto [first, fresh] = key_lines.emplace(key->text, key->at.line);
      key->duplicate = !fresh;
      if (!fresh)
        problems.add(key->at, fmt::format("duplicate key '{}'", key->text),
                     fmt::format("first at line {}", first->second));
    }
  };
  struct Anchored {
    Value value;
    std::size_t nodes;
    std::size_t depth;
  };

  static inline const std::string kTagPrefix = "tag:yaml.org,2002:";

  [[noreturn]] void stop(Position at, std::string what, std::string hint) {
    problems_.add(std::move(at), std::move(what), std::move(hint));
    throw Stop{};
  }
  [[noreturn]] void too_deep(const YAML::Mark& mark) {
    stop(position(mark), "nested too deeply", fmt::format("at most {} levels", kMostDepth));
  }
  void check_size(const YAML::Mark& mark) {
    if (nodes_ > kMostNodes)
      stop(position(mark), "document is too large",
           fmt::format("at most {} values, aliases expanded", kMostNodes));
  }
  void check_tag(const YAML::Mark& mark, const std::string& tag,
                 std::initializer_list<const char*> known) {
    if (tag.empty() || tag == "?" || tag == "!") return;
    for (const char* name : known)
      if (tag == kTagPrefix + name) return;
    problems_.add(position(mark), fmt::format("unsupported YAML tag '{}'", tag), "remove it");
  }
  bool expects_key() const {
    return !open_.empty() && open_.back().value.is_map() && !open_.back().key;
  }
  void add(Value value, YAML::anchor_t anchor) {
    ++nodes_;
    if (nodes_ > kMostNodes) stop(value.at, "document is too large", "");
    if (expects_key()) stop(value.at, "a key must be text, got " + kind_text(value), "");
    if (anchor != 0) anchors_[anchor] = {value, 1, 1};
    attach(std::move(value));
  }
  void open(Value value, const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (expects_key()) stop(value.at, "a key must be text, got " + kind_text(value), "");
    ++nodes_;
    check_size(mark);
    if (open_.size() >= kMostDepth) too_deep(mark);
    Open opened;
    opened.value = std::move(value);
    opened.anchor = anchor;
    open_.push_back(std::move(opened));
  }
  void close() {
    Open closed = std::move(open_.back());
    open_.pop_back();
    if (closed.anchor != 0)
      anchors_[closed.anchor] = {closed.value, count_nodes(closed.value), depth_of(closed.value)};
    attach(std::move(closed.value));
  }
  void attach(Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return;
    }
    Open& parent = open_.back();
    if (parent.value.is_list()) {
      parent.value.items.push_back(std::move(value));
      return;
    }
    if (!parent.key->duplicate)
      parent.value.entries.push_back(
          {std::move(parent.key->text), std::move(parent.key->at), std::move(value)});
    parent.key.reset();
  }

  std::string file_;
  Diagnostics& problems_;
  Value root_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, Anchored> anchors_;
  std::size_t nodes_ = 0;
  int documents_ = 0;
};

/// Length of the UTF-8 sequence at the front of `text`, or 0 if it is none (RFC 3629).
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  const std::size_t length = lead < 0x80                    ? 1
                             : lead >= 0xC2 && lead <= 0xDF ? 2
                             : lead >= 0xE0 && lead <= 0xEF ? 3
                             : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                            : 0;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0U) != 0x80) return 0;
  const bool overlong = (lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xF0 && byte(1) < 0x90);
  const bool outside = (lead == 0xED && byte(1) > 0x9F) || (lead == 0xF4 && byte(1) > 0x8F);
  return overlong || outside ? 0 : length;
}

/// False, with a problem, at the first byte that no text file holds.
bool check_text(std::string_view text, const std::string& name, Diagnostics& problems) {
  Position at{name, 1, 1};
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const std::size_t length = utf8_length(text.substr(i));
    const bool control = byte < 0x20 && byte != '\n' && byte != '\r' && byte != '\t';
    if (length == 0 || control || byte == 0x7F) {
      problems.add(
          at,
          fmt::format("{} 0x{:02x}", length == 0 ? "not UTF-8: byte" : "control character", byte),
          "is this a text file?");
      return false;
    }
    at.column += static_cast<int>(length);
    if (byte == '\n') {
      ++at.line;
      at.column = 1;
    }
    i += length;
  }
  return true;
}

/// `text` with an end-of-document line. Without it yaml-cpp takes a quoted string that the file
/// does not close for complete.
std::string with_end(std::string_view text) {
  constexpr std::string_view kEnd = "...";
  const std::size_t last = text.find_last_not_of(" \r\n");
  const bool has_end = last != std::string_view::npos && last >= 3 &&
                       text.substr(last - 2, 3) == kEnd && text[last - 3] == '\n';
  std::string out(text);
  if (!has_end) out += text.ends_with('\n') ? "...\n" : "\n...\n";
  return out;
}

/// yaml-cpp's message; one of them speaks of the line that with_end() added.
std::string describe_error(const std::string& message) {
  return "ill-formed YAML: " + (message == YAML::ErrorMsg::DOC_IN_SCALAR
                                    ? std::string("a quoted string is not closed")
                                    : message);
}

bool is_blank(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

/// The files that a directory has instead of a missing one, as a hint.
std::string similar_file(const std::filesystem::path& path) {
  std::error_code ignored;
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  if (!std::filesystem::is_directory(folder, ignored)) {
    return fmt::format("there is no directory '{}'", folder.string());
  }
  std::vector<std::string> names;
  for (std::filesystem::directory_iterator it(folder, ignored), end; !ignored && it != end;
       it.increment(ignored))
    names.push_back(it->path().filename().string());
  std::sort(names.begin(), names.end());
  const std::string best = closest(path.filename().string(), names);
  return best.empty() ? "" : fmt::format("did you mean '{}'?", best);
}

std::optional<std::string> read_bytes(const std::string& path, Diagnostics& problems) {
  const Position at{path, 0, 0};
  std::error_code status_error;
  const std::filesystem::file_status status = std::filesystem::status(path, status_error);
  if (!std::filesystem::exists(status) && status.type() != std::filesystem::file_type::none) {
    problems.add(at, "no such file", similar_file(path));
    return std::nullopt;
  }
  if (std::filesystem::is_directory(status)) {
    problems.add(at, "is a directory", "a file is needed");
    return std::nullopt;
  }
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::string text;
  std::vector<char> chunk(1 << 16);
  while (in && text.size() <= kMostBytes) {
    in.read(chunk.data(), static_cast<std::streamsize>(chunk.size()));
    text.append(chunk.data(), in.gcount());
  }
  if (text.size() > kMostBytes) {
    problems.add(at, "file is too large", fmt::format("at most {} MiB", kMostBytes >> 20));
    return std::nullopt;
  }
  if (!in.eof()) {
    problems.add(at, "cannot be read", std::generic_category().message(errno));
    return std::nullopt;
  }
  return text;
}

}  // namespace

Value load_value_text(std::string_view text, const std::string& name, Diagnostics& problems) {
  TreeBuilder builder(name, problems);
  if (text.size() > kMostBytes) {
    problems.add({name, 0, 0}, "file is too large",
                 fmt::format("at most {} MiB", kMostBytes >> 20));
    return {};
  }
  if (!check_text(text, name, problems)) return {};
  if (is_blank(text)) {
    problems.add({name, 1, 1}, "the file is empty", "");
    return {};
  }
  try {
    std::istringstream in(with_end(text));
    YAML::Parser parser(in);
    if (!parser.HandleNextDocument(builder) || builder.root().is_null())
      problems.add({name, 1, 1}, "the file is empty", "");
    else
      parser.HandleNextDocument(builder);
  } catch (const Stop&) {
  } catch (const YAML::Exception& error) {
    problems.add(builder.position(error.mark), describe_error(error.msg), "");
  } catch (const std::exception& error) {
    problems.add({name, 1, 1}, fmt::format("ill-formed YAML: {}", error.what()), "");
  }
  return std::move(builder.root());
}

Value load_value(const std::string& path, Diagnostics& problems) {
  const std::optional<std::string> text = read_bytes(path, problems);
  return text ? load_value_text(*text, path, problems) : Value{};
}

}  // namespace orrery::config
