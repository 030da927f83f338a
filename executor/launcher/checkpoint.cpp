#include "executor/launcher/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <utility>
#include <variant>

#include "executor/net/clock.h"
#include "models/base/file.h"
#include "models/base/hash.h"

namespace orrery::executor {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMagic = "orrery-checkpoint-1";
constexpr std::size_t kHashDigits = 16;
constexpr const char* kEnding = ".state";

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
    const std::size_t size =
        static_cast<std::size_t>(entry.slice.end - entry.slice.begin) * entry.unit_bytes;
    if (!header || parts > kMostParts || at + parts * size > body.size()) {
      return "is torn or corrupt: sizes do not match";
    }
    for (std::size_t p = 0; p < parts; ++p, at += size) {
      const auto* first = reinterpret_cast<const std::byte*>(body.data() + at);
      entry.parts.emplace_back(first, first + size);
    }
    decoded.entries.push_back(std::move(entry));
  }
  return decoded;
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

std::optional<std::string> CheckpointFolder::save(const StateBank& bank, std::int32_t device,
                                                  const std::vector<StateSlice>& slices) const {
  std::map<std::int32_t, std::vector<StateBank::Entry>> blocks;
  for (const StateSlice& slice : slices) blocks[slice.block].push_back(cut(bank, slice));
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) return fmt::format("cannot create {}: {}", folder_, error.message());
  std::vector<std::string> written;
  for (const auto& [block, entries] : blocks) {
    const std::string path =
        (fs::path(folder_) / file_name({bank.version, block, device})).string();
    if (auto problem = write_file_atomically(path, encode(run_, bank.version, entries))) {
      // A part is of no use and would keep a full disk full.
      for (const std::string& part : written) fs::remove(part, error);
      return problem;
    }
    written.push_back(path);
  }
  return std::nullopt;
}

void CheckpointFolder::remove_before(std::int32_t device, StateVersion oldest) const {
  std::error_code error;
  for (const auto& file : fs::directory_iterator(folder_, error)) {
    const auto name = parse_name(file.path().filename().string());
    if (!name || name->device != device || name->version >= oldest) continue;
    std::string bytes;
    if (read_file(file.path().string(), bytes)) continue;
    const auto decoded = decode(bytes);
    const auto* good = std::get_if<Decoded>(&decoded);
    if (good != nullptr && good->run == run_) fs::remove(file.path(), error);
  }
}

CheckpointFolder::Found CheckpointFolder::read(int part, int parts) const {
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

void CheckpointWriter::start(StateBank bank) {
  wait();
  thread_ = std::thread([this, bank = std::move(bank)] { write(bank); });
}

void CheckpointWriter::wait() {
  if (thread_.joinable()) thread_.join();
}

void CheckpointWriter::write(const StateBank& bank) {
  for (const Target& target : targets_) {
    const auto problem = target.folder.save(bank, device_, target.slices);
    if (!problem) {
      const auto last = last_.find(target.name);
      if (last != last_.end()) target.folder.remove_before(device_, last->second);
      last_[target.name] = bank.version;
    }
    const std::lock_guard lock(mutex_);
    notes_.push_back({now_ns(), problem ? "checkpoint_failed" : "checkpoint",
                      fmt::format("{} step {}{}", target.name, bank.version.step,
                                  problem ? ": " + *problem : "")});
  }
}

std::vector<CheckpointWriter::Note> CheckpointWriter::take_notes() {
  const std::lock_guard lock(mutex_);
  return std::exchange(notes_, {});
}

}  // namespace orrery::executor
