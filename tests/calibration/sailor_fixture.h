/// Tables in the layout of the public Sailor data, with numbers that are easy to count with: model
/// "toy" (two layers of width 64, 8 tokens) on GPU type GH-96.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace orrery::support {

/// A folder with valid tables, models and clusters; no plans.
class SailorFolder {
 public:
  explicit SailorFolder(const std::string& name)
      : path_(std::filesystem::path(testing::TempDir()) / ("sailor_" + name)) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
    write("layer_times.csv",
          "model,gpu,tp,micro_batch,first_layer,last_layer,forward_s,backward_s\n"
          "toy,GH-96,1,1,0,0,0,2e-06\n"
          "toy,GH-96,1,1,1,1,0.9,2.2\n"
          "toy,GH-96,1,1,2,2,1.1,1.8\n"
          "toy,GH-96,1,1,3,3,0,0\n");
    write("optimizer_times.csv",
          "model,gpu,tp,micro_batch,optimizer_step_s,profiled_params_per_gpu\n"
          "toy,GH-96,1,1,0.0018,2000000\n"
          "toy,GH-96,1,2,0.0022,2000000\n"
          "toy,GH-96,2,1,0.0015,1000000\n");
    write("layer_memory.csv",
          "model,tp,first_layer,last_layer,params_per_gpu,params_bytes_per_gpu,input_bytes,"
          "output_bytes,saved_activation_bytes\n"
          "toy,1,0,0,8704,34816,64,2048,1000\n"
          "toy,1,1,2,49984,199936,2048,2048,7000\n"
          "toy,1,3,3,8320,33280,2048,4096,3000\n");
    write("network_bandwidth.csv",
          "link,sender_gpu,sender_pairs,receiver_gpu,receiver_pairs,c2,c1,c0,"
          "max_measured_bytes_per_s,fit_positive_from_bytes,same_numbers_as\n"
          "intra_node,GH-96,1,GH-96,1,0,0,100,100000000000,65536,\n"
          "intra_node,GH-96,2,GH-96,2,0,0,150,150000000000,65536,\n"
          "inter_node,GH-96,1,GH-96,1,0,0,4.096e-06,4096,65536,\n");
    write(
        "models.json",
        R"({"models": {"toy": {"transformer_layers": 2, "hidden": 64, "ffn_hidden": 256, "heads": 4,
 "head_dim": 16, "sequence": 8, "positions": 8, "vocab_unpadded": 100}}})");
    write("clusters.json",
          R"({"clusters": {"gh200": {"gpu": "GH-96", "gpus_per_node": 1,
 "memory_bytes_per_gpu": 1e11}}})");
  }
  ~SailorFolder() { std::filesystem::remove_all(path_); }
  SailorFolder(const SailorFolder&) = delete;
  SailorFolder& operator=(const SailorFolder&) = delete;

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace orrery::support
