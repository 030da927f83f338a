// Do ranks get the environment that CUDA and NCCL need, and no more, and does the user's stay?
#include "executor/cuda/rank_variables.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

namespace orrery::executor::rank_variables_test {
namespace {

RankSurroundings crowded() {
  RankSurroundings here;
  here.nccl = true;
  here.run = "5f3a";
  here.device = 3;
  here.neighbors = {0, 1, 2, 3};
  here.gpus = 2;
  here.interface = "lo";
  return here;
}

std::map<std::string, std::string> by_name(const RankSurroundings& here) {
  const Variables all = rank_variables(here);
  const std::map<std::string, std::string> out(all.begin(), all.end());
  EXPECT_EQ(out.size(), all.size()) << "a variable twice";
  return out;
}

TEST(RankVariables, RanksThatShareAGpuAreHostsOfTheirOwnJoinedBySockets) {
  EXPECT_EQ(by_name(crowded()),
            (std::map<std::string, std::string>{{"CUDA_DEVICE_MAX_CONNECTIONS", "32"},
                                                {"NCCL_HOSTID", "5f3a-3"},
                                                {"NCCL_P2P_DISABLE", "1"},
                                                {"NCCL_SHM_DISABLE", "1"},
                                                {"NCCL_IB_DISABLE", "1"},
                                                {"NCCL_NVLS_ENABLE", "0"},
                                                {"NCCL_SOCKET_IFNAME", "=lo"}}));
}

TEST(RankVariables, RanksWithAGpuEachKeepNcclsWaysToEachOther) {
  RankSurroundings here = crowded();
  const std::map<std::string, std::string> queues = {{"CUDA_DEVICE_MAX_CONNECTIONS", "32"}};
  here.gpus = 4;
  EXPECT_EQ(by_name(here), queues);
  here.gpus = 8;
  EXPECT_EQ(by_name(here), queues);
  here = crowded();
  here.nccl = false;
  EXPECT_EQ(by_name(here), queues);
}

TEST(RankVariables, NodesOfAnEmulatedNetworkAreApartEvenWithAGpuEach) {
  RankSurroundings here = crowded();
  here.gpus = 8;
  here.emulated_nodes = true;
  here.interface = "tap0";
  EXPECT_EQ(by_name(here).at("NCCL_HOSTID"), "5f3a-3");
  EXPECT_EQ(by_name(here).at("NCCL_SOCKET_IFNAME"), "=tap0");
  here.interface = "";
  EXPECT_FALSE(by_name(here).contains("NCCL_SOCKET_IFNAME"));
}

TEST(RankVariables, GpusAreSharedWhereNumbersFallTogether) {
  EXPECT_FALSE(share_gpus({4, 5, 6, 7}, 4));
  EXPECT_TRUE(share_gpus({0, 8}, 8));
  EXPECT_FALSE(share_gpus({0, 1}, 0)) << "there are none to share";
  EXPECT_EQ(sharing_note({0, 1}, 2), "");
  EXPECT_EQ(sharing_note({0, 1, 2}, 1),
            "3 ranks share 1 GPU, memory included: step times are not those of 3 devices");
  EXPECT_EQ(sharing_note({0, 1, 2}, 2),
            "3 ranks share 2 GPUs, memory included: step times are not those of 3 devices");
}

TEST(RankVariables, WhatTheUserHasSetStays) {
  ASSERT_EQ(::setenv("ORRERY_TEST_SET", "mine", 1), 0);
  ASSERT_EQ(::unsetenv("ORRERY_TEST_UNSET"), 0);
  set_missing({{"ORRERY_TEST_SET", "other"}, {"ORRERY_TEST_UNSET", "new"}});
  EXPECT_STREQ(std::getenv("ORRERY_TEST_SET"), "mine");
  EXPECT_STREQ(std::getenv("ORRERY_TEST_UNSET"), "new");
}

TEST(RankVariables, TheInterfaceIsThatOfTheAddress) {
  EXPECT_EQ(interface_of("127.0.0.1"), "lo");
  EXPECT_EQ(interface_of("203.0.113.77"), "");  // For documentation: nobody has it. [RFC 5737]
  EXPECT_EQ(interface_of("no such name"), "");
}

}  // namespace
}  // namespace orrery::executor::rank_variables_test
