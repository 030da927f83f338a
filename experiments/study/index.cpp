/// The SQLite index of a sweep: runs.csv for people who like SQL.
#include <sqlite3.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <stdexcept>

#include "experiments/study/store.h"

namespace orrery::experiments {
namespace {

std::string quoted(const std::string& name) {
  std::string text = "\"";
  for (const char c : name) {
    if (c == '"') text += '"';
    text += c;
  }
  return text + '"';
}

class Database {
 public:
  explicit Database(const std::string& path) : path_(path) {
    if (sqlite3_open(path.c_str(), &handle_) != SQLITE_OK) fail();
  }
  ~Database() { sqlite3_close(handle_); }
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  void execute(const std::string& sql) {
    if (sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) fail();
  }
  void insert(const std::string& sql, const std::vector<std::vector<std::string>>& rows) {
    sqlite3_stmt* raw = nullptr;
    if (sqlite3_prepare_v2(handle_, sql.c_str(), -1, &raw, nullptr) != SQLITE_OK) fail();
    const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement(raw, sqlite3_finalize);
    for (const std::vector<std::string>& row : rows) {
      for (std::size_t i = 0; i < row.size(); ++i) bind(raw, static_cast<int>(i) + 1, row[i]);
      if (sqlite3_step(raw) != SQLITE_DONE) fail();
      sqlite3_reset(raw);
    }
  }

 private:
  /// The columns have no type: SQLite's numeric affinity turns numbers into numbers.
  void bind(sqlite3_stmt* statement, int index, const std::string& text) {
    const int status = text.empty()
                           ? sqlite3_bind_null(statement, index)
                           : sqlite3_bind_text(statement, index, text.data(),
                                               static_cast<int>(text.size()), SQLITE_STATIC);
    if (status != SQLITE_OK) fail();
  }
  [[noreturn]] void fail() const {
    throw std::runtime_error("cannot write " + path_ + ": " +
                             (handle_ == nullptr ? "out of memory" : sqlite3_errmsg(handle_)));
  }

  std::string path_;
  sqlite3* handle_ = nullptr;
};

}  // namespace

void write_index(const std::string& path, const std::vector<std::string>& columns,
                 const std::vector<std::vector<std::string>>& rows) {
  const std::string neighbor = path + ".tmp-" + std::to_string(getpid());
  std::remove(neighbor.c_str());
  try {
    Database database(neighbor);
    database.execute("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; BEGIN");
    std::string create = "CREATE TABLE runs (";
    std::string insert = "INSERT INTO runs VALUES (";
    for (std::size_t i = 0; i < columns.size(); ++i) {
      // Hashes of digits only must stay text.
      const bool text = columns[i] == "run" || columns[i].ends_with("_hash");
      create += (i > 0 ? ", " : "") + quoted(columns[i]) + (text ? " TEXT" : " NUMERIC");
      insert += i > 0 ? ", ?" : "?";
    }
    database.execute(create + ")");
    database.insert(insert + ")", rows);
    database.execute("COMMIT");
  } catch (...) {
    std::remove(neighbor.c_str());
    throw;
  }
  if (std::rename(neighbor.c_str(), path.c_str()) != 0) {
    std::remove(neighbor.c_str());
    throw std::runtime_error("cannot write " + path);
  }
}

}  // namespace orrery::experiments
