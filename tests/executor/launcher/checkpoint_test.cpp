// Checkpoint files: what was written is read back, what is damaged or of another run is not used.
#include "executor/launcher/checkpoint.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "executor/net/clock.h"
#include "executor/net/transport.h"
#include "models/base/ids.h"

namespace orrery::executor::checkpoint_test {
namespace {

namespace fs = std::filesystem;

class Checkpoints : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "orrery-checkpoint-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// Units 2 to 5 of parameter 1 and unit 0 of parameter 0, of blocks 0 and 3.
  static StateBank bank(StateVersion version, int seed) {
    StateBank out;
    out.version = version;
    for (const int block : {0, 3}) {
      for (const StateSlice& slice : {StateSlice{block, 0, 0, 1}, StateSlice{block, 1, 2, 6}}) {
        StateBank::Entry entry;
        entry.slice = slice;
        entry.unit_bytes = 8;
        for (int p = 0; p < 3; ++p) {
          std::vector<std::byte> bytes(as_size(slice.end - slice.begin) * 8);
          for (std::size_t i = 0; i < bytes.size(); ++i) {
            bytes[i] = static_cast<std::byte>(seed + 50 * p + 7 * block + static_cast<int>(i));
          }
          entry.parts.push_back(bytes);
        }
        out.add(entry);
      }
    }
    return out;
  }
  static std::vector<StateSlice> all() { return {{0, 0, 0, 1}, {0, 1, 2, 6}, {3, 1, 3, 5}}; }
  std::vector<fs::path> files() const {
    std::vector<fs::path> out;
    for (const auto& file : fs::recursive_directory_iterator(folder_)) {
      if (file.is_regular_file()) out.push_back(file.path());
    }
    return out;
  }

  fs::path folder_;
};

TEST_F(Checkpoints, GiveBackWhatWasSaved) {
  const CheckpointFolder folder(folder_.string(), "run");
  const StateBank saved = bank({4, 1}, 3);
  ASSERT_EQ(folder.save(saved, 7, all()).problem, std::nullopt);
  const auto found = folder.read();
  EXPECT_TRUE(found.problems.empty());
  ASSERT_EQ(found.banks.size(), 1u);
  EXPECT_EQ(found.banks[0].version, (StateVersion{4, 1}));
  for (const StateSlice& slice : all()) {
    EXPECT_EQ(found.banks[0].read(slice, 3), saved.read(slice, 3));
  }
  EXPECT_FALSE(found.banks[0].covers({3, 1, 2, 6}));
  ASSERT_FALSE(files().empty());
  for (const fs::path& file : files()) {
    EXPECT_EQ(fs::status(file).permissions() & ~fs::perms::owner_read & ~fs::perms::owner_write,
              fs::perms::none)
        << file;
  }
  EXPECT_TRUE(CheckpointFolder(folder_.string(), "another").read().banks.empty());
}

TEST_F(Checkpoints, EveryFlippedBitAndEveryTornEndIsNoticed) {
  const CheckpointFolder folder(folder_.string(), "run");
  ASSERT_EQ(folder.save(bank({1, 0}, 3), 0, {{0, 1, 2, 6}}).problem, std::nullopt);
  const fs::path path = files().at(0);
  std::string good;
  {
    std::ifstream in(path, std::ios::binary);
    good.assign(std::istreambuf_iterator<char>(in), {});
  }
  const auto refused = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    const auto found = folder.read();
    return found.banks.empty() && found.problems.size() == 1;
  };
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 4);
    EXPECT_TRUE(refused(bad)) << "byte " << i;
    EXPECT_TRUE(refused(good.substr(0, i))) << "cut to " << i;
  }
  EXPECT_FALSE(refused(good));
}

TEST_F(Checkpoints, OnlyTheThreeNewestAreKeptAlsoOfDevicesThatLeft) {
  const CheckpointFolder folder(folder_.string(), "run");
  ASSERT_EQ(folder.save(bank({1, 0}, 9), 7, all()).problem, std::nullopt);
  CheckpointWriter writer(2, 0, {{folder, all(), "local"}});
  for (int step = 2; step <= 5; ++step) writer.start(bank({step, 0}, step), now_ns());
  writer.wait();
  const auto found = folder.read();
  ASSERT_EQ(found.banks.size(), 3u);
  EXPECT_EQ(found.banks[0].version.step, 3);
  EXPECT_EQ(found.banks[2].version.step, 5);
  const auto notes = writer.take_notes();
  ASSERT_EQ(notes.size(), 4u);
  EXPECT_EQ(notes[3].kind, "checkpoint");
}

TEST_F(Checkpoints, TheNewestThatAllRanksHaveIsKeptUntilThereIsANewerOne) {
  const CheckpointFolder folder(folder_.string(), "run");
  const auto steps = [&] {
    std::vector<std::int64_t> out;
    for (const StateBank& found : folder.read().banks) out.push_back(found.version.step);
    return out;
  };
  // What another rank, device 7, wrote before it no longer could, and an earlier generation.
  for (const StateVersion version : {StateVersion{1, 0}, StateVersion{3, 1}}) {
    ASSERT_EQ(folder.save(bank(version, 9), 7, all()).problem, std::nullopt);
  }
  std::optional<StateVersion> complete;
  bool known = true;
  CheckpointWriter writer(2, 0, {{folder, all(), "local"}},
                          [&](const std::string& target, const CheckpointWriter::Versions& own) {
                            EXPECT_EQ(target, "local");
                            EXPECT_EQ(own.back().generation, 1);
                            if (known) return complete;
                            throw TransportError(TransportError::Kind::peer_lost, -1, "gone");
                          });
  const auto write = [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t step = first; step <= last; ++step) {
      writer.start(bank({step, 1}, 5), now_ns());
    }
    writer.wait();
  };
  using Steps = std::vector<std::int64_t>;
  write(2, 3);
  EXPECT_EQ(steps(), (Steps{1, 2, 3}));
  complete = {3, 1};
  write(4, 8);
  EXPECT_EQ(steps(), (Steps{3, 6, 7, 8}));
  const std::vector<fs::path> kept = files();
  EXPECT_EQ(std::count_if(kept.begin(), kept.end(),
                          [](const fs::path& file) {
                            return file.filename().string().find(".device-7.") != std::string::npos;
                          }),
            2);
  known = false;
  write(9, 10);
  EXPECT_EQ(steps(), (Steps{3, 6, 7, 8, 9, 10}));
  known = true;
  complete = {10, 1};
  write(11, 11);
  EXPECT_EQ(steps(), (Steps{9, 10, 11}));
}

TEST_F(Checkpoints, OfARankAreNotedOnceWithTheBytesOfAllFoldersAndTheTimeThatTheyHeldTraining) {
  const CheckpointFolder folder(folder_.string(), "run", "n");
  const CheckpointFolder cloud((folder_ / "cloud").string(), "run");
  std::ofstream(folder_ / "file") << "x";
  const CheckpointFolder broken((folder_ / "file" / "below").string(), "run");
  CheckpointWriter writer(
      2, 5, {{folder, all(), "local"}, {broken, all(), "x"}, {cloud, {{0, 1, 2, 6}}, "cloud"}});
  writer.start(bank({3, 1}, 4), now_ns() - 2'000'000'000);
  writer.wait();
  const auto notes = writer.take_notes();
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_EQ(notes[0].kind, "checkpoint_failed");
  EXPECT_EQ(notes[0].detail.rfind("x step 3: cannot ", 0), 0u) << notes[0].detail;
  EXPECT_EQ(notes[1].kind, "checkpoint");
  std::uintmax_t bytes = 0;
  for (const auto& file : fs::recursive_directory_iterator(folder_)) {
    if (file.path().extension() == ".state") bytes += file.file_size();
  }
  int rank = 0;
  int step = 0;
  long long written = 0;
  double seconds = 0;
  int used = 0;
  ASSERT_EQ(std::sscanf(notes[1].detail.c_str(), "rank=%d iteration=%d bytes=%lld seconds=%lf%n",
                        &rank, &step, &written, &seconds, &used),
            4)
      << notes[1].detail;
  EXPECT_EQ(used, static_cast<int>(notes[1].detail.size())) << notes[1].detail;
  EXPECT_EQ(rank, 5);
  EXPECT_EQ(step, 3);
  EXPECT_EQ(written, static_cast<long long>(bytes));
  EXPECT_GE(seconds, 2.0);
}

TEST_F(Checkpoints, ARunThatLivesIsNotPruned) {
  for (const char* run : {"dead", "living", "own"}) {
    ASSERT_EQ(CheckpointFolder(folder_.string(), run, "n").save(bank({1, 0}, 1), 0, all()).problem,
              std::nullopt);
  }
  fs::create_directories(folder_ / "of somebody else");
  { const RunMark mark(folder_.string(), "dead"); }
  const RunMark living(folder_.string(), "living");
  const RunMark own(folder_.string(), "own");
  std::ofstream(folder_ / "living" / "note") << "x";
  EXPECT_EQ(prune_checkpoints(folder_.string(), "own"), std::vector<std::string>{"dead"});
  EXPECT_FALSE(fs::exists(folder_ / "dead"));
  EXPECT_TRUE(fs::exists(folder_ / "of somebody else"));
  for (const char* run : {"living", "own"}) {
    EXPECT_EQ(CheckpointFolder(folder_.string(), run, "n").read().banks.size(), 1u) << run;
  }
}

TEST_F(Checkpoints, AFolderThatCannotBeWrittenIsNamed) {
  std::ofstream(folder_ / "file") << "x";
  const auto problem = CheckpointFolder((folder_ / "file" / "below").string(), "run")
                           .save(bank({1, 0}, 1), 0, all())
                           .problem;
  ASSERT_TRUE(problem);
  EXPECT_NE(problem->find("below"), std::string::npos) << *problem;
}

}  // namespace
}  // namespace orrery::executor::checkpoint_test
