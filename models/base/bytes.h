/// Values as bytes and back, exactly: for keys, and for answers that one machine keeps for itself
/// (in its own byte order; files that travel have formats of their own).
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "models/base/ids.h"

namespace orrery {

template <class T>
concept PlainNumber = std::is_arithmetic_v<T> || std::is_enum_v<T>;

class ByteWriter {
 public:
  template <PlainNumber T>
  void put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  /// Preceded by its length.
  void put(std::string_view text) {
    put(static_cast<std::uint64_t>(text.size()));
    bytes_.append(text);
  }
  void put(const char*) = delete;  // would be a bool
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// Reads what a ByteWriter wrote, in the same order. What is not there reads as zero or "", and
/// good() is false from then on.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  template <PlainNumber T>
  T get() {
    T value{};
    if (!take(sizeof value)) return value;
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
    return value;
  }
  std::string text() { return std::string(raw(get<std::uint64_t>())); }
  /// Number of the items that follow, each of at least one byte.
  std::size_t count() {
    const auto items = get<std::uint64_t>();
    good_ &= items <= rest_.size();
    return good_ ? as_size(items) : 0;
  }
  bool good() const { return good_; }
  /// All was there, and nothing is left.
  bool complete() const { return good_ && rest_.empty(); }

 private:
  bool take(std::uint64_t size) {
    good_ &= size <= rest_.size();
    return good_;
  }
  std::string_view raw(std::uint64_t size) {
    if (!take(size)) return {};
    const std::string_view found = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return found;
  }

  std::string_view rest_;
  bool good_ = true;
};

}  // namespace orrery
