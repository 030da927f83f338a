/// A connection to an SQLite file and its statements, with errors as exceptions.
#pragma once
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace orrery::experiments {

/// What SQLite says when it cannot do what it was asked for: the file is damaged, locked, full or
/// read-only, or the disk is.
struct SqliteError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Another process holds the file. SQLite says so at once, without waiting, where waiting could be
/// for ever: as when two processes switch a new file to its write-ahead log.
struct SqliteBusy : SqliteError {
  using SqliteError::SqliteError;
};

/// Throws SqliteError. A connection must not be used, nor closed, in a fork of the process that
/// opened it: abandon() it there.
class SqliteConnection {
 public:
  /// Creates the file if it is not there. `layer`: SQLite's layer to the system ("VFS"); null: the
  /// usual one.
  explicit SqliteConnection(std::string path, const char* layer = nullptr);
  ~SqliteConnection();
  SqliteConnection(const SqliteConnection&) = delete;
  SqliteConnection& operator=(const SqliteConnection&) = delete;

  /// One or more statements without results or parameters.
  void execute(const std::string& sql);
  /// The one number that a statement returns.
  std::int64_t number(const std::string& sql);
  /// Waits so long for other processes.
  void wait_at_most(int milliseconds);
  /// Gives the connection up without closing it.
  void abandon() { handle_ = nullptr; }

 private:
  friend class SqliteStatement;
  [[noreturn]] void fail() const;

  std::string path_;
  sqlite3* handle_ = nullptr;
};

/// A prepared statement; numbers of parameters count from 1, those of columns from 0.
class SqliteStatement {
 public:
  /// Keeps a reference.
  SqliteStatement(SqliteConnection& connection, const std::string& sql);
  ~SqliteStatement();
  SqliteStatement(const SqliteStatement&) = delete;
  SqliteStatement& operator=(const SqliteStatement&) = delete;

  void bind(int parameter, std::int64_t value);
  void bind_null(int parameter);
  /// Both must live until reset().
  void bind_text(int parameter, std::string_view text);
  void bind_blob(int parameter, std::string_view bytes);
  /// True when there is a row.
  bool step();
  std::int64_t number(int column) const;
  std::string blob(int column) const;
  /// Ready for other parameters.
  void reset();
  /// As SqliteConnection::abandon().
  void abandon() { handle_ = nullptr; }

 private:
  void check(int status) const;

  SqliteConnection& connection_;
  sqlite3_stmt* handle_ = nullptr;
};

}  // namespace orrery::experiments
