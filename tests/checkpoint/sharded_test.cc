// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/checkpoint/split_state.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/checkpoint/steps/index.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"

namespace sharded_test {

using namespace trireme;
using namespace trireme::test;
namespace fs = std::filesystem;

namespace {

using Names = std::vector<std::string>;
using Steps = std::vector<int64_t>;

const LoadOptions kWeightsAlone{.prefix = "model."};

/// What each of n ranks' save throws, as "Kind: text"; the group is used once more after it.
Names refusals(int n, const std::string& run, const std::function<StateWalk(int rank)>& walk_of,
               const std::function<ShardedSaveOptions(int rank)>& options_of = {},
               const std::function<int64_t(int rank)>& step_of = {}) {
  Names texts(static_cast<size_t>(n), "nothing");
  run_threads(n, [&](Group g) {
    try {
      save_sharded_step(run, step_of ? step_of(g.rank()) : 1, walk_of(g.rank()), g,
                        options_of ? options_of(g.rank()) : ShardedSaveOptions{.layout = "some"});
    } catch (const Error& e) {
      texts[static_cast<size_t>(g.rank())] = std::string(e.kind()) + ": " + e.what();
    }
    g.barrier();
  });
  return texts;
}

void expect_all(const Names& texts, const std::string& kind, const Names& parts) {
  for (const std::string& text : texts) {
    EXPECT_EQ(text, texts.front());
    EXPECT_EQ(text.rfind(kind + ": ", 0), 0u) << text;
    for (const std::string& part : parts) EXPECT_TRUE(contains(text, part)) << text;
  }
}

StateWalk range(int64_t numel, int64_t begin, int64_t length, at::ScalarType dtype = at::kFloat) {
  return [=](StateVisitor& v) {
    v.tensor({"model.w", {numel}, {begin}, {length}}, at::ones({length}, dtype));
  };
}

}  // namespace

TEST(checkpoint_sharded, every_rank_gets_its_state_back_under_every_number_of_ranks_and_stage) {
  for (int n = 1; n <= 4; ++n)
    for (int stage : {1, 3}) {
      PrivateFolder run;
      const Seat seat{0, n, n, stage};
      save_split(run.path(), 100, seat);
      EXPECT_TRUE(all_load(run.path(), seat)) << n << " ranks, stage " << stage;
      const auto info = verify_checkpoint(run / "step-00000100");
      EXPECT_EQ(info.world, n);
      EXPECT_EQ(info.layout, seat.layout());
    }
}

TEST(checkpoint_sharded, all_ranks_return_the_path_when_it_is_there) {
  PrivateFolder run;
  run_threads(3, [&](Group g) {
    const std::string path = save_split(run.path(), 7, g, seat_of(g, 3));
    EXPECT_EQ(path, run / "step-00000007");
    EXPECT_TRUE(loads(path, seat_of(g, 3)));
    EXPECT_EQ(slurp(run / "latest"), "step-00000007\n");
  });
}

TEST(checkpoint_sharded, each_rank_writes_what_it_alone_holds_and_rank_0_what_all_hold) {
  PrivateFolder run;
  save_split(run.path(), 1, {0, 3, 3, 3});
  const std::string folder = run / "step-00000001";
  EXPECT_EQ(names_in(folder),
            (Names{"model-rank00000.safetensors", "model-rank00001.safetensors",
                   "model-rank00002.safetensors", "model.safetensors",
                   "state-rank00000.safetensors", "state-rank00001.safetensors",
                   "state-rank00002.safetensors", "state.safetensors", "trireme.index.json"}));
  SafetensorsFile common(folder + "/model.safetensors"),
      last(folder + "/model-rank00002.safetensors");
  EXPECT_EQ(common.entries().size(), 1u);
  EXPECT_NE(common.find("mean"), nullptr);
  EXPECT_EQ(last.tensor("fc.weight").numel(), 3);  // 12 to 14 of 15, then bias and g
  EXPECT_EQ(last.entries().size(), 3u);
}

TEST(checkpoint_sharded, what_replicas_hold_alike_is_written_once) {
  PrivateFolder run;
  const Seat seat{0, 4, 2, 3};
  save_split(run.path(), 1, seat);
  for (const char* absent : {"model-rank00002.safetensors", "model-rank00003.safetensors",
                             "state-rank00002.safetensors", "state-rank00003.safetensors"})
    EXPECT_FALSE(fs::exists(run / "step-00000001/" + absent)) << absent;
  EXPECT_TRUE(all_load(run.path(), seat));
}

TEST(checkpoint_sharded, split_weights_are_put_together_in_their_shape) {
  for (int n = 1; n <= 4; ++n)
    for (int stage : {1, 3}) {
      PrivateFolder run;
      save_split(run.path(), 100, {0, n, n, stage});
      WholeWeights whole;
      load_step(run.path(), std::ref(whole), kWeightsAlone);
      EXPECT_TRUE(whole.are_of(100)) << n << " ranks, stage " << stage;
    }
}

TEST(checkpoint_sharded, put_together_weights_fill_strided_memory) {
  PrivateFolder run;
  save_split(run.path(), 100, {0, 3, 3, 3});
  WholeWeights whole;
  whole.tensors["model.fc.weight"] = at::zeros({3, 5}).t();
  load_step(run.path(), std::ref(whole), kWeightsAlone);
  EXPECT_TRUE(whole.are_of(100));
}

TEST(checkpoint_sharded, weights_load_into_every_other_number_of_parts) {
  auto only_model = [](SplitState& state) {
    std::erase_if(state.tensors, [](auto& t) { return t.first.name.rfind("model.", 0) != 0; });
  };
  for (int n : {1, 2, 3, 4})
    for (int m : {0, 2, 3, 4}) {  // saved by m; 0: whole, by save_step
      PrivateFolder run;
      if (m == 0) {
        SplitState whole({0, 1, 1, 1}, 100);
        save_step(run.path(), 100, std::ref(whole));
      } else {
        save_split(run.path(), 100, {0, m, m, 3});
      }
      for (int rank = 0; rank < n; ++rank) {
        const Seat seat{rank, n, n, 3};
        SplitState state(seat, -1), want(seat, 100);
        only_model(state), only_model(want);
        load_step(run.path(),
                  [&](StateVisitor& v) {
                    for (auto& [slice, t] : state.tensors) v.tensor(slice, t);
                  },
                  {.prefix = "model.", .partial = true});
        for (size_t i = 0; i < state.tensors.size(); ++i)
          EXPECT_TRUE(state.tensors[i].second.equal(want.tensors[i].second))
              << n << " of " << m << ": " << state.tensors[i].first.name;
      }
    }
}

// 1, 2, 3 and 4 ranks, in shards and replicas, stages 1 and 3, and whole state.
TEST(checkpoint_sharded, every_layout_loads_into_every_other_bit_for_bit) {
  std::vector<Seat> seats;
  for (int stage : {1, 3})
    for (const auto& [world, shards] : {std::pair{1, 1}, {2, 2}, {3, 3}, {4, 4}, {4, 2}})
      seats.push_back({0, world, shards, stage});
  for (const Seat& saved : seats) {
    PrivateFolder run;
    save_split(run.path(), 100, saved);
    for (const Seat& wanted : seats) {
      EXPECT_TRUE(all_load(run.path(), wanted)) << saved.layout() << " → " << wanted.layout();
      for (const bool check_first : {false, true})
        run_threads(wanted.world, [&](Group g) {
          const Seat seat{g.rank(), wanted.world, wanted.shards, wanted.stage};
          SplitState state(seat, -1);
          const auto info =
              load_step(run.path(), std::ref(state), {.group = g, .check_first = check_first});
          EXPECT_TRUE(state.same_as(SplitState(seat, 100)));
          EXPECT_EQ(info.layout, saved.layout());
          EXPECT_TRUE(info.notes.empty());
        });
    }
  }
}

TEST(checkpoint_sharded, what_each_rank_has_for_itself_follows_its_rule_in_another_world) {
  auto walk = [](int rank, int ranks, at::Tensor sum, at::Tensor mean, at::Tensor anew) {
    return [=](StateVisitor& v) {
      v.rank_tensor("hook.error.w", rank, ranks, RankStateRule::add, sum);
      v.rank_tensor("own.w", rank, ranks, RankStateRule::average, mean);
      v.rank_tensor("balance.speed", rank, ranks, RankStateRule::begin_anew, anew);
    };
  };
  for (int saved : {1, 2, 3, 4}) {
    PrivateFolder run;
    run_threads(saved, [&](Group g) {
      const at::Tensor t = at::full({3}, static_cast<double>(1 << g.rank()), at::kFloat);
      save_sharded_step(run.path(), 1, walk(g.rank(), saved, t, t * 3, t.clone()), g, {"ranks"});
    });
    for (int now : {1, 2, 3, 4}) {
      std::vector<double> sums(static_cast<size_t>(now));
      run_threads(now, [&](Group g) {
        const auto fresh = [] { return at::full({3}, -7, at::kFloat); };
        const at::Tensor sum = fresh(), mean = fresh(), anew = fresh();
        const auto info = load_step(run.path(), walk(g.rank(), now, sum, mean, anew),
                                    {.group = g, .check_first = now % 2 != 0});
        sums[static_cast<size_t>(g.rank())] = sum[2].item<double>();
        const double all = (1 << saved) - 1;
        if (saved == now) {
          EXPECT_TRUE(sum.eq(1 << g.rank()).all().item<bool>());
          EXPECT_TRUE(mean.equal(sum * 3) && anew.equal(sum));
          EXPECT_TRUE(info.notes.empty());
        } else {
          EXPECT_NEAR(mean[0].item<double>(), 3 * all / saved, 1e-5);
          EXPECT_TRUE(anew.equal(fresh()));
          ASSERT_EQ(info.notes.size(), 3u);
          EXPECT_TRUE(contains(info.notes[0], "balance.speed of " + std::to_string(saved)) &&
                      contains(info.notes[0], "begins afresh"))
              << info.notes[0];
        }
      });
      double total = 0;
      for (double s : sums) total += s;
      EXPECT_EQ(total, (1 << saved) - 1) << saved << " → " << now;  // nothing is lost
    }
  }
}

TEST(checkpoint_sharded, an_error_of_one_rank_s_load_is_every_rank_s_and_names_it) {
  PrivateFolder run;
  save_split(run.path(), 100, {0, 3, 3, 3});
  auto outcomes = [&](const std::function<void(SplitState&)>& change_of_1) {
    Names texts(3);
    run_threads(3, [&](Group g) {
      SplitState state({g.rank(), 3, 3, 3}, -1);
      if (g.rank() == 1) change_of_1(state);
      try {
        load_step(run.path(), std::ref(state), {.group = g});
      } catch (const Error& e) {
        texts[static_cast<size_t>(g.rank())] = e.what();
      }
      g.barrier();  // the group goes on
    });
    return texts;
  };
  const Names missing = outcomes([](SplitState& s) { s.put(Slice::whole("model.x", {1}), 1); });
  EXPECT_TRUE(contains(missing[0], "rank 1: ") && contains(missing[0], "'model.x'")) << missing[0];
  EXPECT_TRUE(contains(missing[1], "has no tensor 'model.x'")) << missing[1];
  EXPECT_EQ(missing[0], missing[2]);
  // What no rank shows.
  Names texts(3);
  run_threads(3, [&](Group g) {
    SplitState state({g.rank(), 3, 3, 3}, -1);
    std::erase_if(state.tensors, [](auto& t) { return t.first.name == "optim.exp_avg.g"; });
    try {
      load_step(run.path(), std::ref(state), {.group = g});
    } catch (const Error& e) {
      texts[static_cast<size_t>(g.rank())] = e.what();
    }
  });
  for (const std::string& text : texts)
    EXPECT_TRUE(contains(text, "holds tensor 'optim.exp_avg.g'")) << text;
}

TEST(checkpoint_sharded, a_state_that_knows_more_or_less_is_refused) {
  PrivateFolder run;
  const Seat seat{1, 2, 2, 3};
  save_split(run.path(), 100, seat);
  auto refused = [&](auto&& change) {
    SplitState state(seat, -1);
    change(state);
    std::string text;
    run_threads(2, [&](Group g) {
      SplitState other({g.rank(), 2, 2, 3}, -1);
      try {
        load_step(run.path(), g.rank() == 1 ? StateWalk(std::ref(state)) : std::ref(other),
                  {.group = g});
      } catch (const UsageError& e) {
        if (g.rank() == 1) text = e.what();
      }
    });
    return text;
  };
  EXPECT_TRUE(contains(refused([](auto& s) { s.put(Slice::whole("model.x", {1}), 1); }),
                       "has no tensor 'model.x'"));
  EXPECT_TRUE(contains(refused([](auto& s) {
                         std::erase_if(s.tensors,
                                       [](auto& t) { return t.first.name == "model.g"; });
                       }),
                       "tensor 'model.g'"));
  EXPECT_TRUE(
      contains(refused([](auto& s) { s.steps.erase("optim.steps.g"); }), "value 'optim.steps.g'"));
  EXPECT_TRUE(
      contains(refused([](auto& s) { s.steps["optim.steps.h"] = 1; }), "no value 'optim.steps.h'"));
  EXPECT_TRUE(loads(run.path(), seat));
}

TEST(checkpoint_sharded, a_model_with_another_parameter_is_refused_also_in_weights_alone) {
  PrivateFolder run;
  save_split(run.path(), 100, {0, 2, 2, 3});
  auto refused = [&](auto&& change) {
    WholeWeights whole;
    change(whole.tensors);
    return message_of<UsageError>([&] { load_step(run.path(), std::ref(whole), kWeightsAlone); });
  };
  EXPECT_TRUE(contains(refused([](auto& t) { t.erase("model.g"); }), "holds tensor 'model.g'"));
  EXPECT_TRUE(contains(refused([](auto& t) { t["model.h"] = at::ones({1}); }), "'model.h'"));
  EXPECT_TRUE(contains(refused([](auto& t) { t["model.fc.bias"] = at::ones({3}); }),
                       "[2] there and [3] here"));
  EXPECT_TRUE(contains(refused([](auto& t) { t["model.fc.weight"] = at::ones({15}); }),
                       "[5, 3] there and [15] here"));
  EXPECT_TRUE(contains(refused([](auto& t) { t["model.mean"] = at::ones({3}, at::kDouble); }),
                       "F32 there and Double"));
}

TEST(checkpoint_sharded, only_the_last_ones_are_kept_and_a_step_saved_again_is_replaced) {
  PrivateFolder run;
  const Seat seat{0, 2, 2, 3};
  for (int64_t step : {100, 200, 300}) save_split(run.path(), step, seat);
  EXPECT_EQ(list_steps(run.path()), (Steps{200, 300}));
  run_threads(2, [&](Group g) {  // the same step with other content
    SplitState state(seat_of(g, 2), 999);
    save_sharded_step(run.path(), 300, std::ref(state), g, {.layout = seat.layout(), .keep = 1});
  });
  EXPECT_EQ(names_in(run.path()), (Names{"latest", "step-00000300"}));
  SplitState state(seat, -1);
  load_step(run.path(), std::ref(state), {.partial = true});
  EXPECT_EQ(state.step, 999);
}

TEST(checkpoint_sharded, parts_that_overlap_or_leave_a_hole_are_refused_by_all_ranks) {
  PrivateFolder run;
  const std::string folder = run / "r";
  auto two = [&](StateWalk a, StateWalk b) {
    return refusals(2, folder, [=](int rank) { return rank == 0 ? a : b; });
  };
  expect_all(two(range(10, 0, 6), range(10, 4, 6)), "UsageError",
             {"'model.w'", "elements 4 to 5 are in two parts"});
  expect_all(two(range(10, 0, 4), range(10, 6, 4)), "UsageError",
             {"'model.w'", "elements 4 to 5 are in none"});
  expect_all(two(range(10, 0, 4), range(10, 4, 5)), "UsageError", {"9 to 9 are in none"});
  expect_all(two(range(10, 0, 10), range(10, 4, 6)), "UsageError", {"in two parts"});
  expect_all(two(range(10, 0, 0), range(10, 4, 0)), "UsageError", {"no rank holds"});
  expect_all(two(range(10, 0, 5), range(11, 5, 6)), "UsageError", {"another shape", "rank 1"});
  expect_all(two(range(10, 0, 5), range(10, 5, 5, at::kHalf)), "UsageError", {"dtype", "rank 1"});
  expect_all(two(range(10, 0, 5), range(10, 8, 5)), "UsageError",
             {"rank 1", "do not fit into the size 10"});
  auto box = [](int64_t row, int64_t rows) {
    return [=](StateVisitor& v) {
      v.tensor({"model.w", {5, 2}, {row, 0}, {rows, 2}}, at::ones({2 * rows}));
    };
  };
  expect_all(two(box(0, 3), box(2, 3)), "UsageError", {"'model.w'", "in two parts"});
  expect_all(two(box(0, 2), box(3, 2)), "UsageError", {"2 of 10 elements are in no part"});
  EXPECT_FALSE(fs::exists(folder));
}

TEST(checkpoint_sharded, ranks_that_disagree_or_err_are_named_on_all_ranks) {
  PrivateFolder run;
  const std::string folder = run / "r";
  auto value = [](auto v) {
    return [v](StateVisitor& to) {
      auto copy = v;
      to.value("train.x", copy);
    };
  };
  auto ranked = [](StateWalk a, StateWalk b) { return [=](int rank) { return rank < 2 ? a : b; }; };
  expect_all(refusals(3, folder, ranked(value(int64_t{3}), value(int64_t{4}))), "UsageError",
             {"'train.x' is 3 on rank 0 and 4 on rank 2"});
  expect_all(refusals(3, folder, ranked(value(0.5), value(std::string("a")))), "UsageError",
             {"0.5 on rank 0 and 'a' on rank 2"});
  auto fine = [](int) { return range(10, 0, 10); };
  expect_all(refusals(2, folder, fine,
                      [](int rank) { return ShardedSaveOptions{.layout = rank ? "two" : "one"}; }),
             "UsageError", {"layout 'one'", "rank 1", "layout 'two'"});
  expect_all(refusals(2, folder, fine, {}, [](int rank) { return 5 + rank; }), "UsageError",
             {"step 5", "step 6"});
  for (const char* layout : {"", "caf\xc3\xa9", "a\nb"})
    expect_all(refusals(2, folder, fine, [=](int) { return ShardedSaveOptions{.layout = layout}; }),
               "UsageError", {"is not the text of a layout"});
  expect_all(refusals(2, folder, fine,
                      [](int) {
                        return ShardedSaveOptions{"some", 0};
                      }),
             "UsageError", {"keep is 0"});
  expect_all(refusals(2, folder,
                      [](int rank) {
                        return rank ? range(10, 0, 10, at::kComplexFloat) : range(10, 0, 10);
                      }),
             "UsageError", {"rank 1 on ", "ComplexFloat"});
  expect_all(refusals(2, folder,
                      [](int rank) -> StateWalk {
                        if (rank == 0) return range(10, 0, 10);
                        return [](StateVisitor&) { throw std::runtime_error("a walk that fails"); };
                      }),
             "Error", {"rank 1 on ", "a walk that fails"});
  EXPECT_FALSE(fs::exists(folder));
}

TEST(checkpoint_sharded, nan_and_negative_zero_agree_by_their_bits) {
  PrivateFolder run;
  auto with = [](double x) {
    return [x](StateVisitor& v) {
      double copy = x;
      v.value("train.x", copy);
    };
  };
  run_threads(2, [&](Group g) {
    save_sharded_step(run.path(), 1, with(std::nan("")), g, {.layout = "some"});
  });
  expect_all(refusals(2, run.path(), [&](int rank) { return with(rank ? -0.0 : 0.0); }),
             "UsageError", {"0 on rank 0 and -0 on rank 1"});
}

TEST(checkpoint_sharded, every_flipped_byte_is_detected_by_the_rank_that_needs_it_and_no_other) {
  PrivateFolder run;
  const Seat seat{0, 2, 2, 3};
  save_split(run.path(), 100, seat);
  const std::string folder = run / "step-00000100";
  for (const std::string& name : names_in(folder)) {
    const std::string path = folder + "/" + name, good = slurp(path);
    const bool index = name == CheckpointIndex::kFileName;
    const int other = name.find("rank00000") != std::string::npos   ? 1
                      : name.find("rank00001") != std::string::npos ? 0
                                                                    : -1;  // needed by both
    for (size_t i = 0; i < good.size(); i += index ? 7 : 3) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
      spill(path, bad);
      EXPECT_THROW(verify_checkpoint(folder), Error) << name << " byte " << i;
      if (i % 21) continue;
      for (int rank = 0; rank < 2; ++rank) {
        if (rank == other) {
          EXPECT_TRUE(loads(folder, {rank, 2, 2, 3}));
          continue;
        }
        const Seat mine{rank, 2, 2, 3};
        SplitState state(mine, -1);
        if (name == "state.safetensors") continue;  // nothing is in it
        for (const bool check_first : {true, false}) {
          const std::string text = message_of<Error>([&] {
            load_step(folder, std::ref(state), {.partial = true, .check_first = check_first});
          });
          EXPECT_TRUE(contains(text, path)) << text;
          EXPECT_TRUE(!check_first || state.same_as(SplitState(mine, -1)));
        }
      }
    }
    fs::remove(path);
    EXPECT_TRUE(
        contains(message_of<Corrupt>([&] { verify_checkpoint(folder); }), path + " is missing"));
    if (!index && other >= 0) {
      EXPECT_TRUE(contains(message_of<Corrupt>([&] {
                             loads(folder, {1 - other, 2, 2, 3});
                           }),
                           path + " is missing"));
    }
    spill(path, good);
  }
  EXPECT_TRUE(all_load(run.path(), seat));
}

TEST(checkpoint_sharded, a_damaged_rank_file_names_the_good_checkpoint_before) {
  PrivateFolder run;
  const Seat seat{1, 2, 2, 3};
  for (int64_t step : {100, 200}) save_split(run.path(), step, seat);
  const std::string path = run / "step-00000200/state-rank00001.safetensors";
  std::string bytes = slurp(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  spill(path, bytes);
  const std::string text = message_of<Corrupt>([&] { loads(run.path(), seat); });
  EXPECT_TRUE(contains(text, path) && contains(text, run / "step-00000100")) << text;
  EXPECT_TRUE(loads(run / "step-00000100", seat));
}

TEST(checkpoint_sharded, a_slice_is_read_without_the_blocks_beside_it) {
  PrivateFolder run;
  at::Tensor big = at::arange(int64_t{1} << 20, at::kFloat);  // four blocks
  save_step(run.path(), 1, [&](StateVisitor& v) { v.tensor("model.w", big); });
  const std::string path = run / "step-00000001/model.safetensors";
  std::string bytes = slurp(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);  // in the last block
  spill(path, bytes);
  auto load = [&](int64_t begin, int64_t count) {
    at::Tensor part = at::zeros({count});
    load_step(run.path(), [&](StateVisitor& v) {
      v.tensor(Slice::range("model.w", {int64_t{1} << 20}, begin, count), part);
    });
    return part;
  };
  EXPECT_TRUE(load(1000, 3 * (1 << 18) - 1000).equal(big.narrow(0, 1000, 3 * (1 << 18) - 1000)));
  EXPECT_TRUE(contains(message_of<Corrupt>([&] { load(1000, 3 * (1 << 18)); }),
                       "the checksum of tensor 'w' does not fit (bytes 3145728 to 4194303 of it)"));
}

TEST(checkpoint_sharded, ranks_write_what_they_hold_alike_together) {
  PrivateFolder run;
  run_threads(4, [&](Group g) {
    at::Tensor w = at::arange(int64_t{3} << 20, at::kFloat).view({3, 1 << 20});
    save_sharded_step(run.path(), 1, [&](StateVisitor& v) { v.tensor("model.w", w); }, g,
                      {"replicated"});
    at::Tensor back = at::zeros_like(w);
    load_step(run.path(), [&](StateVisitor& v) { v.tensor("model.w", back); }, {.group = g});
    EXPECT_TRUE(back.equal(w));
  });
  EXPECT_EQ(names_in(run / "step-00000001"),
            (Names{"model.safetensors", "state.safetensors", "trireme.index.json"}));
}

}  // namespace sharded_test
