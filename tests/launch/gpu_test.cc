// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/machine/gpu.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "trireme/base/file.h"

namespace trireme::launch::gpu_test {
namespace {

void put(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

std::vector<std::pair<std::string, int>> gpus(const std::string& root,
                                              std::optional<std::string> visible = {}) {
  std::vector<std::pair<std::string, int>> all;
  const auto env = [&](const std::string& name) {
    return name == "CUDA_VISIBLE_DEVICES" ? visible : std::nullopt;
  };
  for (const Gpu& gpu : visible_gpus(env, root)) all.emplace_back(gpu.name, gpu.node);
  return all;
}

using Gpus = std::vector<std::pair<std::string, int>>;

TEST(launch_gpu, those_of_the_machine_are_counted_by_their_device_files) {
  PrivateFolder root;
  EXPECT_EQ(gpus(root.path()), Gpus());
  put(root / "dev/nvidiactl", "");
  put(root / "dev/nvidia0", "");
  put(root / "dev/nvidia1", "");
  EXPECT_EQ(gpus(root.path()), (Gpus{{"0", -1}, {"1", -1}}));
}

TEST(launch_gpu, those_that_CUDA_VISIBLE_DEVICES_lists_are_as_CUDA_reads_it) {
  PrivateFolder root;
  put(root / "dev/nvidia0", "");
  EXPECT_EQ(gpus(root.path(), ""), Gpus());
  EXPECT_EQ(gpus(root.path(), "-1"), Gpus());
  EXPECT_EQ(gpus(root.path(), "2, 0"), (Gpus{{"2", -1}, {"0", -1}}));
  EXPECT_EQ(gpus(root.path(), "1,-1,0"), (Gpus{{"1", -1}})) << "what follows -1 is not visible";
  EXPECT_EQ(gpus(root.path(), "GPU-8a2f,MIG-77"), (Gpus{{"GPU-8a2f", -1}, {"MIG-77", -1}}));
}

TEST(launch_gpu, the_node_of_each_is_what_the_bus_says) {
  PrivateFolder root;
  const auto add = [&](const std::string& bus, int minor, const std::string& uuid,
                       const std::string& node) {
    put(root / ("dev/nvidia" + std::to_string(minor)), "");
    put(root / ("proc/driver/nvidia/gpus/" + bus + "/information"),
        "Model: \t\t NVIDIA H100\nIRQ:   \t\t 250\nGPU UUID: \t " + uuid + "\nBus Location: \t " +
            bus + "\nDevice Minor: \t " + std::to_string(minor) + "\n");
    if (!node.empty()) put(root / ("sys/bus/pci/devices/" + bus + "/numa_node"), node + "\n");
  };
  add("0000:1b:00.0", 0, "GPU-aa", "1");
  add("0000:43:00.0", 1, "GPU-bb", "0");
  add("0000:52:00.0", 2, "GPU-cc", "-1");  // as on a machine of one node
  add("0000:9d:00.0", 3, "GPU-dd", "");
  EXPECT_EQ(gpus(root.path()), (Gpus{{"0", 1}, {"1", 0}, {"2", -1}, {"3", -1}}));
  EXPECT_EQ(gpus(root.path(), "GPU-bb,0"), (Gpus{{"GPU-bb", 0}, {"0", 1}}));
}

TEST(launch_gpu, a_file_that_is_not_the_drivers_says_nothing) {
  PrivateFolder root;
  put(root / "dev/nvidia0", "");
  put(root / "proc/driver/nvidia/gpus/x/information", "nonsense\n:\n::\nBus Location:");
  put(root / "proc/driver/nvidia/gpus/y/information", "Device Minor: 0\n");
  EXPECT_EQ(gpus(root.path()), (Gpus{{"0", -1}}));
}

}  // namespace
}  // namespace trireme::launch::gpu_test
