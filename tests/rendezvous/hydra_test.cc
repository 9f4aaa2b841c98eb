// SPDX-License-Identifier: Apache-2.0
#include "trireme/rendezvous/hydra.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <map>

namespace hydra_test {

using namespace trireme;

namespace {

std::string stat_line(int pid, const std::string& name, int parent, int start) {
  std::string line = std::to_string(pid) + " (" + name + ") S " + std::to_string(parent);
  for (int field = 5; field < 22; ++field) line += " 0";
  return line + " " + std::to_string(start) + " 0 0";
}

ProcessStat of(std::map<int, std::string> lines) {
  return [lines](int pid) -> std::optional<std::string> {
    auto at = lines.find(pid);
    return at == lines.end() ? std::nullopt : std::optional(at->second);
  };
}

}  // namespace

TEST(rendezvous_hydra, the_nearest_proxy_above_a_process_is_its_job) {
  const auto stat = of({{90, stat_line(90, "program", 80, 1)},
                        {80, stat_line(80, "sh (a) b", 70, 2)},
                        {70, stat_line(70, "hydra_pmi_proxy", 60, 345)},
                        {60, stat_line(60, "hydra_pmi_proxy", 1, 4)}});
  EXPECT_EQ(hydra_job(90, stat), "hydra-70-345");
  EXPECT_EQ(hydra_job(80, stat), "hydra-70-345");
}

TEST(rendezvous_hydra, without_a_proxy_there_is_no_job) {
  EXPECT_EQ(hydra_job(90, of({{90, stat_line(90, "program", 1, 1)}})), "");
  EXPECT_EQ(hydra_job(90, of({{90, stat_line(90, "program", 80, 1)}})), "");  // hidden
  EXPECT_EQ(hydra_job(90, of({{90, stat_line(90, "program", 90, 1)}})), "");  // a circle
  EXPECT_EQ(hydra_job(90, of({{90, "90 (program"}})), "");
  EXPECT_EQ(hydra_job(90, of({{90, ""}})), "");
  EXPECT_EQ(hydra_job(90, of({{90, "90 (hydra_pmi_proxy) S 1"}})), "");
}

TEST(rendezvous_hydra, reads_what_the_kernel_says) {
  const auto line = process_stat(::getpid());
  ASSERT_TRUE(line);
  EXPECT_EQ(line->rfind(std::to_string(::getpid()) + " (", 0), 0u);
  EXPECT_FALSE(process_stat(0));
}

}  // namespace hydra_test
