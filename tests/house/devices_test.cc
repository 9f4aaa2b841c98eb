// SPDX-License-Identifier: Apache-2.0
// Nothing is written for one kind of device but where that kind lives: trireme/tensor/device, the
// headers that smooth LibTorch's versions over, and NCCL. And each kernel of the CPU has a twin
// that does the same on any device.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "tests/house/source_lines.h"
#include "tests/support/paths.h"

namespace trireme::devices_test {
namespace {

using testing::Exception;
using testing::expect_only_in;
using testing::lines_where;
using testing::sources_in;

const std::vector<Exception> kMayAsk = {
    {"cli/worker/about_task.cc", "`trireme doctor` says whether LibTorch has CUDA"},
};

const std::vector<Exception> kWithoutTwin = {
    {"trireme/comm/local/reduce_kernels.cc",
     "adds in the engine's shared memory, which is the host's; a device's tensors are staged"},
};

bool asks_for_cuda(const std::string& code) {
  static const std::regex question(R"(\bkCUDA\b|\bis_cuda\(|\bhasCUDA\b|\bDeviceType::CUDA\b)");
  return std::regex_search(code, question);
}

bool is_of_one_kind(const std::string& path) {
  return path.starts_with("trireme/tensor/device/") || path.starts_with("trireme/comm/nccl/") ||
         path.ends_with("_compat.h");
}

TEST(house_devices, the_search_finds_who_asks_for_cuda) {
  for (const char* code :
       {"if (device == at::kCUDA)", "t.is_cuda()", "t.device().is_cuda() && x", "at::hasCUDA()",
        "at::globalContext().hasCUDA()", "c10::DeviceType::CUDA"})
    EXPECT_EQ(lines_where(code, asks_for_cuda), std::vector<long>{1}) << code;
  for (const char* code :
       {"// as on kCUDA", "device_kind(type)", "has_cuda", "at::kCPU", "kCUDAs", "is_cuda_build"})
    EXPECT_TRUE(lines_where(code, asks_for_cuda).empty()) << code;
}

TEST(house_devices, only_a_kinds_own_files_ask_for_it) {
  std::vector<std::string> paths = sources_in("trireme");
  for (const std::string& path : sources_in("cli")) paths.push_back(path);
  std::erase_if(paths, is_of_one_kind);
  expect_only_in(kMayAsk, paths, asks_for_cuda,
                 "asks whether this is CUDA, and would leave other devices out. Ask "
                 "is_asynchronous() or what trireme/tensor/device.h has, or let the kind answer "
                 "(DeviceKind, trireme/tensor/device/kind.h)");
}

TEST(house_devices, each_kernel_has_a_twin_of_libtorchs_operators) {
  std::vector<std::string> alone;
  for (const std::string& path : sources_in("trireme")) {
    const std::string ending = "_kernels.cc";
    if (!path.ends_with(ending)) continue;
    const std::string twin = path.substr(0, path.size() - ending.size()) + "_aten.cc";
    if (!std::filesystem::exists(trireme::testing::source_path() + "/" + twin))
      alone.push_back(path);
  }
  std::vector<std::string> listed;
  for (const Exception& e : kWithoutTwin) listed.push_back(e.path);
  EXPECT_EQ(alone, listed) << "a kernel serves the CPU alone: write what does the same on any "
                              "device in the file of the same name that ends in _aten.cc, or "
                              "list it here with the reason";
}

// Under another name its twin would not be missed.
TEST(house_devices, what_is_vectorised_is_called_a_kernel) {
  const std::vector<Exception> others = {
      {"trireme/tensor/half_cast.cc",
       "bfloat16 to float32 and back, for what is the CPU's anyway"}};
  std::vector<std::string> paths = sources_in("trireme");
  std::erase_if(paths, [](const std::string& path) { return path.ends_with("_kernels.cc"); });
  expect_only_in(
      others, paths,
      [](const std::string& code) { return code.find("HWY_TARGET_INCLUDE") != std::string::npos; },
      "is compiled once for each instruction set, and so a kernel: end its name in _kernels.cc");
}

}  // namespace
}  // namespace trireme::devices_test
