// SPDX-License-Identifier: Apache-2.0
// Weights from files that others saved, without an import before.
#include <ATen/ATen.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "tests/interop/told.h"
#include "tests/interop/weight_files.h"
#include "tests/support/refusals.h"
#include "trireme/base/fd.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/load_weights.h"
#include "trireme/comm/start/run.h"
#include "trireme/models/gpt.h"

namespace trireme::testing::load_foreign_test {
namespace {

using interop::testing::Floats;
using interop::testing::kFixtures;
using interop::testing::safetensors_text;
using interop::testing::small_gpt2;
using interop::testing::write_bytes;
using interop::testing::write_pt;
using Tensors = std::map<std::string, at::Tensor>;

StateWalk of(const Tensors& tensors) {
  return [tensors](StateVisitor& v) {
    for (const auto& [name, t] : tensors) v.tensor(name, t);
  };
}

at::Tensor numbers(float first, std::vector<int64_t> shape) {
  int64_t n = 1;
  for (int64_t size : shape) n *= size;
  return (at::arange(n, at::kFloat) + first).view(shape);
}

const std::vector<Floats> kTwo{{"fc.weight", {2, 3}}, {"fc.bias", {2}, 10}};

Tensors for_two() {
  return {{"model.fc.weight", at::zeros({2, 3})}, {"model.fc.bias", at::zeros({2})}};
}

std::string refused(const std::string& path, const Tensors& to, const WeightOptions& options = {}) {
  return refusal([&] { load_weights(path, of(to), {}, options); });
}

GptOptions small(bool tied) {
  GptOptions o;
  o.layers = 2, o.width = 2, o.heads = 1, o.context = 4, o.vocab = 5, o.dropout = 0;
  o.tied_head = tied;
  return o;
}

StateWalk weights_of(Gpt& gpt) {
  return [&gpt](StateVisitor& v) {
    for (const auto& item : gpt.named_parameters())
      v.tensor("model." + item.key(), item.value().detach());
  };
}

/// Bytes of the file that are in the page cache; -1 where that cannot be known.
int64_t in_page_cache(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const auto size = static_cast<size_t>(std::filesystem::file_size(path));
  void* at = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) return -1;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((size + page - 1) / page);
  const bool told = ::mincore(at, size, pages.data()) == 0;
  ::munmap(at, size);
  if (!told) return -1;
  int64_t bytes = 0;
  for (const unsigned char p : pages) bytes += (p & 1) != 0 ? static_cast<int64_t>(page) : 0;
  return bytes;
}

}  // namespace

TEST(checkpoint_load_foreign, a_rank_reads_the_rows_that_it_has_and_no_others) {
  const PrivateFolder folder;
  const std::string path = folder / "model.safetensors";
  const std::vector<int64_t> shape{16384, 1024};
  const int64_t mib = int64_t{1} << 20, own = 8 * mib, whole = 64 * mib;
  write_bytes(path, safetensors_text({{"w", shape}}));
  {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    ::fsync(fd.get());
    ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
  const int64_t before = in_page_cache(path);
  if (before < 0 || before > mib) GTEST_SKIP() << "the file system keeps files in memory";
  at::Tensor rows = at::zeros({2048, 1024});
  load_weights(path, [&](StateVisitor& v) {
    v.tensor(Slice{"model.w", shape, {8192, 0}, {2048, 1024}}, rows);
  });
  EXPECT_TRUE(rows.equal(numbers(8192 * 1024, {2048, 1024})));
  const int64_t read = in_page_cache(path) - before;
  EXPECT_GE(read, own);
  EXPECT_LE(read, whole * 3 / 4) << "the kernel reads on, from some disks 8 MiB at a time";
}

TEST(checkpoint_load_foreign, a_pt_a_safetensors_file_and_folders_are_taken_as_they_are) {
  PrivateFolder folder;
  write_pt(folder / "x.pt", kTwo, {"state_dict"});
  write_bytes(folder / "x.safetensors", safetensors_text(kTwo));
  std::filesystem::create_directory(folder / "hf");
  write_bytes(folder / "hf/model-00001-of-00002.safetensors", safetensors_text({kTwo[0]}));
  write_bytes(folder / "hf/model-00002-of-00002.safetensors", safetensors_text({kTwo[1]}));
  std::filesystem::create_directory(folder / "bin");
  write_pt(folder / "bin/pytorch_model-00001-of-00002.bin", {kTwo[0]});
  write_pt(folder / "bin/pytorch_model-00002-of-00002.bin", {kTwo[1]});
  write_bytes(folder / "bin/pytorch_model.bin.index.json",
              R"({"weight_map":{"fc.weight":"pytorch_model-00001-of-00002.bin",)"
              R"("fc.bias":"pytorch_model-00002-of-00002.bin"}})");
  for (const char* name : {"x.pt", "x.safetensors", "hf", "hf/", "bin"}) {
    const Tensors to = for_two();
    const CheckpointInfo info = load_weights(folder / name, of(to));
    EXPECT_TRUE(at::equal(to.at("model.fc.weight"), numbers(0, {2, 3}))) << name;
    EXPECT_TRUE(at::equal(to.at("model.fc.bias"), numbers(10, {2}))) << name;
    EXPECT_EQ(info.notes.size(), std::string(name) == "x.pt" ? 1u : 0u);
  }
}

TEST(checkpoint_load_foreign, a_folder_of_dcp_in_pieces_is_taken_by_ranks_in_others) {
  run_threads(3, [&](Group g) {
    at::Tensor weight = at::zeros({5}), bias = at::zeros({3}, at::kBFloat16);
    at::Tensor turned = at::zeros({2});
    load_weights(
        kFixtures + "dcp",
        [&](StateVisitor& v) {
          v.tensor(Slice::range("model.fc.weight", {5, 3}, g.rank() * 5, 5), weight);
          v.tensor("model.fc.bias", bias);
          v.tensor(Slice{"model.turned", {3, 2}, {g.rank(), 0}, {1, 2}}, turned);
        },
        g);
    if (!at::equal(weight, numbers(static_cast<float>(g.rank() * 5), {5})))
      throw Error("another weight");
    if (!at::equal(bias, at::ones({3}, at::kBFloat16))) throw Error("another bias");
    if (!at::equal(turned, at::arange(6, at::kFloat).view({2, 3}).t().contiguous()[g.rank()]))
      throw Error("another piece of what is stored transposed");
  });
}

TEST(checkpoint_load_foreign, names_are_mapped_excepted_and_compared_as_those_of_a_step) {
  PrivateFolder folder;
  const std::string path = folder / "x.pt";
  write_pt(path, {{"net.weight", {2, 3}}, {"net.bias", {2}, 10}, {"old.head", {1}}});
  const Tensors to = for_two();
  EXPECT_TRUE(has(refused(folder / "nothing.pt", to), "there is nothing at " + folder.path()));
  EXPECT_TRUE(has(refused(path, to), "has no tensor 'model.fc.bias', which this state asks for"));
  EXPECT_TRUE(has(refused(path, to, {.map = {"net.=fc."}}), "holds tensor 'model.old.head'"));
  load_weights(path, of(to), {}, {.map = {"net.=fc."}, .except = {"old.*"}});
  EXPECT_TRUE(at::equal(to.at("model.fc.bias"), numbers(10, {2})));
}

TEST(checkpoint_load_foreign, another_shape_or_dtype_names_file_tensor_and_both) {
  PrivateFolder folder;
  const std::string path = folder / "x.safetensors";
  write_bytes(path, safetensors_text({{"fc.weight", {3, 2}}, {"fc.bias", {2}}}));
  EXPECT_TRUE(has(refused(path, for_two()),
                  path + ": tensor 'model.fc.weight' (there 'fc.weight') has shape [3, 2] there "
                         "and [2, 3] here"))
      << refused(path, for_two());
  write_bytes(path, safetensors_text({{"fc.weight", {6}}, {"fc.bias", {2}}}));
  EXPECT_TRUE(has(refused(path, for_two()), "has shape [6] there and [2, 3] here"));
  Tensors whole = for_two();
  whole.at("model.fc.bias") = at::zeros({2}, at::kLong);
  EXPECT_TRUE(has(refused(path, whole), "'model.fc.bias' (there 'fc.bias') is F32 there and Long"));
}

TEST(checkpoint_load_foreign, floats_are_converted) {
  PrivateFolder folder;
  write_pt(folder / "x.pt", kTwo);
  const Tensors to = {{"model.fc.weight", at::zeros({2, 3}, at::kBFloat16)},
                      {"model.fc.bias", at::zeros({2}, at::kDouble)}};
  load_weights(folder / "x.pt", of(to));
  EXPECT_TRUE(at::equal(to.at("model.fc.weight"), numbers(0, {2, 3}).to(at::kBFloat16)));
}

TEST(checkpoint_load_foreign, damage_is_refused_by_all_ranks_before_anything_is_written) {
  PrivateFolder folder;
  const std::string path = folder / "x.pt";
  write_pt(path, kTwo);
  std::string bytes = read_file(path);
  bytes[bytes.find(kTwo[0].bytes()) + 4] ^= 1;
  write_bytes(path, bytes);
  run_threads(2, [&](Group g) {
    const Tensors to = for_two();
    std::string said;
    try {
      load_weights(path, of(to), g);
    } catch (const Corrupt& e) {
      said = e.what();
    }
    if (!has(said, "tensor 'fc.weight' do not fit their checksum")) throw Error(said);
    if (!at::equal(to.at("model.fc.bias"), at::zeros({2}))) throw Error("it was written");
  });
}

TEST(checkpoint_load_foreign, gpt2_fills_our_gpt_with_a_head_of_its_own_or_tied) {
  PrivateFolder folder;
  const std::string path = folder / "x.safetensors";
  write_bytes(path, safetensors_text(small_gpt2()));
  for (const bool tied : {true, false}) {
    Gpt gpt(small(tied), 1);
    const CheckpointInfo info = load_weights(path, weights_of(gpt));
    const auto named = gpt.named_parameters();
    EXPECT_TRUE(at::equal(named["blocks.1.attn.qkv.weight"], numbers(204, {2, 6}).t()));
    EXPECT_TRUE(at::equal(named["blocks.0.mlp.down.weight"], numbers(156, {8, 2}).t()));
    EXPECT_TRUE(at::equal(named["wpe.weight"], numbers(50, {4, 2})));
    EXPECT_TRUE(tied || at::equal(named["head.weight"], numbers(0, {5, 2})));
    EXPECT_EQ(info.notes.size(), tied ? 1u : 2u);
    EXPECT_TRUE(has(info.notes[0], "its names are those of GPT-2"));
  }
  auto untied = small_gpt2();
  untied.push_back({"lm_head.weight", {5, 2}, 3});
  write_bytes(path, safetensors_text(untied));
  Gpt tied(small(true), 1), own(small(false), 1);
  EXPECT_TRUE(has(refusal([&] { load_weights(path, weights_of(tied)); }),
                  "holds tensor 'model.head.weight', which this state does not know"));
  load_weights(path, weights_of(own));
  EXPECT_TRUE(at::equal(own.named_parameters()["head.weight"], numbers(3, {5, 2})));
}

TEST(checkpoint_load_foreign, a_gpt2_of_another_size_names_the_layer_as_it_is_there) {
  PrivateFolder folder;
  const std::string path = folder / "x.safetensors";
  write_bytes(path, safetensors_text(small_gpt2()));
  GptOptions wide = small(true);
  wide.width = 4;
  Gpt gpt(wide, 1);
  const std::string text = refusal([&] { load_weights(path, weights_of(gpt)); });
  EXPECT_TRUE(has(text, path + ": tensor 'model.wte.weight' (there 'transformer.wte.weight') has "
                               "shape [5, 2] there and [5, 4] here"))
      << text;
  GptOptions deep = small(true);
  deep.layers = 3;
  Gpt three(deep, 1);
  EXPECT_TRUE(has(refusal([&] { load_weights(path, weights_of(three)); }),
                  "has no tensor 'model.blocks.2.ln1.weight'"));
}

TEST(checkpoint_load_foreign, ranks_that_show_parts_of_a_gpt_agree_on_its_names) {
  PrivateFolder folder;
  const std::string path = folder / "x.safetensors";
  write_bytes(path, safetensors_text(small_gpt2()));
  Gpt whole(small(true), 1);
  load_weights(path, weights_of(whole));
  run_threads(2, [&](Group g) {
    // Rank 0 has what is no block, and rank 1 the blocks.
    std::vector<std::pair<std::string, at::Tensor>> mine;
    for (const auto& item : whole.named_parameters())
      if ((item.key().rfind("blocks.", 0) == 0) == (g.rank() == 1))
        mine.emplace_back(item.key(), at::zeros_like(item.value().detach()));
    load_weights(
        path,
        [&](StateVisitor& v) {
          for (auto& [name, t] : mine) v.tensor("model." + name, t);
        },
        g);
    for (auto& [name, t] : mine)
      if (!at::equal(t, whole.named_parameters()[name].detach())) throw Error(name);
  });
}

TEST(checkpoint_load_foreign, a_model_that_has_gpt2s_own_names_is_left_alone) {
  PrivateFolder folder;
  const auto tensors = small_gpt2();
  write_pt(folder / "x.pt", tensors);
  Tensors to;
  for (const Floats& t : tensors) to["model." + t.name] = at::zeros(t.shape);
  EXPECT_TRUE(load_weights(folder / "x.pt", of(to)).notes.empty());
  EXPECT_TRUE(at::equal(to.at("model.transformer.h.0.attn.c_attn.weight"), numbers(104, {2, 6})));
}

}  // namespace trireme::testing::load_foreign_test
