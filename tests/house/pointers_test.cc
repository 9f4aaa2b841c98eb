// SPDX-License-Identifier: Apache-2.0
// A tensor's pointer is read where that is known to be right: in *_kernels.{h,cc}, through
// tensor/host_data.h, which refuses a device's memory, and in what is listed here with its reason.
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
  const char* path;  // below trireme/
  const char* reason;
};

// Of the CPU by nature, or of addresses that are compared and never followed. By file: a new one
// says why.
const std::vector<Exception> kExceptions = {
    {"tensor/host_data.h", "the way for everybody else: it asks for the device first"},

    {"comm/local_backend.cc",
     "hands host memory to the engine; posting must not cost a check more"},
    {"comm/gloo/calls.cc", "hands host memory to Gloo; the backend takes no other"},
    {"comm/gloo/collectives.cc", "staging memory of its own"},
    {"comm/mpi/collectives.cc", "hands host memory to MPI; the backend takes no other"},
    {"comm/group_permute.cc", "addresses that are compared: whether two tensors overlap"},
    {"comm/group_split.cc", "colours and keys, copied to the host in the line before"},
    {"comm/objects.cc", "objects as bytes, copied to the host in the line before"},
    {"comm/desync/comparing_backend.cc", "digests of calls, in tensors that it made on the CPU"},

    {"checkpoint/safetensors_reader.cc", "bytes of a file, into a tensor that it made on the CPU"},
    {"checkpoint/safetensors_writer.cc", "bytes for a file, copied to the host in the line before"},
    {"checkpoint/step_files.cc", "bytes of a file"},
    {"checkpoint/load/fill.cc", "bytes of files, into host memory; a device's is filled from that"},
    {"checkpoint/save/snapshot.cc", "the pinned copy; what stays where it is, is the CPU's"},
    {"checkpoint/save/early_writes.cc", "what is written from where it is, is the CPU's"},

    {"data/sources/idx.cc", "samples are read from files into host memory"},
    {"data/sources/dummy.cc", "samples are drawn in host memory"},
    {"data/sources/digits.cc", "samples are drawn in host memory"},
    {"data/sources/documents.cc", "samples are read from files into host memory"},
    {"data/sources/corpus.cc", "samples are read from files into host memory"},

    {"mesh/gather_numbers.h", "a few numbers, copied to the host in the line before"},
    {"grad/bucket_memory.cc", "where a view of a bucket begins: an address that is computed"},
    {"shard/flat_parameters.cc", "where a parameter's part of a flat buffer begins"},
    {"train/evaluate.cc", "sums over samples, in a tensor that it made on the CPU"},
    {"train/program/trainer_impl.cc", "numbers that ranks agree on, in tensors made on the CPU"},
    {"train/setup/measure_memory.cc", "addresses that are compared: memory is counted once"},
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
    const auto exception = std::find_if(kExceptions.begin(), kExceptions.end(),
                                        [&](const Exception& e) { return path == e.path; });
    if (exception != kExceptions.end()) {
      used.insert(exception->path);
      continue;
    }
    ADD_FAILURE() << "trireme/" << path << ":" << lines.front()
                  << " reads a tensor's pointer, and the tensor may be on a device. Take "
                     "host_data() or memory_of() (trireme/tensor/host_data.h), or move the loop to "
                     "a file that ends in _kernels.cc and give it a twin of LibTorch's operators";
  }
  for (const Exception& e : kExceptions)
    EXPECT_TRUE(used.count(e.path))
        << e.path << " (" << e.reason << ") reads no pointer any more: take it off the list";
}

}  // namespace
}  // namespace trireme::pointers_test
