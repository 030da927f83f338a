/// The only file that knows libyaml: its parser events become a Value tree. libyaml counts from 0
/// and leaves duplicate keys, aliases, tags and further documents to its caller.
#include <fmt/format.h>
#include <yaml.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "models/config/document.h"
#include "models/config/schema_of.h"

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

class TreeBuilder {
 public:
  TreeBuilder(std::string file, Diagnostics& problems)
      : file_(std::move(file)), problems_(problems) {}

  Value& root() { return root_; }
  bool has_content() const { return documents_ > 0 && !root_.is_null(); }
  Position position(const yaml_mark_t& mark) const {
    return {file_, static_cast<int>(mark.line) + 1, static_cast<int>(mark.column) + 1};
  }

  void take(const yaml_event_t& event) {
    switch (event.type) {
      case YAML_DOCUMENT_START_EVENT:
        if (documents_++ > 0) second_document(event.start_mark);
        break;
      case YAML_ALIAS_EVENT:
        take_alias(event.start_mark, text_of(event.data.alias.anchor));
        break;
      case YAML_SCALAR_EVENT:
        take_scalar(event);
        break;
      case YAML_SEQUENCE_START_EVENT:
        check_tag(event.start_mark, text_of(event.data.sequence_start.tag), {"seq"});
        open(Value::list({}, position(event.start_mark)), event.start_mark,
             text_of(event.data.sequence_start.anchor));
        break;
      case YAML_MAPPING_START_EVENT:
        check_tag(event.start_mark, text_of(event.data.mapping_start.tag), {"map"});
        open(Value::map({}, position(event.start_mark)), event.start_mark,
             text_of(event.data.mapping_start.anchor));
        break;
      case YAML_SEQUENCE_END_EVENT:
      case YAML_MAPPING_END_EVENT:
        close();
        break;
      default:
        break;
    }
  }

  /// The parser's own complaint.
  void take_error(const yaml_parser_t& parser) {
    const std::string_view problem =
        parser.problem == nullptr ? "ill-formed" : std::string_view(parser.problem);
    if (documents_ > 0 && problem == "did not find expected <document start>") {
      second_document(parser.problem_mark);
    }
    const bool explained = parser.context != nullptr;
    problems_.add(position(parser.problem_mark),
                  fmt::format("ill-formed YAML: {}{}{}", problem, explained ? " " : "",
                              explained ? parser.context : ""),
                  "");
  }

 private:
  struct Key {
    std::string text;
    Position at;
    bool duplicate;
  };
  struct Open {
    Value value;
    std::string anchor;
    std::optional<Key> key;  // read, waiting for its value
    std::map<std::string, int, std::less<>> key_lines;

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

  static constexpr std::string_view kTagPrefix = "tag:yaml.org,2002:";

  static std::string_view text_of(const yaml_char_t* text) {
    return text == nullptr ? std::string_view() : reinterpret_cast<const char*>(text);
  }

  [[noreturn]] void stop(Position at, std::string what, std::string hint) {
    problems_.add(std::move(at), std::move(what), std::move(hint));
    throw Stop{};
  }
  [[noreturn]] void second_document(const yaml_mark_t& mark) {
    stop(position(mark), "content after the end of the document", "a file holds one document");
  }
  [[noreturn]] void too_deep(const yaml_mark_t& mark) {
    stop(position(mark), "nested too deeply", fmt::format("at most {} levels", kMostDepth));
  }

  void take_alias(const yaml_mark_t& mark, std::string_view anchor) {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) {
      for (const Open& one : open_) {
        if (one.anchor != anchor) continue;
        stop(position(mark), "alias refers to a node that holds it", "write the value out");
      }
      stop(position(mark), fmt::format("alias '*{}' without an anchor", anchor),
           fmt::format("'&{}' must stand before it", anchor));
    }
    if (open_.size() + found->second.depth > kMostDepth) too_deep(mark);
    nodes_ += found->second.nodes;
    check_size(mark);
    if (expects_key()) stop(position(mark), "a key must be text, not an alias", "");
    attach(found->second.value);
  }

  void take_scalar(const yaml_event_t& event) {
    const auto& scalar = event.data.scalar;
    const yaml_mark_t& mark = event.start_mark;
    const std::string_view tag = text_of(scalar.tag);
    std::string text(reinterpret_cast<const char*>(scalar.value), scalar.length);
    const bool plain = scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (plain && tag.empty() && is_null(text)) {
      Value value;
      const bool missing = text.empty() && !open_.empty() && open_.back().key;
      value.at = missing ? open_.back().key->at : position(mark);
      add(std::move(value), text_of(scalar.anchor));
      return;
    }
    if (expects_key()) {
      open_.back().key = Key{std::move(text), position(mark), false};
      open_.back().mark_duplicate(problems_);
      ++nodes_;
      check_size(mark);
      return;
    }
    Value value = Value::scalar(std::move(text), position(mark));
    value.quoted = !plain || (tag.starts_with(kTagPrefix) && tag.ends_with(":str"));
    check_tag(mark, tag, {"str", "int", "float", "bool"});
    add(std::move(value), text_of(scalar.anchor));
  }

  static bool is_null(std::string_view text) {
    return text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL";
  }
  void check_size(const yaml_mark_t& mark) {
    if (nodes_ > kMostNodes)
      stop(position(mark), "document is too large",
           fmt::format("at most {} values, aliases expanded", kMostNodes));
  }
  void check_tag(const yaml_mark_t& mark, std::string_view tag,
                 std::initializer_list<const char*> known) {
    if (tag.empty() || tag == "!") return;
    for (const char* name : known)
      if (tag.starts_with(kTagPrefix) && tag.substr(kTagPrefix.size()) == name) return;
    problems_.add(position(mark), fmt::format("unsupported YAML tag '{}'", tag), "remove it");
  }
  bool expects_key() const {
    return !open_.empty() && open_.back().value.is_map() && !open_.back().key;
  }
  void add(Value value, std::string_view anchor) {
    ++nodes_;
    if (nodes_ > kMostNodes) stop(value.at, "document is too large", "");
    if (expects_key()) stop(value.at, "a key must be text, got " + kind_text(value), "");
    if (!anchor.empty()) anchors_.insert_or_assign(std::string(anchor), Anchored{value, 1, 1});
    attach(std::move(value));
  }
  void open(Value value, const yaml_mark_t& mark, std::string_view anchor) {
    if (expects_key()) stop(value.at, "a key must be text, got " + kind_text(value), "");
    ++nodes_;
    check_size(mark);
    if (open_.size() >= kMostDepth) too_deep(mark);
    Open& opened = open_.emplace_back();
    opened.value = std::move(value);
    opened.anchor = anchor;
  }
  void close() {
    Open closed = std::move(open_.back());
    open_.pop_back();
    if (!closed.anchor.empty())
      anchors_.insert_or_assign(
          closed.anchor, Anchored{closed.value, count_nodes(closed.value), depth_of(closed.value)});
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
  std::map<std::string, Anchored, std::less<>> anchors_;
  std::size_t nodes_ = 0;
  int documents_ = 0;
};

/// libyaml's parser of a text; each event is freed before the next.
class EventParser {
 public:
  explicit EventParser(std::string_view text) {
    if (yaml_parser_initialize(&parser_) == 0) throw std::bad_alloc();
    yaml_parser_set_encoding(&parser_, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()),
                                 text.size());
  }
  ~EventParser() {
    yaml_event_delete(&event_);
    yaml_parser_delete(&parser_);
  }
  EventParser(const EventParser&) = delete;
  EventParser& operator=(const EventParser&) = delete;

  /// False: the text is ill-formed, raw() says where.
  bool next() {
    yaml_event_delete(&event_);
    return yaml_parser_parse(&parser_, &event_) != 0;
  }
  const yaml_event_t& event() const { return event_; }
  const yaml_parser_t& raw() const { return parser_; }

 private:
  yaml_parser_t parser_{};
  yaml_event_t event_{};
};

/// Without the mark that some editors put first. libyaml skips it as a column, so that keys of the
/// lines below would stand further left than the first one.
std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  return text.starts_with(kMark) ? text.substr(kMark.size()) : text;
}

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

bool is_blank(std::string_view text) {
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

Value load_value_text(std::string_view given, const std::string& name, Diagnostics& problems) {
  const std::string_view text = without_byte_order_mark(given);
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
    EventParser parser(text);
    do {
      if (!parser.next()) {
        builder.take_error(parser.raw());
        return std::move(builder.root());
      }
      builder.take(parser.event());
    } while (parser.event().type != YAML_STREAM_END_EVENT);
    if (!builder.has_content()) problems.add({name, 1, 1}, "the file is empty", "");
  } catch (const Stop&) {
  }
  return std::move(builder.root());
}

Value load_value(const std::string& path, Diagnostics& problems) {
  const std::optional<std::string> text = read_bytes(path, problems);
  return text ? load_value_text(*text, path, problems) : Value{};
}

std::string schema_of(const std::string& path) {
  Diagnostics ignored;
  const std::optional<std::string> text = read_bytes(path, ignored);
  if (!text) return "";
  EventParser parser(without_byte_order_mark(*text));
  int depth = 0;
  std::string key;
  bool keyed = false;  // The next event at depth 1 begins the value of `key`.
  while (parser.next() && parser.event().type != YAML_STREAM_END_EVENT) {
    const yaml_event_t& event = parser.event();
    switch (event.type) {
      case YAML_SCALAR_EVENT: {
        if (depth != 1) break;
        std::string scalar(reinterpret_cast<const char*>(event.data.scalar.value),
                           event.data.scalar.length);
        if (keyed && key == "schema") return scalar;
        key = std::move(scalar);
        keyed = !keyed;
        break;
      }
      case YAML_SEQUENCE_START_EVENT:
        if (depth == 0) return "";
        [[fallthrough]];
      case YAML_MAPPING_START_EVENT:
        ++depth;
        break;
      case YAML_SEQUENCE_END_EVENT:
      case YAML_MAPPING_END_EVENT:
        if (--depth == 1) keyed = !keyed;
        break;
      case YAML_ALIAS_EVENT:
        if (depth == 1) keyed = !keyed;
        break;
      default:
        break;
    }
  }
  return "";
}

}  // namespace orrery::config
