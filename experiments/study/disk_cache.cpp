#include "experiments/study/disk_cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "experiments/study/files.h"
#include "experiments/study/sqlite.h"
#include "experiments/study/version.h"
#include "models/base/hash.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;

/// Another layout of the table is another file. Processes of one host share one: SQLite's
/// write-ahead log needs memory that all users of a file share.
std::string file_in(const std::string& folder) {
  std::string host;
  if (is_on_network(folder)) {
    std::array<char, 256> name{};
    if (gethostname(name.data(), name.size() - 1) == 0) host = std::string("-") + name.data();
  }
  return (fs::path(folder) / ("answers-1" + host + ".sqlite")).string();
}

constexpr int kPatienceMilliseconds = 2000;
constexpr std::size_t kSumBytes = 8;
/// That an answer was used is written down again only after an hour, in microseconds.
constexpr std::int64_t kUseGrain = 3'600'000'000;

/// Microseconds.
std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// Shows whether key and answer are what was written.
std::string check_sum(const std::string& key, std::string_view answer) {
  return content_digest(key + std::string(answer)).substr(0, kSumBytes);
}

}  // namespace

std::optional<std::string> default_cache_folder() {
  const auto variable = [](const char* name) {
    const char* text = std::getenv(name);
    return std::string(text == nullptr ? "" : text);
  };
  // The XDG base directory specification says that relative paths are to be ignored.
  if (const std::string folder = variable("XDG_CACHE_HOME"); folder.starts_with('/')) {
    return folder + "/orrery";
  }
  if (const std::string home = variable("HOME"); !home.empty()) return home + "/.cache/orrery";
  return std::nullopt;
}

class DiskCache::Connection {
 public:
  Connection(const std::string& path, std::int64_t most_bytes) : sql_(path) {
    sql_.wait_at_most(kPatienceMilliseconds);
    // A crash of the machine costs the last answers, not the file.
    sql_.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL");
    sql_.execute(
        "CREATE TABLE IF NOT EXISTS answers "
        "(key BLOB PRIMARY KEY, answer BLOB NOT NULL, used INTEGER NOT NULL); "
        "CREATE INDEX IF NOT EXISTS answers_by_use ON answers (used)");
    page_size_ = sql_.number("PRAGMA page_size");
    most_pages_ = most_bytes / page_size_;
    find_.emplace(sql_, "SELECT answer, used FROM answers WHERE key = ?");
    use_.emplace(sql_, "UPDATE answers SET used = ? WHERE key = ?");
    keep_.emplace(sql_, "INSERT OR REPLACE INTO answers VALUES (?, ?, ?)");
  }

  std::optional<std::string> find(const std::string& key) {
    find_->bind_blob(1, key);
    std::optional<std::string> answer;
    std::int64_t used = 0;
    if (find_->step()) {
      answer = find_->blob(0);
      used = find_->number(1);
    }
    find_->reset();
    if (!answer || answer->size() < kSumBytes) return std::nullopt;
    const std::string_view bytes = std::string_view(*answer).substr(kSumBytes);
    if (!answer->starts_with(check_sum(key, bytes))) return std::nullopt;
    if (used < now() - kUseGrain) {
      use_->bind(1, now());
      use_->bind_blob(2, key);
      use_->step();
      use_->reset();
    }
    return std::string(bytes);
  }

  void keep(const std::string& key, const std::string& answer) {
    const std::string checked = check_sum(key, answer) + answer;
    const std::int64_t most = most_pages_ * page_size_;
    if (std::ssize(checked) > most / 16) return;
    unchecked_ -= std::ssize(checked);
    if (unchecked_ < 0) {
      make_room();
      unchecked_ = most / 32;
    }
    keep_->bind_blob(1, key);
    keep_->bind_blob(2, checked);
    keep_->bind(3, now());
    keep_->step();
    keep_->reset();
  }

  void check_writable() { sql_.execute("BEGIN IMMEDIATE; ROLLBACK"); }

  /// In a fork: the file belongs to the parent's connection.
  void abandon() {
    for (auto* statement : {&find_, &use_, &keep_}) (*statement)->abandon();
    sql_.abandon();
  }

 private:
  /// The file does not shrink, but what is free in it is used again.
  void make_room() {
    const std::int64_t pages =
        sql_.number("PRAGMA page_count") - sql_.number("PRAGMA freelist_count");
    if (pages < most_pages_ / 8 * 7) return;
    const std::int64_t answers = sql_.number("SELECT count(*) FROM answers");
    sql_.execute(
        fmt::format("DELETE FROM answers WHERE key IN "
                    "(SELECT key FROM answers ORDER BY used LIMIT {})",
                    answers / 4 + 1));
  }

  SqliteConnection sql_;
  std::int64_t page_size_ = 0;
  std::int64_t most_pages_ = 0;
  std::int64_t unchecked_ = 0;  ///< Bytes that may be kept before room is looked at again.
  std::optional<SqliteStatement> find_, use_, keep_;
};

DiskCache::DiskCache(const std::string& folder, std::function<void(const std::string&)> on_problem,
                     std::int64_t most_bytes)
    : path_(file_in(folder)), on_problem_(std::move(on_problem)), most_bytes_(most_bytes) {}

DiskCache::~DiskCache() {
  if (connection_ && owner_ != getpid()) connection_->abandon();
}

void DiskCache::open() const {
  if (connection_ && owner_ != getpid()) {
    connection_->abandon();
    connection_.reset();
  }
  if (connection_) return;
  std::error_code error;
  fs::create_directories(fs::path(path_).parent_path(), error);
  if (error) throw SqliteError("cannot write " + path_ + ": " + error.message());
  connection_ = std::make_unique<Connection>(path_, most_bytes_);
  owner_ = getpid();
}

/// What `use` returns for an open connection, or a default value if the file is left aside. `use`
/// may be called again when others held the file.
template <class Use>
auto DiskCache::guarded(const Use& use) const {
  using Result = decltype(use(*connection_));
  const std::int64_t until = now() + std::int64_t{kPatienceMilliseconds} * 1000;
  while (!aside_) {
    std::string problem;
    try {
      open();
      return use(*connection_);
    } catch (const SqliteBusy& error) {
      if (now() >= until) problem = error.what();
    } catch (const SqliteError& error) {
      problem = error.what();
    }
    connection_.reset();
    if (problem.empty()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      continue;
    }
    aside_ = true;
    if (on_problem_) on_problem_(problem);
  }
  return Result();
}

std::optional<std::string> DiskCache::find(const std::string& key) const {
  return guarded([&](Connection& connection) {
    return connection.find(content_digest(version_of({}) + key));
  });
}

void DiskCache::keep(const std::string& key, const std::string& answer) const {
  guarded([&](Connection& connection) {
    connection.keep(content_digest(version_of({}) + key), answer);
  });
}

bool DiskCache::usable() const {
  guarded([](Connection& connection) { connection.check_writable(); });
  connection_.reset();
  return !aside_;
}

}  // namespace orrery::experiments
