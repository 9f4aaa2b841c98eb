// SPDX-License-Identifier: Apache-2.0
// Nothing is written for one kind of device but where that kind lives: trireme/tensor/device, the
// headers that smooth LibTorch's versions over, and NCCL. And each kernel of the CPU has a twin
// that does the same on any device, function by function.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/house/named_tests.h"
#include "tests/house/source_lines.h"
#include "tests/support/paths.h"
#include "trireme/base/file.h"

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
    {"trireme/layers/attention_exp_kernels.cc",
     "passes between the products of attention_kernels.cc, whose twin has none"},
};

struct Apart {
  const char* function;  // of the kernel
  const char* reason;
};
using Apartness = std::vector<Apart>;

// Functions of a kernel for which its twin has none of that name: what does the same there, or why
// nothing does.
const std::map<std::string, Apartness> kOtherwise = {
    {"trireme/grad/compression/codec",
     {{"add_kept", "compression_hook_device.cc adds with one operator"},
      {"largest", "a bucket's finite check, by the finite checks' own twin"},
      {"energy", "of auto's trials, which are made in host memory for every device"},
      {"magnitude", "sign_aten.cc: abs() and sum(), in float64"},
      {"dequantize_add", "dequantize(), and an addition"},
      {"dequantize_subtract", "dequantize(), and a subtraction"},
      {"add_signs", "signs(), and a product with each rank's scale"},
      {"collect", "largest_elements(), by LibTorch's topk()"},
      {"project_rows", "power_sgd_aten.cc: LibTorch's products"},
      {"project_cols", "power_sgd_aten.cc: LibTorch's products"},
      {"row_of_product", "power_sgd_aten.cc: LibTorch's products"},
      {"add_to", "an operator of LibTorch's"},
      {"copy_past_cache", "of the CPU's caches"},
      {"scale", "an operator of LibTorch's"},
      {"error_of", "an operator of LibTorch's"}}},
    {"trireme/layers/bias_gelu", {{"bias_gelu_backward", "LibTorch derives its own operators"}}},
    {"trireme/optim/norm",
     {{"norm_blocks", "how many sums, for both"},
      {"block_square_sums", "DeviceSquareSums, for many tensors with one transfer"},
      {"tree_sum", "adds what has come to the host"}}},
    {"trireme/optim/rules/rule",
     {{"amsgrad_pass", "adamw_pass() with `most`"},
      {"lamb_square_sums", "lamb_direction(), whose norms are taken as all norms are"}}},
    {"trireme/tensor/finite",
     {{"finite_bits16", "all_finite_aten() takes every dtype"},
      {"finite_bits32", "all_finite_aten() takes every dtype"},
      {"finite_bits64", "all_finite_aten() takes every dtype"}}},
    {"trireme/tensor/random/random",
     {{"philox_words",
       "dropout_mask() draws the same words by integer operators; initial values are "
       "drawn on the CPU for every device"},
      {"dropout_row", "dropout_mask(), and a product with it"}}},
};

/// The functions that a file declares for others outside of types: of each the name.
std::set<std::string> declared_functions(const std::string& header) {
  std::string code;  // without comments and preprocessor lines
  for (size_t begin = 0; begin < header.size();) {
    const size_t end = std::min(header.find('\n', begin), header.size());
    const std::string line = header.substr(begin, end - begin);
    if (line.empty() || line[0] != '#') code += line.substr(0, line.find("//")) + ' ';
    begin = end + 1;
  }
  std::set<std::string> found;
  std::string statement;
  static const std::regex named(R"(\bnamespace\s+[\w:]+)");
  int depth = 0;  // of braces that are no namespace's that others can name
  const auto ends = [&] {
    static const std::regex type(
        R"(^\s*(struct|class|enum|using|static_assert|template <[^>]*>\s*struct)\b)"),
        name(R"(([A-Za-z_]\w*)\s*\()");
    std::smatch match;
    if (!std::regex_search(statement, type) && std::regex_search(statement, match, name))
      found.insert(match[1]);
    statement.clear();
  };
  for (const char c : code) {
    if (c == '{' && depth == 0 && std::regex_search(statement, named)) {
      statement.clear();
    } else if (c == '{') {
      if (depth++ == 0) ends();
    } else if (c == '}') {
      depth = std::max(0, depth - 1);
      if (depth == 0) statement.clear();
    } else if (c == ';' && depth == 0) {
      ends();
    } else if (depth == 0) {
      statement += c;
    }
  }
  return found;
}

/// "codec" of a kernel's function that its twin may call so: the name itself, or with "_aten", or
/// (of a kernel with a forward) without "_forward".
bool has_twin(const std::set<std::string>& twins, std::string name) {
  if (name.ends_with("_forward")) name.resize(name.size() - std::string("_forward").size());
  return twins.count(name) || twins.count(name + "_aten");
}

/// The folder and name of each family of kernels, "trireme/layers/bias_gelu".
std::vector<std::string> kernel_families() {
  std::vector<std::string> families;
  const std::string ending = "_kernels.cc";
  for (const std::string& path : sources_in("trireme"))
    if (path.ends_with(ending)) families.push_back(path.substr(0, path.size() - ending.size()));
  return families;
}

/// What a half of a family has for others, by its header, or by its source where both halves share
/// a header.
std::set<std::string> functions_of(const std::string& half) {
  const std::string path = trireme::testing::source_path() + "/" + half;
  return declared_functions(
      read_file(std::filesystem::exists(path + ".h") ? path + ".h" : path + ".cc"));
}

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

TEST(house_devices, the_search_finds_the_functions_of_a_header) {
  EXPECT_EQ(declared_functions("#pragma once\n#define F(x) x\nnamespace a::b {\n"
                               "// void not_this(int);\nconstexpr int kN = 4 * 2;\n"
                               "template <class T>\nvoid pass(T* p, const T* q,\n  int n);\n"
                               "struct S {\n  int row() const { return 1; }\n  int n = 0;\n};\n"
                               "inline int blocks(int n) {\n  if (n) { f(n); }\n  return n;\n}\n"
                               "class C {\n public:\n  void fetch();\n};\n"
                               "at::Tensor last(const at::Tensor& t, int n = g(1));\n}\n"),
            (std::set<std::string>{"pass", "blocks", "last"}));
}

TEST(house_devices, each_function_of_a_kernel_has_its_twin_or_a_reason) {
  std::set<std::string> used;
  for (const std::string& family : kernel_families()) {
    const auto listed_file = [&](const Exception& e) { return family + "_kernels.cc" == e.path; };
    if (std::any_of(kWithoutTwin.begin(), kWithoutTwin.end(), listed_file)) continue;
    const auto kernels = functions_of(family + "_kernels"), twins = functions_of(family + "_aten");
    EXPECT_FALSE(kernels.empty()) << family;
    const auto found = kOtherwise.find(family);
    std::set<std::string> apart;
    if (found != kOtherwise.end())
      for (const Apart& a : found->second) {
        EXPECT_TRUE(kernels.count(a.function))
            << family << "_kernels has no " << a.function << "() any more: take it off the list";
        EXPECT_FALSE(has_twin(twins, a.function))
            << family << "_aten has " << a.function << "() now: take it off the list";
        apart.insert(a.function);
      }
    for (const std::string& name : kernels)
      EXPECT_TRUE(apart.count(name) || has_twin(twins, name))
          << family << "_kernels has " << name << "(), and " << family
          << "_aten has nothing of that name for other devices: write it, or list it here with "
             "what does the same there";
    used.insert(family);
  }
  for (const auto& [family, apart] : kOtherwise)
    EXPECT_TRUE(used.count(family)) << family << " is no family of kernels any more";
}

// docs/devices.md says for each feature where it was seen, and by which tests.
TEST(house_devices, each_feature_of_the_page_names_tests_that_exist) {
  const auto there = trireme::testing::all_tests();
  std::istringstream page(read_file(trireme::testing::source_path("/docs/devices.md")));
  bool in_table = false;
  int rows = 0;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("| feature |")) {
      in_table = true;
      EXPECT_TRUE(line.ends_with("| shown by |")) << line;
      continue;
    }
    in_table = in_table && line.starts_with("|");
    if (!in_table || line.starts_with("|---")) continue;
    ++rows;
    const auto named = trireme::testing::tests_named_in(line.substr(
        line.rfind('|', line.size() - 2)));  // keys look like tests: the last cell alone
    EXPECT_FALSE(named.empty()) << line;
    for (const std::string& test : named) EXPECT_TRUE(there.count(test)) << test << "\n" << line;
  }
  EXPECT_GE(rows, 40);
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
