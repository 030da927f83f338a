/// A vector whose elements are numbered by one kind of id: devices by DeviceId, ops by OpId. Its
/// elements can only be named by such an id, so that a rank never picks the entry of a device.
#pragma once
#include <cstddef>
#include <initializer_list>
#include <utility>
#include <vector>

#include "models/base/ids.h"

namespace orrery {

/// The caller guarantees that an id used as an index is valid and below size(). Like std::vector a
/// contiguous range, so that it converts to a std::span of its elements.
template <class Id, class T>
class IdVector {
  using Values = std::vector<T>;

 public:
  using value_type = T;

  IdVector() = default;
  explicit IdVector(std::size_t size, const T& value = T()) : values_(size, value) {}
  explicit IdVector(Values values) : values_(std::move(values)) {}
  IdVector(std::initializer_list<T> values) : values_(values) {}

  typename Values::reference operator[](Id id) { return values_[id.index()]; }
  typename Values::const_reference operator[](Id id) const { return values_[id.index()]; }
  bool contains(Id id) const { return id.valid() && id.index() < values_.size(); }

  std::size_t size() const { return values_.size(); }
  bool empty() const { return values_.empty(); }
  /// The ids of all elements, ascending.
  IdRange<Id> ids() const { return {Id{0}, next_id()}; }
  /// The id that the next push_back() gives.
  Id next_id() const { return Id{static_cast<decltype(Id::value)>(values_.size())}; }

  auto begin() { return values_.begin(); }
  auto begin() const { return values_.begin(); }
  auto end() { return values_.end(); }
  auto end() const { return values_.end(); }
  typename Values::reference front() { return values_.front(); }
  typename Values::const_reference front() const { return values_.front(); }
  typename Values::reference back() { return values_.back(); }
  typename Values::const_reference back() const { return values_.back(); }

  Id push_back(T value) {
    const Id id = next_id();
    values_.push_back(std::move(value));
    return id;
  }
  void reserve(std::size_t size) { values_.reserve(size); }
  void resize(std::size_t size, const T& value = T()) { values_.resize(size, value); }
  void assign(std::size_t size, const T& value) { values_.assign(size, value); }
  void clear() { values_.clear(); }

  /// The plain vector, for code that does not know the id.
  const Values& values() const { return values_; }
  Values& values() { return values_; }

  auto operator<=>(const IdVector&) const = default;

 private:
  Values values_;
};

}  // namespace orrery
