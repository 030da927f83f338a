/// What reads bytes from outside, each as a function of the bytes that must end, whatever they are,
/// without a crash, a hang or memory beyond its input's. libFuzzer drives them
/// (tools/scripts/fuzz.sh); the test replays the corpora (replay_test.cpp).
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace orrery::fuzz {

using Input = std::span<const std::uint8_t>;

struct Target {
  const char* name;  ///< Also the folder of its corpus.
  const char* what;  ///< In words.
  void (*run)(Input);
};
std::span<const Target> targets();

void validate(Input input);
void document(Input input);
void program(Input input);
void run_log(Input input);
void trace(Input input);
void trace_import(Input input);
void import(Input input);
void recorded_run(Input input);
void command_line(Input input);
void handshake(Input input);
void frames(Input input);
void store(Input input);
void checkpoint(Input input);
void step_report(Input input);

inline std::string text_of(Input input) { return {input.begin(), input.end()}; }

/// A file in memory with these bytes, while it lives.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  int fd_;
  std::string path_;
};

/// A folder in memory, while it lives: for readers of folders.
class MemoryFolder {
 public:
  MemoryFolder();
  ~MemoryFolder();
  MemoryFolder(const MemoryFolder&) = delete;
  MemoryFolder& operator=(const MemoryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// The first line, and what follows it: which of several readers, and what it reads.
struct Chosen {
  std::string reader;
  std::string content;
};
Chosen choose(Input input);

}  // namespace orrery::fuzz
