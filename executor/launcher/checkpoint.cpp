#include "executor/launcher/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <utility>
#include <variant>

#include "executor/net/clock.h"
#include "executor/net/transport.h"
#include "models/base/file.h"
#include "models/base/hash.h"
#include "models/base/ids.h"

namespace orrery::executor {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMagic = "orrery-checkpoint-1";
constexpr std::size_t kHashDigits = 16;
constexpr const char* kEnding = ".state";
constexpr const char* kLock = "lock";
constexpr std::size_t kKeptVersions = 3;
constexpr unsigned kMode = 0600;  ///< A model is its owner's.

struct FileName {
  StateVersion version;
  std::int32_t block = 0;
  std::int32_t device = 0;
};

std::string file_name(const FileName& name) {
  return fmt::format("step-{}.generation-{}.block-{}.device-{}{}", name.version.step,
                     name.version.generation, name.block, name.device, kEnding);
}

std::optional<FileName> parse_name(const std::string& text) {
  FileName name;
  long long step = 0;
  long long generation = 0;
  int used = 0;
  const int count =
      std::sscanf(text.c_str(), "step-%lld.generation-%lld.block-%d.device-%d.state%n", &step,
                  &generation, &name.block, &name.device, &used);
  if (count != 4 || used != static_cast<int>(text.size())) return std::nullopt;
  name.version = {step, generation};
  return name;
}

/// Magic, checksum of what follows, header lines, an empty line, payload.
std::string encode(const std::string& run, StateVersion version,
                   const std::vector<StateBank::Entry>& entries) {
  std::string body =
      fmt::format("{}\n{} {} {}\n", run, version.step, version.generation, entries.size());
  for (const StateBank::Entry& entry : entries) {
    body += fmt::format("{} {} {} {} {} {}\n", entry.slice.block, entry.slice.parameter,
                        entry.slice.begin, entry.slice.end, entry.unit_bytes, entry.parts.size());
  }
  body += "\n";
  for (const StateBank::Entry& entry : entries) {
    for (const auto& one : entry.parts) {
      body.append(reinterpret_cast<const char*>(one.data()), one.size());
    }
  }
  return fmt::format("{} {}\n{}", kMagic, content_hash(body), body);
}

struct Decoded {
  std::string run;
  StateVersion version;
  std::vector<StateBank::Entry> entries;
};

std::variant<Decoded, std::string> decode(const std::string& bytes) {
  const std::string magic = std::string(kMagic) + " ";
  const std::size_t start = magic.size() + kHashDigits + 1;
  if (bytes.compare(0, magic.size(), magic) != 0 || bytes.size() <= start ||
      bytes[start - 1] != '\n') {
    return "is no checkpoint";
  }
  const std::string body = bytes.substr(start);
  if (content_hash(body) != bytes.substr(magic.size(), kHashDigits)) {
    return "is torn or corrupt: wrong checksum";
  }
  const std::size_t header_end = body.find("\n\n");
  if (header_end == std::string::npos) return "is torn or corrupt: no header";
  std::istringstream header(body.substr(0, header_end));
  Decoded decoded;
  std::size_t count = 0;
  header >> decoded.run >> decoded.version.step >> decoded.version.generation >> count;
  std::size_t at = header_end + 2;
  for (std::size_t i = 0; i < count; ++i) {
    StateBank::Entry entry;
    std::size_t parts = 0;
    header >> entry.slice.block >> entry.slice.parameter >> entry.slice.begin >> entry.slice.end >>
        entry.unit_bytes >> parts;
    const bool ordered = header && entry.slice.begin >= 0 && entry.slice.end >= entry.slice.begin;
    const std::int64_t units = ordered ? entry.slice.end - entry.slice.begin : 0;
    const std::size_t left = body.size() - at;
    // Divided, not multiplied: products of what a file says may wrap.
    const bool fits =
        ordered && parts <= kMostParts &&
        (units == 0 || parts == 0 || entry.unit_bytes <= left / parts / as_size(units));
    if (!fits) return "is torn or corrupt: sizes do not match";
    const std::size_t size = as_size(units) * entry.unit_bytes;
    for (std::size_t p = 0; p < parts; ++p, at += size) {
      const auto* first = reinterpret_cast<const std::byte*>(body.data() + at);
      entry.parts.emplace_back(first, first + size);
    }
    decoded.entries.push_back(std::move(entry));
  }
  return decoded;
}

/// Checkpoints, the lock, and folders that are empty then.
void remove_run(const fs::path& path) {
  std::error_code error;
  std::vector<fs::path> folders = {path};
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(path, error)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory(error)) folders.push_back(entry.path());
    if (parse_name(name)) files.push_back(entry.path());
  }
  for (const fs::path& file : files) fs::remove(file, error);
  fs::remove(path / kLock, error);
  for (auto it = folders.rbegin(); it != folders.rend(); ++it) fs::remove(*it, error);
}

/// The slice alone, out of a bank that has it.
StateBank::Entry cut(const StateBank& bank, const StateSlice& slice) {
  for (const StateBank::Entry& entry : bank.entries()) {
    const StateSlice& has = entry.slice;
    if (has.block != slice.block || has.parameter != slice.parameter || has.begin > slice.begin ||
        has.end < slice.end) {
      continue;
    }
    StateBank::Entry out;
    out.slice = slice;
    out.unit_bytes = entry.unit_bytes;
    const auto begin = static_cast<std::ptrdiff_t>(slice.begin - has.begin) *
                       static_cast<std::ptrdiff_t>(entry.unit_bytes);
    const auto end = static_cast<std::ptrdiff_t>(slice.end - has.begin) *
                     static_cast<std::ptrdiff_t>(entry.unit_bytes);
    for (const auto& one : entry.parts) {
      out.parts.emplace_back(one.begin() + begin, one.begin() + end);
    }
    return out;
  }
  return {};
}

}  // namespace

CheckpointFolder::CheckpointFolder(const std::string& folder, std::string run,
                                   const std::string& node)
    : folder_((fs::path(folder) / run / node).string()), run_(std::move(run)) {}

CheckpointFolder::Saved CheckpointFolder::save(const StateBank& bank, std::int32_t device,
                                               const std::vector<StateSlice>& slices) const {
  std::map<std::int32_t, std::vector<StateBank::Entry>> blocks;
  for (const StateSlice& slice : slices) blocks[slice.block].push_back(cut(bank, slice));
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) return {0, fmt::format("cannot create {}: {}", folder_, error.message())};
  Saved saved;
  std::vector<std::string> written;
  for (const auto& [block, entries] : blocks) {
    const std::string path =
        (fs::path(folder_) / file_name({bank.version, block, device})).string();
    const std::string bytes = encode(run_, bank.version, entries);
    if (auto problem = write_file_atomically(path, bytes, kMode)) {
      // A part is of no use and would keep a full disk full.
      for (const std::string& part : written) fs::remove(part, error);
      return {0, std::move(problem)};
    }
    written.push_back(path);
    saved.bytes += static_cast<std::int64_t>(bytes.size());
  }
  return saved;
}

void CheckpointFolder::remove_before(StateVersion oldest) const {
  std::error_code error;
  for (const auto& file : fs::directory_iterator(folder_, error)) {
    const auto name = parse_name(file.path().filename().string());
    if (name && name->version < oldest) fs::remove(file.path(), error);
  }
}

void CheckpointFolder::remove(StateVersion version, std::int32_t device) const {
  std::error_code error;
  for (const auto& file : fs::directory_iterator(folder_, error)) {
    const auto name = parse_name(file.path().filename().string());
    if (name && name->version == version && name->device == device) fs::remove(file.path(), error);
  }
}

CheckpointFolder::Found CheckpointFolder::read(const std::function<void()>& before_each, int part,
                                               int parts) const {
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& file : fs::directory_iterator(folder_, error)) {
    const auto name = parse_name(file.path().filename().string());
    if (name && name->block % parts == part) paths.push_back(file.path().string());
  }
  std::sort(paths.begin(), paths.end());
  std::map<StateVersion, StateBank> banks;
  Found found;
  for (const std::string& path : paths) {
    if (before_each) before_each();
    std::string bytes;
    if (const auto problem = read_file(path, bytes)) {
      found.problems.push_back(*problem);
      continue;
    }
    auto decoded = decode(bytes);
    if (const auto* problem = std::get_if<std::string>(&decoded)) {
      found.problems.push_back(fmt::format("{} {}", path, *problem));
      continue;
    }
    auto& good = std::get<Decoded>(decoded);
    if (good.run != run_) continue;
    StateBank& bank = banks[good.version];
    bank.version = good.version;
    for (StateBank::Entry& entry : good.entries) bank.add(std::move(entry));
  }
  for (auto& [version, bank] : banks) found.banks.push_back(std::move(bank));
  return found;
}

RunMark::RunMark(const std::string& folder, const std::string& run) {
  const fs::path path = fs::path(folder) / run;
  std::error_code error;
  fs::create_directories(path, error);
  file_ = ::open((path / kLock).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kMode);
  if (file_ >= 0) ::flock(file_, LOCK_SH | LOCK_NB);
}

RunMark::~RunMark() {
  if (file_ >= 0) ::close(file_);
}

std::vector<std::string> prune_checkpoints(const std::string& folder, const std::string& run) {
  std::vector<std::string> runs;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().filename() != run) runs.push_back(entry.path().filename().string());
  }
  std::sort(runs.begin(), runs.end());
  std::erase_if(runs, [&](const std::string& name) {
    const fs::path path = fs::path(folder) / name;
    const int file = ::open((path / kLock).c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) return true;  // No folder of a run.
    const bool dead = ::flock(file, LOCK_EX | LOCK_NB) == 0;
    if (dead) remove_run(path);
    ::close(file);
    return !dead;
  });
  return runs;
}

void CheckpointWriter::start(StateBank bank, std::int64_t since_ns) {
  wait();
  const double held = static_cast<double>(now_ns() - since_ns) * 1e-9;
  thread_ = std::thread([this, held, bank = std::move(bank)] { write(bank, held); });
}

void CheckpointWriter::wait() {
  if (thread_.joinable()) thread_.join();
}

void CheckpointWriter::write(const StateBank& bank, double held_seconds) {
  std::optional<std::int64_t> bytes;
  for (const Target& target : targets_) {
    const CheckpointFolder::Saved saved = target.folder.save(bank, device_, target.slices);
    if (saved.problem) {
      note("checkpoint_failed",
           fmt::format("{} step {}: {}", target.name, bank.version.step, *saved.problem));
      continue;
    }
    bytes = bytes.value_or(0) + saved.bytes;
    written_[target.name].push_back(bank.version);
    remove_old(target, written_[target.name]);
  }
  if (!bytes) return;
  note("checkpoint", fmt::format("rank={} iteration={} bytes={} seconds={:.9g}", rank_,
                                 bank.version.step, *bytes, held_seconds));
}

void CheckpointWriter::remove_old(const Target& target, Versions& written) const {
  std::optional<StateVersion> complete = written.back();
  try {
    if (saved_by_all_) complete = saved_by_all_(target.name, written);
  } catch (const TransportError&) {
    return;  // The store is gone, as the rank will notice.
  }
  if (written.size() < kKeptVersions) return;
  const StateVersion oldest = written[written.size() - kKeptVersions];
  // What not all have of older versions they never will: no rank is that far behind.
  std::erase_if(written, [&](StateVersion version) {
    const bool needless = version < oldest && version != complete;
    if (needless) target.folder.remove(version, device_);
    return needless;
  });
  if (complete) target.folder.remove_before(std::min(*complete, oldest));
}

void CheckpointWriter::note(const char* kind, std::string detail) {
  const std::lock_guard lock(mutex_);
  notes_.push_back({now_ns(), kind, std::move(detail)});
}

std::vector<CheckpointWriter::Note> CheckpointWriter::take_notes() {
  const std::lock_guard lock(mutex_);
  return std::exchange(notes_, {});
}

}  // namespace orrery::executor
