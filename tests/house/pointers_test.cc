// SPDX-License-Identifier: Apache-2.0
// A tensor's pointer is read where that is known to be right: in *_kernels.{h,cc}, through
// tensor/host_data.h, which refuses a device's memory, and in what is listed here with its reason.
// Who asks host_data.h is listed too.
#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "tests/house/source_lines.h"

namespace trireme::pointers_test {
namespace {

using testing::Exception;
using testing::expect_only_in;
using testing::lines_where;
using testing::sources_in;

// Of the CPU by nature, or of addresses that are compared and never followed.
const std::vector<Exception> kExceptions = {
    {"trireme/tensor/host_data.h", "the way for everybody else: it asks for the device first"},

    {"trireme/comm/local_backend.cc",
     "hands host memory to the engine; posting must not cost a check more"},
    {"trireme/comm/gloo/calls.cc", "hands host memory to Gloo; the backend takes no other"},
    {"trireme/comm/gloo/collectives.cc", "staging memory of its own"},
    {"trireme/comm/mpi/collectives.cc", "hands host memory to MPI; the backend takes no other"},
    {"trireme/comm/group_permute.cc", "addresses that are compared: whether two tensors overlap"},
    {"trireme/comm/group_split.cc", "colours and keys, copied to the host in the line before"},
    {"trireme/comm/objects.cc", "objects as bytes, copied to the host in the line before"},
    {"trireme/comm/desync/comparing_backend.cc",
     "digests of calls, in tensors that it made on the CPU"},

    {"trireme/checkpoint/safetensors_reader.cc",
     "bytes of a file, into a tensor that it made on the CPU"},
    {"trireme/checkpoint/safetensors_writer.cc",
     "bytes for a file, copied to the host in the line before"},
    {"trireme/checkpoint/step_files.cc", "bytes of a file"},
    {"trireme/checkpoint/load/fill.cc",
     "bytes of files, into host memory; a device's is filled from that"},
    {"trireme/checkpoint/save/snapshot.cc",
     "the pinned copy; what stays where it is, is the CPU's"},
    {"trireme/checkpoint/save/early_writes.cc", "what is written from where it is, is the CPU's"},

    {"trireme/data/sources/idx.cc", "samples are read from files into host memory"},
    {"trireme/data/sources/dummy.cc", "samples are drawn in host memory"},
    {"trireme/data/sources/dummy_questions.cc", "samples are drawn in host memory"},
    {"trireme/data/sources/question_source.cc", "samples are made in host memory"},
    {"trireme/data/sources/digits.cc", "samples are drawn in host memory"},
    {"trireme/data/sources/documents.cc", "samples are read from files into host memory"},
    {"trireme/data/sources/corpus.cc", "samples are read from files into host memory"},

    {"trireme/mesh/gather_numbers.h", "a few numbers, copied to the host in the line before"},
    {"trireme/grad/bucket_memory.cc",
     "where a view of a bucket begins: an address that is computed"},
    {"trireme/shard/flat_parameters.cc", "where a parameter's part of a flat buffer begins"},
    {"trireme/train/evaluate.cc", "sums over samples, in a tensor that it made on the CPU"},
    {"trireme/train/program/trainer_impl.cc",
     "numbers that ranks agree on, in tensors made on the CPU"},
    {"trireme/train/setup/measure_memory.cc",
     "addresses that are compared: memory is counted once"},
};

// What asks first (tensor/host_data.h) and reads all the same: the halves of kernels that are of
// tensors, for the CPU's alone, and a few numbers that are in the host's memory anyway.
const std::vector<Exception> kAskFirst = {
    {"trireme/tensor/finite.cc", "hands the CPU's tensors to finite_kernels.cc"},
    {"trireme/tensor/random/random.cc", "draws on the CPU, for a device into pinned memory"},
    {"trireme/layers/bias_gelu.cc", "hands the CPU's tensors to bias_gelu_kernels.cc, by pieces"},
    {"trireme/layers/attention_blocks.cc", "hands the CPU's tensors to attention_kernels.cc"},
    {"trireme/layers/causal_attention.cc", "hands the CPU's tensors to attention_kernels.cc"},
    {"trireme/rpc/codec/tensor.cc",
     "the memory of a remote call's tensors, which it has refused elsewhere"},
    {"trireme/rpc/server/holdings.cc", "what a server holds and gets is in host memory"},
    {"trireme/rpc/server/sharded_embedding.cc", "numbers of rows, copied to the host before"},
    {"trireme/layers/placed_linear.cc", "products of the CPU's tensors, panel by panel"},
    {"trireme/optim/clip.cc", "hands the CPU's gradients to norm_kernels.cc, by blocks"},
    {"trireme/optim/optimizer_segments.h", "hands the CPU's parameters to rule_kernels.cc"},
    {"trireme/optim/rows/row_gradients.cc", "adds in host memory, for every device"},
    {"trireme/optim/rows/row_optimizer.cc", "numbers of rows, copied to the host before"},
    {"trireme/optim/rows/touched_rows.h", "hands the rows of the CPU's tables to rule_kernels.cc"},
    {"trireme/optim/rules/adafactor.cc", "hands the CPU's factors to rule_kernels.cc"},
    {"trireme/grad/compression/codec.cc", "hands float32 in host memory to codec_kernels.cc"},
    {"trireme/grad/compression/compression_hook.cc",
     "hands float32 in host memory to codec_kernels.cc"},
    {"trireme/grad/compression/error_feedback.cc",
     "hands errors in host memory to codec_kernels.cc"},
    {"trireme/grad/compression/int8_hook.cc", "encodes in host memory; on a device int8_aten.cc"},
    {"trireme/grad/compression/sign_hook.cc", "encodes in host memory; on a device sign_aten.cc"},
    {"trireme/grad/compression/top_k_hook.cc", "encodes in host memory, for every device"},
    {"trireme/grad/compression/power_sgd_hook.cc", "encodes in host memory, for every device"},

    {"trireme/data/sources/question_evaluation.cc", "logits, copied to the host before"},
    {"trireme/grad/compression/auto_hook.cc", "times, in a tensor that it made on the CPU"},
    {"trireme/grad/compression/codec_aten.cc", "pinned memory, once the copy has come"},
    {"trireme/grad/rounds/replaced_parameters.cc", "bytes, copied to the host in the line before"},
    {"trireme/grad/rounds/round_record.cc", "numbers, copied to the host in the line before"},
    {"trireme/layers/tensor_parallel/tensor_parallel.cc",
     "digests, of what was copied to the host in the line before"},
    {"trireme/models/sampling.cc", "a prompt and its probabilities, in host memory"},
    {"trireme/optim/grad_scaler.cc", "a parameter's name, in a tensor that it made on the CPU"},
    {"trireme/pipeline/tensor_messages.cc", "sizes, in a tensor that it made on the CPU"},
    {"trireme/tensor/numbers_of.h", "a few numbers of any device, copied to the host before"},
    {"trireme/tensor/random/random_aten.cc", "keys of rows, into pinned memory"},
    {"trireme/train/model_axes/element_digest.cc", "bits, copied to the host in the lines before"},
};

bool is_kernel(const std::string& path) {
  return path.ends_with("_kernels.cc") || path.ends_with("_kernels.h");
}

std::vector<std::string> all_but_kernels() {
  std::vector<std::string> paths = sources_in("trireme");
  std::erase_if(paths, is_kernel);
  return paths;
}

/// Asks a tensor for its address. That of a storage is a handle.
bool reads_a_pointer(const std::string& code) {
  static const std::regex call(R"((->|\.)(mutable_|const_)?data_ptr\s*(<[^>()]*>)?\s*\()"),
      handle(R"(\bstorage(\(\))?(->|\.)data_ptr\()");
  return std::regex_search(std::regex_replace(code, handle, "handle("), call);
}

bool asks_first(const std::string& code) {
  static const std::regex call(R"(\bhost_(data|bits)\s*<)");
  return std::regex_search(code, call);
}

std::vector<long> lines_with_pointers(const std::string& text) {
  return lines_where(text, reads_a_pointer);
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

TEST(house_pointers, the_search_finds_who_asks_first) {
  EXPECT_EQ(lines_where("a\nx = host_data<float>(t);\n", asks_first), std::vector<long>{2});
  EXPECT_EQ(lines_where("host_bits<const T>(from)", asks_first), std::vector<long>{1});
  EXPECT_TRUE(lines_where("// host_data<float>(t)\nhost_data_of<T>(t)", asks_first).empty());
}

TEST(house_pointers, are_read_in_kernels_and_where_a_reason_is_given) {
  expect_only_in(
      kExceptions, all_but_kernels(), reads_a_pointer,
      "reads a tensor's pointer, and the tensor may be on a device. Take host_data() or "
      "memory_of() (trireme/tensor/host_data.h), or move the loop to a file that ends in "
      "_kernels.cc and give it a twin of LibTorch's operators");
}

TEST(house_pointers, even_with_a_check_are_read_in_kernels_and_where_a_reason_is_given) {
  expect_only_in(kAskFirst, all_but_kernels(), asks_first,
                 "reads a tensor of the CPU, and on a device the call would be refused. Move the "
                 "loop to a file that ends in _kernels.cc and give it a twin of LibTorch's "
                 "operators");
}

}  // namespace
}  // namespace trireme::pointers_test
