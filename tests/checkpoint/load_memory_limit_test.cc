// SPDX-License-Identifier: Apache-2.0
// Loads of Python's files within 64 MiB beside the state. What is mapped of the files does not
// count: those pages are the page cache's.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "tests/interop/weight_files.h"
#include "tests/support/forked.h"
#include "tests/support/memory_limit.h"
#include "tests/support/sanitized.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/load_weights.h"

namespace trireme::testing::load_memory_limit_test {
namespace {

using interop::Tree;
using interop::testing::Floats;
using interop::testing::safetensors_text;
using interop::testing::write_bytes;
using Tensors = std::map<std::string, at::Tensor>;

constexpr size_t kMiB = size_t{1} << 20;
constexpr int64_t kRows = 4500, kColumns = 4096;  // floats of 70 MiB

/// What a load throws into a child that has the tensors and may have `room` more.
std::string load_within(size_t room, const std::string& path, const std::function<Tensors()>& make,
                        const std::function<double(int64_t row, int64_t column)>& expected) {
  ForkedChild child(ChildEnd::exit_at_once, [&] {
    const Tensors to = make();
    limit_data(room);
    load_weights(path, [&](StateVisitor& v) {
      for (const auto& [name, t] : to) v.tensor(name, t);
    });
    for (const auto& [name, t] : to)
      for (int64_t row = 0; row < t.size(0); row += 7)
        for (int64_t column = row % 11; column < t.size(1); column += 11) {
          const int64_t at = row * t.size(1) + column;
          double found = 0;
          if (t.scalar_type() == at::kFloat)
            found = t.data_ptr<float>()[at];
          else
            found = t.data_ptr<at::BFloat16>()[at];
          if (found != expected(row, column))
            return fmt::format("{} [{}, {}] is {}", name, row, column, found);
        }
    return std::string();
  });
  return child.ended(std::chrono::seconds(60));
}

double numbered(int64_t row, int64_t column) { return static_cast<float>(row * kColumns + column); }

}  // namespace

TEST(checkpoint_load_memory_limit, a_folder_of_safetensors_is_loaded_and_converted_within_64_MiB) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory is in the way";
  PrivateFolder folder;
  for (const std::string name : {"a", "b"})
    write_bytes(folder / (name + ".safetensors"), safetensors_text({{name, {kRows, kColumns}}}));
  const auto two = [](at::ScalarType dtype) {
    return [dtype] {
      return Tensors{{"model.a", at::ones({kRows, kColumns}, dtype)},
                     {"model.b", at::ones({kRows, kColumns}, dtype)}};
    };
  };
  EXPECT_EQ(load_within(64 * kMiB, folder.path(), two(at::kFloat), numbered), "");
  const auto rounded = [](int64_t row, int64_t column) -> double {
    return at::BFloat16(static_cast<float>(numbered(row, column)));
  };
  EXPECT_EQ(load_within(64 * kMiB, folder.path(), two(at::kBFloat16), rounded), "");
  // Two of the file for one of the state, which are compared.
  EXPECT_EQ(load_within(
                64 * kMiB, folder.path(),
                [] {
                  const at::Tensor tied = at::ones({kRows, kColumns});
                  return Tensors{{"model.a", tied}, {"model.b", tied}};
                },
                numbered),
            "");
}

TEST(checkpoint_load_memory_limit, a_pt_file_and_a_transposed_matrix_in_it_within_64_MiB) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory is in the way";
  PrivateFolder folder;
  const std::string path = folder / "x.pt";
  for (const bool transposed : {false, true}) {
    Tree tree;
    tree.root = tree.ordered_dict();
    tree.set(tree.root, "w", tree.array("F32", {kRows, kColumns}));
    if (transposed)
      tree.arrays[0].shape = {kColumns, kRows}, tree.arrays[0].strides = {1, kColumns};
    {
      const std::vector<float> values = Floats{"w", {kRows, kColumns}}.values();
      interop::write_torch_file(path, tree, [&](size_t) -> std::span<const uint8_t> {
        return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(float)};
      });
    }
    EXPECT_EQ(load_within(
                  64 * kMiB, path,
                  [&] {
                    return Tensors{{"model.w", transposed ? at::ones({kColumns, kRows})
                                                          : at::ones({kRows, kColumns})}};
                  },
                  [&](int64_t row, int64_t column) {
                    return transposed ? numbered(column, row) : numbered(row, column);
                  }),
              "")
        << transposed;
  }
}

}  // namespace trireme::testing::load_memory_limit_test
