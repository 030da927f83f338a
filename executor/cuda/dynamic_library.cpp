#include "executor/cuda/dynamic_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <stdexcept>

namespace orrery::executor {

DynamicLibrary::DynamicLibrary(std::initializer_list<const char*> names) {
  std::string reasons;
  for (const char* name : names) {
    handle_ = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    name_ = name;
    if (handle_ != nullptr) return;
    reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", ::dlerror());
  }
  throw std::runtime_error(reasons);
}

void* DynamicLibrary::address(const char* symbol) const {
  void* found = ::dlsym(handle_, symbol);
  if (found == nullptr) throw std::runtime_error(fmt::format("{} has no {}", name_, symbol));
  return found;
}

}  // namespace orrery::executor
