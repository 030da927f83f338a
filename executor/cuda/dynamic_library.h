/// Shared libraries that are loaded when they are first needed: cuBLAS and NCCL are hundreds of
/// megabytes, which no command that uses neither should wait for. Private to executor/cuda.
#pragma once
#include <initializer_list>
#include <string>

namespace orrery::executor {

/// Stays loaded until the process ends.
class DynamicLibrary {
 public:
  /// The first of the names that can be loaded; throws std::runtime_error with the reasons.
  explicit DynamicLibrary(std::initializer_list<const char*> names);
  /// Throws std::runtime_error when the library has no such symbol.
  template <class Function>
  void find(const char* symbol, Function*& function) const {
    function = reinterpret_cast<Function*>(address(symbol));
  }

 private:
  void* address(const char* symbol) const;
  void* handle_ = nullptr;
  std::string name_;
};

}  // namespace orrery::executor
