// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "tests/checkpoint/file_faults.h"
#include "tests/checkpoint/rank_processes.h"
#include "tests/checkpoint/steps/written_step.h"
#include "trireme/base/check.h"
#include "trireme/checkpoint/reader.h"
#include "trireme/checkpoint/sharded_writer.h"
#include "trireme/checkpoint/writer.h"
#include "trireme/comm/start/run.h"

// The memory that a load of a step of ours takes beside the state, in a child whose heap is its
// own.
namespace load_memory_test {

using namespace trireme;
using namespace trireme::test;
using namespace trireme::testing;

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

/// Of this process: "VmHWM" is the most so far, "VmRSS" is now.
int64_t resident(const std::string& what) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(what + ":")) return std::stoll(line.substr(what.size() + 1)) * 1024;
  fail<Error>("no {}", what);
}

/// Throws if the memory of this process rises by more while it loads.
void load_within(int64_t most, const std::function<void()>& load) {
  std::ofstream("/proc/self/clear_refs") << "5";  // the most so far is forgotten
  const int64_t before = resident("VmRSS");
  load();
  const int64_t more = resident("VmHWM") - before;
  check<Error>(more <= most, "{} MiB beside the state", more / kMiB);
  check<Error>(more > 0, "nothing was measured");
}

/// By how much the memory that a child has rises while it loads; `make` makes its state.
std::string load_in_child(const std::string& folder, int64_t most,
                          const std::function<at::Tensor()>& make) {
  return end_of_child("", [&] {
    at::Tensor state = make();
    load_within(most, [&] {
      load_step(folder, [&](StateVisitor& v) { v.tensor("model.w", state); }, {.convert = true});
    });
    check<Error>(state[-1][-1].item<double>() == 7, "it is not what was saved");
  });
}

/// Small whole numbers, which every dtype holds.
at::Tensor small_numbers(const std::vector<int64_t>& shape) {
  return at::arange(Slice::whole("", shape).numel(), at::kInt)
      .remainder(251)
      .to(at::kFloat)
      .view(shape);
}

}  // namespace

TEST(checkpoint_load_memory, a_load_takes_64_MiB_beside_the_state_also_where_it_converts) {
  PrivateFolder run;
  {
    at::Tensor w = at::full({48, kMiB}, 7, at::kFloat);  // 192 MiB
    save_step(run.path(), 1, [&](StateVisitor& v) { v.tensor("model.w", w); });
  }
  EXPECT_EQ(load_in_child(run.path(), 64 * kMiB, [] { return at::zeros({48, kMiB}); }), "");
  EXPECT_EQ(load_in_child(run.path(), 64 * kMiB,
                          [] {
                            return at::zeros({48, kMiB}, at::kBFloat16);
                          }),
            "");
}

TEST(checkpoint_load_memory, a_load_takes_64_MiB_beside_memory_that_is_not_contiguous) {
  PrivateFolder run;
  {
    at::Tensor w = at::full({3, 16 * kMiB}, 7, at::kFloat);  // 192 MiB
    save_step(run.path(), 1, [&](StateVisitor& v) { v.tensor("model.w", w); });
  }
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    // Every second element; and columns that are neighbours.
    EXPECT_EQ(load_in_child(run.path(), 64 * kMiB,
                            [&] {
                              return at::zeros({3, 32 * kMiB}, dtype).slice(1, 0, 32 * kMiB, 2);
                            }),
              "");
    EXPECT_EQ(load_in_child(run.path(), 64 * kMiB,
                            [&] {
                              return at::zeros({16 * kMiB, 3}, dtype).t();
                            }),
              "");
  }
}

TEST(checkpoint_load_memory, a_load_adds_what_other_ranks_had_within_64_MiB) {
  PrivateFolder run;
  const int64_t n = 40 * kMiB;  // 160 MiB a rank
  for (const RankStateRule rule : {RankStateRule::add, RankStateRule::average}) {
    run_threads(2, [&](Group g) {
      const at::Tensor own = at::full({n}, g.rank() + 1.0, at::kFloat);
      save_sharded_step(
          run.path(), 1,
          [&](StateVisitor& v) { v.rank_tensor("hook.error.w", g.rank(), 2, rule, own); }, g,
          {.layout = "ranks"});
    });
    EXPECT_EQ(end_of_child("",
                           [&] {
                             const at::Tensor own = at::zeros({n});
                             load_within(64 * kMiB, [&] {
                               load_step(run.path(), [&](StateVisitor& v) {
                                 v.rank_tensor("hook.error.w", 0, 1, rule, own);
                               });
                             });
                             check<Error>(
                                 own.eq(rule == RankStateRule::add ? 3.0 : 1.5).all().item<bool>(),
                                 "it is not what ranks had");
                           }),
              "");
  }
}

// Of slabs that the saved elements fill, not the smaller ones of the state.
TEST(checkpoint_load_memory, what_other_ranks_had_is_added_in_a_smaller_dtype) {
  PrivateFolder run;
  const int64_t n = 5 * kMiB / 2 + 1;
  run_threads(2, [&](Group g) {
    const at::Tensor own = small_numbers({n}).add_(g.rank());
    save_sharded_step(run.path(), 1,
                      [&](StateVisitor& v) {
                        v.rank_tensor("hook.error.w", g.rank(), 2, RankStateRule::average, own);
                      },
                      g, {.layout = "ranks"});
  });
  at::Tensor own = at::zeros({n}, at::kHalf);
  load_step(
      run.path(),
      [&](StateVisitor& v) { v.rank_tensor("hook.error.w", 0, 1, RankStateRule::average, own); },
      {.convert = true});
  EXPECT_TRUE(own.equal(small_numbers({n}).add_(0.5).to(at::kHalf)));
}

// The runs that a rank wants are of 128 bytes.
TEST(checkpoint_load_memory, ranks_that_load_columns_of_saved_rows_take_64_MiB_each) {
  const std::vector<int64_t> shape{40 * kMiB / 64, 64};  // 160 MiB
  const int64_t rows = shape[0] / 2, columns = shape[1] / 2;
  PrivateFolder run;
  run_threads(2, [&](Group g) {
    const Slice slice{"model.w", shape, {g.rank() * rows, 0}, {rows, shape[1]}};
    at::Tensor mine = small_numbers(shape).narrow(0, g.rank() * rows, rows);
    save_sharded_step(run.path(), 1, [&](StateVisitor& v) { v.tensor(slice, mine); }, g,
                      {.layout = "rows"});
  });
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto outcomes = outcomes_by_processes(2, [&](Group g) {
      const Slice slice{"model.w", shape, {0, g.rank() * columns}, {shape[0], columns}};
      at::Tensor mine = at::zeros(slice.lengths, dtype);
      load_within(64 * kMiB, [&] {
        load_step(run.path(), [&](StateVisitor& v) { v.tensor(slice, mine); },
                  {.group = g, .convert = true});
      });
      check<Error>(
          mine.equal(small_numbers(shape).narrow(1, g.rank() * columns, columns).to(dtype)),
          "other values were loaded");
    });
    EXPECT_EQ(outcomes, (std::vector<std::string>{"", ""})) << dtype;
  }
}

// What one rank reads and the others are given passes through memory of both.
TEST(checkpoint_load_memory, ranks_that_hold_rows_alike_and_load_columns_take_64_MiB_each) {
  constexpr int kWorld = 4;
  const std::vector<int64_t> shape{24 * kMiB / 64, 64};  // 96 MiB
  const int64_t columns = shape[1] / kWorld;
  PrivateFolder run;
  EXPECT_EQ(end_of_child("",
                         [&] {
                           const at::Tensor alike = small_numbers(shape), other = alike.clone();
                           save_step(run.path(), 1, [&](StateVisitor& v) {
                             v.tensor("model.alike", alike);
                             v.tensor("model.columns", other);
                           });
                         }),
            "");
  const auto outcomes = outcomes_by_processes(kWorld, [&](Group g) {
    const Slice slice{"model.columns", shape, {0, g.rank() * columns}, {shape[0], columns}};
    at::Tensor alike = at::full(shape, -1.F), mine = at::full(slice.lengths, -1.F);
    load_within(64 * kMiB, [&] {
      load_step(run.path(),
                [&](StateVisitor& v) {
                  v.tensor("model.alike", alike);
                  v.tensor(slice, mine);
                },
                {.group = g});
    });
    check<Error>(alike.equal(small_numbers(shape)) &&
                     mine.equal(small_numbers(shape).narrow(1, g.rank() * columns, columns)),
                 "other values were loaded");
  });
  EXPECT_EQ(outcomes, std::vector<std::string>(kWorld));
}

// As many as a large model has in all, with the names of one: beside the state there are the index
// and what is planned from it, in figures that checkpoint/reader.h gives.
TEST(checkpoint_load_memory, a_load_of_40000_small_parts_takes_64_MiB_also_of_as_many_tensors) {
  constexpr int64_t kTensors = 40'000, kEach = 64;
  const auto name_of = [](int64_t i) {
    return fmt::format("model.blocks.{}.attention.projection.{}.weight", i / 100, i % 100);
  };
  const auto walk_of = [&](const at::Tensor& all) {
    return [&](StateVisitor& v) {
      for (int64_t i = 0; i < kTensors; ++i) v.tensor(name_of(i), all[i]);
    };
  };
  // A part each, and 1000 ranks' parts of fewer. By children, whose heaps are their own: room in
  // this one's would not be counted.
  PrivateFolder whole, parts;
  constexpr int64_t kRanks = 1000, kFew = kTensors / kRanks;
  const auto numbers = [] { return small_numbers({kTensors, kEach}); };
  EXPECT_EQ(end_of_child("", [&] { save_step(whole.path(), 1, walk_of(numbers())); }), "");
  EXPECT_EQ(end_of_child("",
                         [&] {
                           std::vector<WrittenTensor> written;
                           for (int64_t i = 0; i < kFew; ++i) {
                             const at::Tensor own = numbers().view({kFew, kRanks * kEach})[i];
                             WrittenTensor& t = written.emplace_back();
                             t.name = name_of(i), t.dtype = "F32", t.shape = {kRanks * kEach};
                             t.bytes = std::string(static_cast<const char*>(own.data_ptr()),
                                                   own.nbytes());
                             for (int64_t r = 0; r < kRanks; ++r)
                               t.boxes.push_back({{r * kEach}, {kEach}});
                           }
                           write_test_step(parts.path(), 1, written, {}, kRanks);
                         }),
            "");
  const auto walk_of_few = [&](const at::Tensor& all) {
    return [&](StateVisitor& v) {
      for (int64_t i = 0; i < kFew; ++i) v.tensor(name_of(i), all.view({kFew, kRanks * kEach})[i]);
    };
  };
  for (const bool check_first : {false, true})
    for (const bool few : {false, true})
      EXPECT_EQ(end_of_child("",
                             [&] {
                               const at::Tensor state = at::full({kTensors, kEach}, -1.F);
                               const std::string run = few ? parts.path() : whole.path();
                               load_within(64 * kMiB, [&] {
                                 if (few)
                                   load_step(run, walk_of_few(state), {.check_first = check_first});
                                 else
                                   load_step(run, walk_of(state), {.check_first = check_first});
                               });
                               check<Error>(state.equal(numbers()), "other values were loaded");
                             }),
                "")
          << few << check_first;
}

// What large tensors pass through comes on top of the index and the plan.
TEST(checkpoint_load_memory, a_load_of_large_tensors_among_40000_small_ones_takes_64_MiB) {
  constexpr int64_t kTensors = 40'000, kEach = 16, kLarge = 12 * kMiB + 3;
  PrivateFolder run;
  const auto walk_of = [&](const at::Tensor& small, const std::vector<at::Tensor>& large) {
    return [&](StateVisitor& v) {
      for (size_t i = 0; i < large.size(); ++i) v.tensor(fmt::format("model.a.{}", i), large[i]);
      for (int64_t i = 0; i < kTensors; ++i)
        v.tensor(fmt::format("model.blocks.{}.attention.projection.{}.weight", i / 100, i % 100),
                 small[i]);
      for (size_t i = 0; i < large.size(); ++i) v.tensor(fmt::format("model.z.{}", i), large[i]);
    };
  };
  const auto numbers = [] { return small_numbers({kTensors, kEach}); };
  const auto large = [](double value, at::ScalarType dtype) {
    // In place, in another dtype, and every second element.
    return std::vector<at::Tensor>{at::full({kLarge}, value, at::kFloat),
                                   at::full({kLarge}, value, dtype),
                                   at::full({2 * kLarge}, value, at::kFloat).slice(0, 0, {}, 2)};
  };
  EXPECT_EQ(end_of_child("",
                         [&] {
                           const std::vector<at::Tensor> seven = large(7, at::kFloat);
                           save_step(run.path(), 1,
                                     [&](StateVisitor& v) { walk_of(numbers(), seven)(v); });
                         }),
            "");
  for (const bool check_first : {false, true})
    EXPECT_EQ(end_of_child("",
                           [&] {
                             const at::Tensor small = at::full({kTensors, kEach}, -1.F);
                             const std::vector<at::Tensor> to = large(0, at::kDouble);
                             load_within(64 * kMiB, [&] {
                               load_step(run.path(), walk_of(small, to),
                                         {.convert = true, .check_first = check_first});
                             });
                             check<Error>(small.equal(numbers()), "other values were loaded");
                             for (const at::Tensor& t : to)
                               check<Error>(t.eq(7).all().item<bool>(), "other large values");
                           }),
              "")
        << check_first;
}

}  // namespace load_memory_test
