/// Named network namespaces, as `ip netns` keeps them: a file below /var/run/netns on which the
/// namespace is mounted, so that it lives without a process and `ip netns exec NAME` finds it.
#pragma once
#include <string>
#include <vector>

namespace orrery::executor {

/// Empty where this process may create network namespaces with names and TAP devices in them; else
/// the first thing that failed, why, and what would help. Tries it in a child process and leaves
/// nothing behind.
std::string netlab_unavailable();

/// Throws NetlabError, also when there is one of this name.
void create_namespace(const std::string& name);
/// False: there was none of this name. Throws NetlabError.
bool remove_namespace(const std::string& name);
bool namespace_exists(const std::string& name);
/// The calling thread goes into the namespace. Throws NetlabError.
void enter_namespace(const std::string& name);
/// Processes that are in the namespace, ascending, as far as this one may see.
std::vector<int> processes_in(const std::string& name);

}  // namespace orrery::executor
