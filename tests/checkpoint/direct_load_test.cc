// SPDX-License-Identifier: Apache-2.0
// Blocks are read straight to where they belong, and compared there: all loads, but for those with
// LoadOptions::check_first.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <functional>

#include "tests/checkpoint/file_faults.h"
#include "tests/checkpoint/test_state.h"
#include "tests/support/ranks.h"
#include "trireme/checkpoint/own_state.h"
#include "trireme/checkpoint/reader.h"
#include "trireme/checkpoint/sharded_writer.h"
#include "trireme/checkpoint/steps/index.h"
#include "trireme/checkpoint/steps/step_file.h"
#include "trireme/comm/start/run.h"

namespace direct_load_test {

using namespace trireme;
using namespace trireme::test;
using namespace trireme::testing;

namespace {

constexpr int64_t kBlock = CheckpointIndex::kBlock / 4;  // floats

at::Tensor numbers(std::vector<int64_t> shape, double from = 0) {
  return (at::arange(Slice::whole("", shape).numel(), at::kDouble) + from)
      .remainder(1 << 20)
      .to(at::kFloat)
      .view(shape);
}

/// A tensor of several blocks and a bit, one smaller than a block, and one whose rows are blocks.
const std::vector<std::pair<std::string, std::vector<int64_t>>> kShapes{
    {"model.long", {3 * kBlock + 1001}}, {"model.short", {77, 3}}, {"model.rows", {4, 2 * kBlock}}};

/// How a rank of `world` holds a tensor.
enum class Split { none, rows, columns, ranges };

Slice slice_of(const std::string& name, const std::vector<int64_t>& shape, Split split, int rank,
               int world) {
  const int64_t numel = Slice::whole("", shape).numel();
  const auto cut = [&](int64_t n, int64_t r) { return n * r / world; };
  if (split == Split::ranges) {
    const int64_t begin = cut(numel, rank), end = cut(numel, rank + 1);
    return Slice::range(name, shape, begin, end - begin);
  }
  Slice slice = Slice::whole(name, shape);
  if (split == Split::none) return slice;
  const size_t dim = split == Split::columns ? shape.size() - 1 : 0;
  slice.offsets[dim] = cut(shape[dim], rank);
  slice.lengths[dim] = cut(shape[dim], rank + 1) - slice.offsets[dim];
  return slice;
}

at::Tensor of_slice(const Slice& slice) {
  const at::Tensor whole = numbers(slice.global_shape, static_cast<double>(slice.name.size()));
  if (slice.flat) return whole.view({-1}).narrow(0, slice.flat->begin, slice.flat->count).clone();
  at::Tensor part = whole;
  for (size_t d = 0; d < slice.lengths.size(); ++d)
    part = part.narrow(static_cast<int64_t>(d), slice.offsets[d], slice.lengths[d]);
  return part.clone(at::MemoryFormat::Contiguous);
}

/// What a rank has of all of them.
struct Held {
  Held(Split split, int rank, int world) {
    for (const auto& [name, shape] : kShapes) {
      slices.push_back(slice_of(name, shape, split, rank, world));
      tensors.push_back(of_slice(slices.back()));
    }
  }
  void operator()(StateVisitor& v) {
    for (size_t i = 0; i < slices.size(); ++i)
      if (tensors[i].numel() > 0) v.tensor(slices[i], tensors[i]);
    v.value("train.step", step);
  }
  void forget() {
    for (at::Tensor& t : tensors) t.fill_(-1);
    step = -1;
  }
  bool has_all() const {
    for (size_t i = 0; i < slices.size(); ++i)
      if (!tensors[i].to(at::kFloat).equal(of_slice(slices[i]))) return false;
    return step == 5;
  }
  std::vector<Slice> slices;
  std::vector<at::Tensor> tensors;
  int64_t step = 5;
};

void save(const std::string& run, Split split, int world) {
  run_threads(world, [&](Group g) {
    Held held(split, g.rank(), world);
    save_sharded_step(run, 1, std::ref(held), g, {.layout = "some"});
  });
}

constexpr Split kSplits[] = {Split::none, Split::rows, Split::columns, Split::ranges};

}  // namespace

TEST(checkpoint_direct_load, every_split_loads_into_every_other) {
  for (const Split from : kSplits)
    for (const int saved : {1, 3}) {
      PrivateFolder run;
      save(run.path(), from, saved);
      for (const Split to : kSplits)
        for (const int world : {1, 2, 4}) {
          run_threads(world, [&](Group g) {
            Held held(to, g.rank(), world);
            held.forget();
            load_step(run.path(), std::ref(held), {.group = g});
            EXPECT_TRUE(held.has_all()) << static_cast<int>(from) << " of " << saved << " → "
                                        << static_cast<int>(to) << " of " << world;
          });
        }
    }
}

TEST(checkpoint_direct_load, memory_of_every_kind_is_filled_beside_each_other) {
  PrivateFolder run;
  save(run.path(), Split::none, 1);
  run_threads(2, [&](Group g) {
    Held held(Split::none, 0, 1);
    held.tensors[0] = held.tensors[0].to(at::kDouble);  // converted
    held.tensors[2] = at::empty({2 * kBlock, 4}).t();   // strided
    held.forget();
    load(run.path(), std::ref(held), g, {.convert = true});
    EXPECT_TRUE(held.has_all()) << g.rank();
  });
}

// Two of the state from one of the checkpoint: one has its bytes, the other converts them.
TEST(checkpoint_direct_load, a_block_that_fills_a_weight_and_its_master_is_whole_in_both) {
  PrivateFolder run;
  const at::Tensor exact = numbers({3, kBlock}).div_(3);
  save_step(run.path(), 1, [&](StateVisitor& v) { v.tensor("model.w", exact); });
  at::Tensor weight = at::zeros({3, kBlock}, at::kBFloat16), master = at::zeros({3, kBlock});
  load_step(run.path(),
            [&](StateVisitor& v) {
              v.tensor("model.w", weight);
              v.tensor("optim.master.w", master);
            },
            {.other_precision = true});
  EXPECT_TRUE(master.equal(exact));
  EXPECT_TRUE(weight.equal(exact.to(at::kBFloat16)));
}

TEST(checkpoint_direct_load, a_flipped_bit_of_any_block_is_found_by_all_ranks_and_named) {
  PrivateFolder run;
  save(run.path(), Split::none, 1);
  const std::string path = run / "step-00000001/model.safetensors", good = slurp(path);
  const size_t block = CheckpointIndex::kBlock;
  std::atomic<int> told_of_a_part{0};
  for (size_t at = good.size() - 1, n = 0; n < 13; at -= std::min(at, block), ++n) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 4);
    spill(path, bad);
    for (const Split to : {Split::none, Split::columns, Split::ranges})
      run_threads(2, [&](Group g) {
        Held held(to, g.rank(), 2);
        const std::string text =
            message_of<Corrupt>([&] { load_step(run.path(), std::ref(held), {.group = g}); });
        EXPECT_TRUE(contains(text, path)) << at << ": " << text;
        EXPECT_TRUE(contains(text, "There is no good checkpoint before it")) << text;
        told_of_a_part += contains(text, "The state in memory may be part old and part new now");
      });
  }
  // Not of headers and small tensors, which are compared before anything is filled.
  EXPECT_GT(told_of_a_part, 13 * 3 * 2 / 2);
  EXPECT_LT(told_of_a_part, 13 * 3 * 2);
}

TEST(checkpoint_direct_load, the_older_step_that_the_error_names_fills_all_of_it) {
  PrivateFolder run;
  run_threads(2, [&](Group g) {
    Held held(Split::ranges, g.rank(), 2);
    for (const int64_t step : {1, 2})
      save_sharded_step(run.path(), step, std::ref(held), g, {.layout = "some"});
  });
  const std::string path = run / "step-00000002/model-rank00001.safetensors";
  std::string bytes = slurp(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  spill(path, bytes);
  run_threads(2, [&](Group g) {
    Held held(Split::ranges, g.rank(), 2);
    held.forget();
    const LoadOptions options{.group = g};
    const std::string text =
        message_of<Corrupt>([&] { load_step(run.path(), std::ref(held), options); });
    EXPECT_TRUE(contains(text, run / "step-00000001")) << text;
    load_step(run / "step-00000001", std::ref(held), options);
    EXPECT_TRUE(held.has_all());
  });
}

TEST(checkpoint_direct_load, one_rank_with_something_to_lose_decides_for_all) {
  PrivateFolder run;
  save(run.path(), Split::none, 1);
  const std::string path = run / "step-00000001/model.safetensors", good = slurp(path);
  for (const bool damaged : {false, true}) {
    std::string bytes = good;
    if (damaged) bytes.back() = static_cast<char>(bytes.back() ^ 1);
    spill(path, bytes);
    run_threads(2, [&](Group g) {
      Held held(Split::none, g.rank(), 2);
      held.forget();
      const std::string text = message_of<Corrupt>([&] {
        load_step(run.path(), std::ref(held), {.group = g, .check_first = g.rank() > 0});
      });
      EXPECT_EQ(text.empty(), !damaged) << text;
      EXPECT_EQ(held.has_all(), !damaged);
      for (const at::Tensor& t : held.tensors) EXPECT_EQ(t.eq(-1).all().item<bool>(), damaged);
    });
  }
}

TEST(checkpoint_direct_load,
     bytes_move_once_where_ranks_want_their_own_and_twice_if_checked_first) {
  PrivateFolder run;
  save(run.path(), Split::ranges, 2);
  int64_t size = 0;
  for (const auto& [name, file] : read_step_index(run / "step-00000001").files)
    size += static_cast<int64_t>(file.size);
  const auto moved = [&](bool check_first) {
    const auto read = [] {  // by any call
      std::ifstream io("/proc/self/io");
      std::string word;
      int64_t n = 0;
      io >> word >> n;
      return n;
    };
    const int64_t before = read();
    run_threads(2, [&](Group g) {
      Held held(Split::ranges, g.rank(), 2);
      held.forget();
      load_step(run.path(), std::ref(held), {.group = g, .check_first = check_first});
      EXPECT_TRUE(held.has_all());
    });
    return static_cast<double>(read() - before) / static_cast<double>(size);
  };
  EXPECT_LT(moved(false), 1.2);
  EXPECT_GT(moved(true), 1.8);
}

}  // namespace direct_load_test
