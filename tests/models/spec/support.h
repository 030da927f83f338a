/// A small library and clusters from text; shared by the tests of this folder.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "models/config/document.h"
#include "models/spec/cluster_file.h"
#include "models/spec/library.h"

namespace orrery::models {

inline Library small_library() {
  Library library;
  const auto gpu = [&](const std::string& name, const std::string& vendor) {
    GpuType type;
    type.name = name;
    type.vendor = vendor;
    type.peak = {{ir::Dtype::bf16, 100_TFLOPS}};
    type.memory = 80_GiB;
    type.memory_bandwidth = 2000_GBps;
    type.source = "test";
    library.gpus[name] = type;
  };
  gpu("A100", "nvidia");
  gpu("MI250", "amd");
  const auto link = [&](const std::string& name, BytesPerSecond bandwidth, Seconds latency,
                        double efficiency = 1, bool shared = false) {
    library.links[name] = {name, bandwidth, latency, efficiency, shared, "test"};
  };
  link("nvlink", 300_GBps, 2.0_us, 0.5);
  link("pcie", 32_GBps, 4.0_us);
  link("pcie-uplink", 20_GBps, 1.0_us);
  link("bus", 10_GBps, 6.0_us, 1, true);
  link("ib", 25_GBps, 5.0_us);
  return library;
}

inline Cluster cluster_of(const std::string& text, config::Diagnostics& problems) {
  config::Value tree = config::load_value_text(text, "c.yaml", problems);
  ClusterFile file;
  if (!problems.empty() || !read_cluster_file(std::move(tree), file, problems)) return {};
  return resolve(file, small_library(), problems);
}

inline Cluster cluster_of(const std::string& text) {
  config::Diagnostics problems;
  Cluster cluster = cluster_of(text, problems);
  for (const config::Problem& problem : problems.problems()) {
    ADD_FAILURE() << config::to_string(problem);
  }
  return cluster;
}

/// All problems, one a line.
inline std::string problems_of(const std::string& text) {
  config::Diagnostics problems;
  cluster_of(text, problems);
  std::string all;
  for (const config::Problem& problem : problems.problems()) {
    all += config::to_string(problem) + "\n";
  }
  return all;
}

/// Path of a file in the test's temporary folder that holds `text`.
inline std::string file_with(const std::string& name, const std::string& text) {
  const std::string path =
      ::testing::TempDir() + "orrery_" + std::to_string(::getpid()) + "_" + name;
  std::ofstream(path) << text;
  return path;
}

}  // namespace orrery::models
