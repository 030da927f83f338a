#include "experiments/study/claims.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "experiments/study/files.h"
#include "models/base/file.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kCall = ".call";
constexpr std::string_view kTaken = ".taken";
constexpr std::chrono::seconds kBeat{5};

[[noreturn]] void cannot_write(const std::string& path, int error = errno) {
  throw std::system_error(error, std::generic_category(), "cannot write " + path);
}

/// A small file, as it is now: opening it asks the server of a network file system.
std::optional<std::string> text_of(const std::string& path) {
  std::string text;
  if (read_file(path, text)) return std::nullopt;
  return text;
}

/// Over what the file has. Returns 0 or the error.
int write_at_start(int file, std::string_view text) {
  if (lseek(file, 0, SEEK_SET) < 0) return errno;
  return write_fully(file, text);
}

/// Line `index` of a call's file.
std::string line_of(const std::string& text, int index) {
  std::size_t begin = 0;
  for (; index > 0 && begin != std::string::npos; --index) {
    begin = text.find('\n', begin);
    if (begin != std::string::npos) ++begin;
  }
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find('\n', begin) - begin);
}

/// "node-7-4711-18f3a2": what names files must have neither dots nor slashes.
std::string name_of_this_call() {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  std::string name = host.data();
  if (name.empty()) name = "host";
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '-';
  }
  static int count = 0;
  return fmt::format("{}-{}-{:x}-{}", name, getpid(),
                     std::chrono::system_clock::now().time_since_epoch().count(), ++count);
}

void remove_quietly(const fs::path& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

/// Files of the folder with this ending, by what stands before it.
std::vector<std::pair<std::string, std::string>> files_with(const std::string& folder,
                                                            std::string_view ending) {
  std::vector<std::pair<std::string, std::string>> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (!name.ends_with(ending)) continue;
    files.emplace_back(name.substr(0, name.size() - ending.size()), entry.path());
  }
  return files;
}

}  // namespace

Claims::Claims(std::string folder, std::string group, Clock::duration patience)
    : folder_(std::move(folder)),
      group_(std::move(group)),
      patience_(patience),
      name_(name_of_this_call()),
      kernel_(line_of(text_of("/proc/sys/kernel/random/boot_id").value_or(""), 0)) {}

Claims::~Claims() {
  if (owner_ == getpid()) leave();
}

std::string Claims::call_file(const std::string& call) const {
  return folder_ + "/" + call + std::string(kCall);
}
std::string Claims::claim_file(const std::string& run) const {
  return folder_ + "/" + run + std::string(kTaken);
}

std::string Claims::text() const { return fmt::format("{}\n{}\n{}\n", kernel_, group_, beats_); }

void Claims::enter() {
  const std::string path = call_file(name_);
  for (int attempt = 0; file_ < 0; ++attempt) {
    make_folders(folder_);
    file_ = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    // Another call may have removed the empty folder just now.
    if (file_ < 0 && (errno != ENOENT || attempt == 3)) cannot_write(path);
  }
  owner_ = getpid();
  flock(file_, LOCK_EX | LOCK_NB);  // before the file says which kernel to ask about it
  beat();
}

void Claims::beat() {
  const Clock::time_point now = Clock::now();
  if (file_ < 0 || (beats_ > 0 && now - last_beat_ < kBeat)) return;
  ++beats_;
  last_beat_ = now;
  if (const int error = write_at_start(file_, text())) cannot_write(call_file(name_), error);
  if (beats_ > 1) fdatasync(file_);  // to the server of a network file system
}

void Claims::leave() {
  if (file_ < 0) return;
  for (const std::string& run : taken_) remove_quietly(claim_file(run));
  taken_.clear();
  remove_quietly(call_file(name_));
  close(file_);
  file_ = -1;
  rmdir(folder_.c_str());  // only if it is empty
}

/// By whether a file changes.
Claims::Life Claims::watched(const std::string& file, const std::string& text) {
  const Clock::time_point now = Clock::now();
  const auto [known, is_new] = seen_.try_emplace(file, Seen{text, now});
  Seen& seen = known->second;
  if (!is_new && seen.text != text) seen = {text, now, true};
  if (now - seen.since >= patience_) return Life::gone;
  return seen.changed ? Life::at_work : Life::unknown;
}

Claims::Life Claims::life_of(const std::string& call) {
  if (call == name_) return Life::at_work;
  const std::string path = call_file(call);
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return Life::gone;
  const bool free = flock(file, LOCK_SH | LOCK_NB) == 0;
  const bool held = !free && errno == EWOULDBLOCK;
  close(file);
  if (held) return Life::at_work;
  const std::string text = text_of(path).value_or("");
  if (free && line_of(text, 0) == kernel_) return Life::gone;
  return watched(path, text);
}

/// Nobody: gone.
Claims::Life Claims::holder_of(const std::string& run, std::string& holder) {
  const auto text = text_of(claim_file(run));
  if (!text) return Life::gone;
  holder = *text;
  // A claim is empty for a moment, and for ever if its call ended in that moment.
  return holder.empty() ? watched(claim_file(run), "") : life_of(holder);
}

bool Claims::take(const std::string& run) {
  const std::string path = claim_file(run);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file >= 0) {
      int error = write_fully(file, name_);
      if (close(file) != 0 && error == 0) error = errno;
      if (error != 0) {
        remove_quietly(path);
        cannot_write(path, error);
      }
      taken_.insert(run);
      return true;
    }
    if (errno != EEXIST) cannot_write(path);
    std::string holder;
    if (holder_of(run, holder) != Life::gone) return false;
    // Whoever moves it away first may go on, unless it is another one by now.
    const std::string aside = path + "." + name_;
    if (std::rename(path.c_str(), aside.c_str()) != 0) continue;
    const bool same = text_of(aside) == holder;
    if (!same && link(aside.c_str(), path.c_str()) != 0) return false;
    remove_quietly(aside);
    if (!same) return false;
  }
  return false;
}

void Claims::give_back(const std::string& run) {
  if (taken_.erase(run) > 0) remove_quietly(claim_file(run));
}

bool Claims::is_at_work_on(const std::string& run) {
  std::string holder;
  return !taken_.contains(run) && holder_of(run, holder) == Life::at_work;
}

bool Claims::is_gone(const std::string& call) { return life_of(call) == Life::gone; }

void Claims::tidy() {
  for (const auto& [run, path] : files_with(folder_, kTaken)) {
    const std::string holder = text_of(path).value_or("");
    if (!holder.empty() && life_of(holder) == Life::gone) remove_quietly(path);
  }
  for (const auto& [call, path] : files_with(folder_, kCall)) {
    if (life_of(call) == Life::gone) remove_quietly(path);
  }
  // Claims that were moved away by calls that ended in that moment.
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, error)) {
    const std::string name = entry.path().filename();
    const std::size_t mark = name.find(std::string(kTaken) + ".");
    if (mark == std::string::npos) continue;
    if (is_gone(name.substr(mark + kTaken.size() + 1))) remove_quietly(entry.path());
  }
}

void Claims::dissolve(const std::string& group) const {
  for (const auto& [call, path] : files_with(folder_, kCall)) {
    if (line_of(text_of(path).value_or(""), 1) == group) remove_quietly(path);
  }
}

}  // namespace orrery::experiments
