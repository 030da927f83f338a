/// The SQLite index of a sweep: runs.csv for people who like SQL.
#include <unistd.h>

#include <cstdio>
#include <stdexcept>

#include "experiments/study/sqlite.h"
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

void insert(SqliteConnection& database, const std::string& sql,
            const std::vector<std::vector<std::string>>& rows) {
  SqliteStatement statement(database, sql);
  for (const std::vector<std::string>& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const int parameter = static_cast<int>(i) + 1;
      // The columns have no type: SQLite's numeric affinity turns numbers into numbers.
      row[i].empty() ? statement.bind_null(parameter) : statement.bind_text(parameter, row[i]);
    }
    statement.step();
    statement.reset();
  }
}

}  // namespace

void write_index(const std::string& path, const std::vector<std::string>& columns,
                 const std::vector<std::vector<std::string>>& rows) {
  // What is left of it after a crash goes as other temporary files do (Store::tidy).
  const std::string neighbor = path + ".tmp." + std::to_string(getpid()) + ".0";
  std::remove(neighbor.c_str());
  try {
    SqliteConnection database(neighbor, "unix-none");  // nobody else knows it: no locks
    database.execute("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; BEGIN");
    std::string create = "CREATE TABLE runs (";
    std::string insertion = "INSERT INTO runs VALUES (";
    for (std::size_t i = 0; i < columns.size(); ++i) {
      // Hashes of digits only must stay text.
      const bool text = columns[i] == "run" || columns[i].ends_with("_hash");
      create += (i > 0 ? ", " : "") + quoted(columns[i]) + (text ? " TEXT" : " NUMERIC");
      insertion += i > 0 ? ", ?" : "?";
    }
    database.execute(create + ")");
    insert(database, insertion + ")", rows);
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
