// SPDX-License-Identifier: Apache-2.0
// A tensor's pointer is read where that is known to be right: in *_kernels.{h,cc}, through
// tensor/host_data.h, which refuses a device's memory, and in what is listed here with its reason.
#include <fnmatch.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "trireme/base/file.h"

namespace trireme::pointers_test {
namespace {

namespace fs = std::filesystem;

struct Exception {
  const char* pattern;  // of a path below trireme/
  const char* reason;
};

// Of the CPU by nature, or of pointers that are compared and never followed.
const std::vector<Exception> kExceptions = {
    {"tensor/host_data.h", "the way for everybody else: it asks for the device first"},
    {"comm/*", "backends hand memory to the system; what a backend takes is checked before"},
    {"checkpoint/*", "bytes on their way between files and host memory"},
    {"data/sources/*", "samples are read from files into host memory"},
    {"mesh/gather_numbers.h", "a few numbers, copied to the host in the line before"},
    {"models/sampling.cc", "the logits of one token, copied to the host"},
    {"train/*",
     "a few numbers that ranks agree on, in host memory; and addresses that are compared"},
    {"grad/reducer.cc", "the order of buckets, a few numbers in host memory"},
    {"grad/module_sync.cc", "hashes that ranks compare, in host memory"},
    {"grad/rounds/*", "a few numbers that ranks agree on; and addresses that are compared"},
    {"grad/bucket_memory.cc", "where a view begins: an address that is computed and compared"},
    {"grad/gradient_tree.cc", "addresses that are compared"},
    {"shard/*", "where a parameter's part of a flat buffer begins; offload's memory is the host's"},
    {"optim/host_optimizer.cc", "an address that is compared"},
    {"layers/*",
     "the CPU's attention, GELU and linear layers; plain.cc is what other devices take"},
};

bool is_kernel(const std::string& path) {
  return path.ends_with("_kernels.cc") || path.ends_with("_kernels.h");
}

/// Lines that ask a tensor for its address. That of a storage is a handle.
std::vector<long> lines_with_pointers(const std::string& text) {
  static const std::regex call(R"((->|\.)(mutable_|const_)?data_ptr\s*(<[^>()]*>)?\s*\()"),
      handle(R"(\bstorage(\(\))?(->|\.)data_ptr\()");
  std::vector<long> lines;
  long number = 0;
  for (size_t begin = 0; begin <= text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string code = std::regex_replace(text.substr(begin, end - begin), handle, "handle(");
    if (std::regex_search(code.substr(0, code.find("//")), call)) lines.push_back(number + 1);
    begin = end + 1;
  }
  return lines;
}

std::vector<std::string> sources() {
  const fs::path root = fs::path(TRIREME_SOURCE_DIR) / "trireme";
  std::vector<std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(root))
    if (entry.path().extension() == ".h" || entry.path().extension() == ".cc")
      found.push_back(fs::relative(entry.path(), root).generic_string());
  std::sort(found.begin(), found.end());
  return found;
}

TEST(house_pointers, the_search_finds_a_tensors_and_no_storages) {
  EXPECT_EQ(lines_with_pointers("a\nx = t.data_ptr<float>();\n").size(), 1u);
  EXPECT_EQ(lines_with_pointers("a\nx = t.data_ptr<float>();\n").front(), 2);
  EXPECT_EQ(lines_with_pointers("p->mutable_data_ptr()").size(), 1u);
  EXPECT_EQ(lines_with_pointers("t.const_data_ptr<T>() + 1").size(), 1u);
  EXPECT_EQ(lines_with_pointers("static_cast<char*>(flat().data_ptr())").size(), 1u);
  EXPECT_TRUE(lines_with_pointers("t.storage().data_ptr().get()").empty());
  EXPECT_TRUE(lines_with_pointers("storage->data_ptr()").empty());
  EXPECT_TRUE(lines_with_pointers("storage->set_data_ptr_noswap(x)").empty());
  EXPECT_TRUE(lines_with_pointers("host_data<float>(t)  // not t.data_ptr()").empty());
}

TEST(house_pointers, are_read_in_kernels_and_where_a_reason_is_given) {
  std::set<std::string> used;
  for (const std::string& path : sources()) {
    if (is_kernel(path)) continue;
    const auto lines =
        lines_with_pointers(read_file(std::string(TRIREME_SOURCE_DIR) + "/trireme/" + path));
    if (lines.empty()) continue;
    const auto exception = std::find_if(
        kExceptions.begin(), kExceptions.end(),
        [&](const Exception& e) { return ::fnmatch(e.pattern, path.c_str(), 0) == 0; });
    if (exception != kExceptions.end()) {
      used.insert(exception->pattern);
      continue;
    }
    ADD_FAILURE() << "trireme/" << path << ":" << lines.front()
                  << " reads a tensor's pointer, and the tensor may be on a device. Take "
                     "host_data() or memory_of() (trireme/tensor/host_data.h), or move the loop to "
                     "a file that ends in _kernels.cc and give it a twin of LibTorch's operators";
  }
  for (const Exception& e : kExceptions)
    EXPECT_TRUE(used.count(e.pattern))
        << e.pattern << " (" << e.reason << ") reads no pointer any more: take it off the list";
}

}  // namespace
}  // namespace trireme::pointers_test
