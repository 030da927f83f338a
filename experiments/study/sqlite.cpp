#include "experiments/study/sqlite.h"

#include <sqlite3.h>

#include <utility>

#include "models/base/check.h"

namespace orrery::experiments {

SqliteConnection::SqliteConnection(std::string path, const char* layer) : path_(std::move(path)) {
  constexpr int kFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  if (sqlite3_open_v2(path_.c_str(), &handle_, kFlags, layer) == SQLITE_OK) return;
  const std::string why = handle_ == nullptr ? "out of memory" : sqlite3_errmsg(handle_);
  sqlite3_close(handle_);
  throw SqliteError("cannot open " + path_ + ": " + why);
}

SqliteConnection::~SqliteConnection() { sqlite3_close(handle_); }

void SqliteConnection::execute(const std::string& sql) {
  if (sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) fail();
}

std::int64_t SqliteConnection::number(const std::string& sql) {
  SqliteStatement statement(*this, sql);
  ORRERY_CHECK(statement.step(), "'{}' returned nothing", sql);
  return statement.number(0);
}

void SqliteConnection::wait_at_most(int milliseconds) {
  sqlite3_busy_timeout(handle_, milliseconds);
}

void SqliteConnection::fail() const {
  const std::string message = "cannot use " + path_ + ": " + sqlite3_errmsg(handle_);
  if ((sqlite3_errcode(handle_) & 0xff) == SQLITE_BUSY) throw SqliteBusy(message);
  throw SqliteError(message);
}

SqliteStatement::SqliteStatement(SqliteConnection& connection, const std::string& sql)
    : connection_(connection) {
  check(sqlite3_prepare_v2(connection.handle_, sql.c_str(), -1, &handle_, nullptr));
}

SqliteStatement::~SqliteStatement() { sqlite3_finalize(handle_); }

void SqliteStatement::bind(int parameter, std::int64_t value) {
  check(sqlite3_bind_int64(handle_, parameter, value));
}

void SqliteStatement::bind_null(int parameter) { check(sqlite3_bind_null(handle_, parameter)); }

void SqliteStatement::bind_text(int parameter, std::string_view text) {
  check(sqlite3_bind_text64(handle_, parameter, text.data(), text.size(), SQLITE_STATIC,
                            SQLITE_UTF8));
}

void SqliteStatement::bind_blob(int parameter, std::string_view bytes) {
  check(sqlite3_bind_blob64(handle_, parameter, bytes.data(), bytes.size(), SQLITE_STATIC));
}

bool SqliteStatement::step() {
  const int status = sqlite3_step(handle_);
  if (status == SQLITE_ROW) return true;
  if (status != SQLITE_DONE) connection_.fail();
  return false;
}

std::int64_t SqliteStatement::number(int column) const {
  return sqlite3_column_int64(handle_, column);
}

std::string SqliteStatement::blob(int column) const {
  const void* bytes = sqlite3_column_blob(handle_, column);
  const std::size_t size = sqlite3_column_bytes(handle_, column);
  return bytes == nullptr ? std::string() : std::string(static_cast<const char*>(bytes), size);
}

void SqliteStatement::reset() { sqlite3_reset(handle_); }

void SqliteStatement::check(int status) const {
  if (status != SQLITE_OK) connection_.fail();
}

}  // namespace orrery::experiments
