#include "experiments/validation/megatron/rows.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "experiments/validation/a100/table.h"
#include "experiments/validation/common/data.h"
#include "experiments/validation/vtrain/rows.h"

namespace orrery::experiments::rows_test {
namespace {

class Folder : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(path_); }
  void TearDown() override { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(path_ + "/" + name) << text;
  }
  std::string path_ = ::testing::TempDir() + "a100_rows_test";
};

constexpr const char* kVtrainHeader =
    "id,source_row_index,params_billion,layers,hidden,heads,seq_len,vocab_size_assumed,gpus,tp,dp,"
    "pp,micro_batch,global_batch,activation_recompute_declared";

TEST_F(Folder, VtrainFitsEveryFourthRowInsideNodes) {
  const std::string shape = ",3.6,30,3072,32,2048,50257,";
  write("multi_measured.csv",
        std::string(kVtrainHeader) + ",measured_seconds\na,0" + shape +
            "64,8,8,1,4,512,full,3.5\n" + "b,2" + shape + "64,8,8,1,2,512,full,4.5\n" + "c,4" +
            shape + "64,16,4,1,2,512,full,5.5\n" + "d,8" + shape + "64,8,8,1,1,512,full,6.5\n");
  write("multi_predict.csv",
        std::string(kVtrainHeader) + "\nvtrain-multi-091,91" + shape + "64,1,8,8,2,512,full\n");
  config::Diagnostics diagnostics;
  const std::vector<A100Row> rows = read_vtrain(path_, diagnostics);
  diagnostics.raise();
  ASSERT_EQ(rows.size(), 5U);
  EXPECT_TRUE(rows[0].fitted);
  EXPECT_FALSE(rows[1].fitted);
  EXPECT_FALSE(rows[2].fitted);  // tensor parallelism across nodes
  EXPECT_TRUE(rows[3].fitted);
  EXPECT_FALSE(rows[4].fitted);
  EXPECT_FALSE(rows[4].scored);
  EXPECT_EQ(rows[0].set, "3.6B");
  EXPECT_EQ(rows[2].set, "TP 16");
  EXPECT_EQ(rows[0].vocabulary, 51200);
  EXPECT_EQ(rows[4].vocabulary, 50304);
  EXPECT_EQ(rows[0].micro_batches(), 16);
  EXPECT_DOUBLE_EQ(rows[0].measured->value, 3.5);
}

TEST_F(Folder, InconsistentVtrainRowsAreProblemsAtTheirCells) {
  write("multi_measured.csv", std::string(kVtrainHeader) +
                                  ",measured_seconds\na,0,3.6,30,3072,32,2048,50257,63,8,8,1,3,512,"
                                  "none,x\n");
  config::Diagnostics diagnostics;
  read_vtrain(path_, diagnostics);
  // gpus, global batch, recompute, time; and the missing second file
  ASSERT_EQ(diagnostics.problems().size(), 6U);
  EXPECT_EQ(diagnostics.problems()[0].at.line, 2);
  EXPECT_GT(diagnostics.problems()[0].at.column, 1);
}

TEST(PaddedVocabulary, IsAMultipleOf128ForEachMember) {
  EXPECT_EQ(padded_vocabulary(50257, 1), 50304);
  EXPECT_EQ(padded_vocabulary(50257, 2), 50432);
  EXPECT_EQ(padded_vocabulary(50257, 8), 51200);
  EXPECT_EQ(padded_vocabulary(51200, 8), 51200);
}

A100Row toy() {
  A100Row row;
  row.layers = 2;
  row.hidden = 8;
  row.sequence = 48;
  row.vocabulary = 256;
  row.global_batch = 3;
  return row;
}

TEST(Equation3, CountsByHand) {
  // 96 x 3 x 48 x 2 x 64 x (1 + 48/48 + 256/256)
  EXPECT_DOUBLE_EQ(equation_3(toy()).value, 96.0 * 3 * 48 * 2 * 64 * 3);
  // 72 x ... x (1 + 1 + 256/192)
  EXPECT_DOUBLE_EQ(model_flops_of(toy()).value, 72.0 * 3 * 48 * 2 * 64 * (2 + 256.0 / 192));
  EXPECT_DOUBLE_EQ(percent_of_peak({312e12}, Seconds{2}, 1), 50.0);
}

/// The data folder; the test is skipped where it is absent.
std::string data(const std::string& name) {
  const std::string folder = validation_data(ORRERY_SOURCE_DIR, name);
  return std::filesystem::is_directory(folder) ? folder : std::string();
}

TEST(Equation3, AgreesWithThePublishedColumns) {
  const std::string folder = data("megatron");
  if (folder.empty()) GTEST_SKIP() << "no validation/megatron; set ORRERY_DATA";
  config::Diagnostics diagnostics;
  const std::vector<A100Row> rows = read_megatron(folder, diagnostics);
  std::map<std::string, double> flops;
  for (const auto& [file, column] :
       {std::pair("sc21_table1.csv", "flop_per_iteration_eq3"),
        std::pair("recompute_table5.csv", "model_flop_per_iteration")}) {
    const PublishedTable table(folder + "/" + file, {"id", column}, diagnostics);
    for (std::size_t i = 0; i < table.size(); ++i) {
      flops[table.text(i, "id")] = *table.number(i, column);
    }
  }
  diagnostics.raise();
  int compared = 0;
  for (const A100Row& row : rows) {
    const auto published = flops.find(row.id);
    if (published == flops.end()) continue;
    const Flops own = row.set == "SC'21" ? equation_3(row) : model_flops_of(row);
    EXPECT_NEAR(own.value / published->second, 1, 1e-6) << row.id;
    ++compared;
  }
  EXPECT_EQ(compared, 14);
}

TEST(PublishedRows, FitAtMostAFifthOfTheirNumberAndNothingUnmeasured) {
  int experiments = 0;
  for (const char* name : {"vtrain", "megatron"}) {
    const std::string folder = data(name);
    if (folder.empty()) continue;
    ++experiments;
    config::Diagnostics diagnostics;
    const bool vtrain = name == std::string("vtrain");
    const std::vector<A100Row> rows =
        vtrain ? read_vtrain(folder, diagnostics) : read_megatron(folder, diagnostics);
    diagnostics.raise();
    std::size_t fitted = 0, measured = 0;
    std::set<std::string> ids;
    for (const A100Row& row : rows) {
      ids.insert(row.id);
      EXPECT_TRUE(row.measured || !row.fitted) << row.id;
      fitted += row.fitted ? 1 : 0;
      measured += row.measured ? 1 : 0;
    }
    EXPECT_EQ(ids.size(), rows.size());
    EXPECT_EQ(rows.size(), vtrain ? 109U : 20U);
    EXPECT_EQ(measured, vtrain ? 55U : 14U);
    EXPECT_EQ(fitted, vtrain ? 27U : 10U);
  }
  if (experiments == 0) GTEST_SKIP() << "no validation data; set ORRERY_DATA";
}

}  // namespace
}  // namespace orrery::experiments::rows_test
