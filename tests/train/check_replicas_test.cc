// SPDX-License-Identifier: Apache-2.0
// training.check_replicas where ranks have parts of a parameter in common, and in buffers: what
// should be equal and is not is found and named, and what may differ is left alone.
#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "tests/support/refusals.h"
#include "tests/train/chain_programs.h"
#include "tests/train/parallel_programs.h"
#include "tests/train/program_runs.h"
#include "tests/train/run_folders.h"
#include "trireme/train/model_axes/element_digest.h"
#include "trireme/train/model_axes/replica_digests.h"

namespace check_replicas_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

Sets operator+(Sets a, const Sets& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const Sets kTwo = {"parallelism.tp=2"}, kStages = {"parallelism.pp=2"};
Sets zero(int stage) { return {"zero_optimization.stage=" + std::to_string(stage)}; }

using Plant = std::function<void(trireme::Run&)>;

at::Tensor tensor_of(const NamedTensors& list, const std::string& name) {
  for (const auto& [n, t] : list)
    if (n == name) return t;
  return {};
}

NamedTensors buffers_in(trireme::Run& run) {
  NamedTensors all;
  for (const auto& b : run.model->named_buffers()) all.emplace_back(b.key(), b.value());
  return all;
}

/// Each rank's error in three steps, "" where there was none. Before the third, `plant` changes
/// what a rank has.
template <class P>
std::vector<std::string> said_by(int ranks, const Sets& sets, int at, const Plant& plant) {
  std::vector<std::string> said(static_cast<size_t>(ranks));
  const Config config =
      config_for<P>(Sets{"training.check_replicas=1", "train_micro_batch_size_per_gpu=2"} + sets);
  try {
    run_threads(
        ranks,
        [&](Group g) {
          P program;
          Trainer trainer(make_trainer(program, config, g));
          Trainer::Impl& t = trainer.impl();
          start_data(t.first(), config);
          try {
            for (int step = 0; step < 3; ++step) {
              at::NoGradGuard no_grad;
              if (step == 2 && g.rank() == at) plant(t.first());
              at::AutoGradMode grad(true);
              t.take_step({});
            }
          } catch (const NumericError& e) {
            said[static_cast<size_t>(g.rank())] = e.what();
            throw;
          }
        },
        std::chrono::seconds(60));
  } catch (const NumericError&) {
  }
  return said;
}

template <class P>
void expect_said(int ranks, const Sets& sets, int at, const Plant& plant, const std::string& what) {
  for (const std::string& text : said_by<P>(ranks, sets, at, plant))
    EXPECT_TRUE(has(text, what)) << ranks << " ranks, " << (sets.empty() ? "" : sets.back()) << ": "
                                 << text << "\nplanted: " << what;
}

/// Four query heads of width 6 and one key/value head: with two ranks each has 12 rows of queries,
/// then 6 of keys (from row 24 of the whole on) and 6 of values (from row 30 on).
struct SharedHeads : WordsProgram {
  ParallelBlockOptions block() const override {
    return {.width = kWide, .heads = 4, .kv_heads = 1};
  }
};
constexpr const char* kQkv = "blocks.2.block.attn.qkv";

/// A buffer that training does not change, beside running statistics.
struct MaskedImpl : torch::nn::Module {
  MaskedImpl()
      : body(register_module("body", Normed())),
        mask(register_buffer("mask", torch::ones({kDeepWidth}))) {}
  at::Tensor forward(const at::Tensor& x) { return body(x) * mask; }
  Normed body;
  at::Tensor mask;
};
TORCH_MODULE(Masked);

struct MaskedProgram : NormedProgram {
  Pieces make(const Config& c) override {
    Pieces all = NormedProgram::make(c);
    // One of them is on the last stage of a pipeline.
    all.insert(all.begin() + 1, piece("first", [] { return Masked(); }));
    all.insert(all.end() - 1, piece("last", [] { return Masked(); }));
    return all;
  }
};

}  // namespace

TEST(train_check_replicas, digests_of_parts_add_up_to_that_of_the_whole) {
  for (const auto dtype :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort,
        at::kByte, at::kBool, at::kComplexFloat, at::kComplexDouble}) {
    const at::Tensor t = (torch::arange(24).reshape({4, 6}) * 7 % 5).to(dtype);
    const int64_t whole = element_digest(t, 0, 24, 0);
    for (const int64_t cut : {0, 1, 11, 24})
      EXPECT_EQ(static_cast<uint64_t>(whole),
                static_cast<uint64_t>(element_digest(t, 0, cut, 0)) +
                    static_cast<uint64_t>(element_digest(t, cut, 24, cut)))
          << dtype;
    EXPECT_EQ(element_digest(t.narrow(0, 1, 2), 3, 9, 9), element_digest(t, 9, 15, 9));
    EXPECT_NE(element_digest(t.flip(1), 0, 24, 0), whole) << "places count";
    EXPECT_NE(element_digest(t, 0, 24, 1), whole);
    EXPECT_EQ(element_digest(t.t().contiguous().t(), 0, 24, 0), whole) << "strides do not";
  }
  const at::Tensor zeros = torch::zeros({8});
  EXPECT_NE(element_digest(zeros, 0, 8, 0), element_digest(-zeros, 0, 8, 0)) << "bits count";
  EXPECT_NE(element_digest(zeros, 0, 8, 0), element_digest(zeros.to(at::kInt), 0, 8, 0));
  EXPECT_THROW(element_digest(zeros, 4, 9, 0), UsageError);
}

TEST(train_check_replicas, shards_are_compared_by_what_they_are_together) {
  // Ranks 0 and 1 are tp 0 and 1 of shard 0, ranks 2 and 3 of shard 1. Shards of tp 1 end
  // elsewhere.
  const MeshShape mesh(
      4, {{{"pp", 1}, {"dp_replicate", 1}, {"dp_shard", 2}, {"cp", 1}, {"tp", 2}}, {}, {}});
  const auto part = [](int64_t digest) {
    return std::vector<ReplicaDigest>{{"w", "w", {}, digest, true}};
  };
  EXPECT_EQ(first_replica_difference(mesh, {part(5), part(2), part(1), part(4)}).rank, -1);
  EXPECT_EQ(first_replica_difference(mesh, {part(6), part(6), {}, {}}).rank, -1);
  const auto found = first_replica_difference(mesh, {part(5), part(2), part(1), part(3)});
  EXPECT_EQ(found.axis, "tp");
  EXPECT_EQ(found.rank, 0);
  EXPECT_EQ(found.other, 1);
  const auto on_last = first_replica_difference(mesh, {{}, {}, part(6), part(7)});
  EXPECT_EQ(on_last.rank, 2);
  EXPECT_EQ(on_last.other, 3);
}

TEST(train_check_replicas, a_head_that_ranks_share_and_that_differs_is_named_with_its_place) {
  const std::string weight = std::string(kQkv) + ".weight";
  struct Case {
    int ranks;
    Sets sets;
    std::string axis;
  };
  // Rank 3 of pp 2 × tp 2 has the second stage.
  for (const Case& c : {Case{2, kTwo, "tp, and differs between ranks 0 and 1"},
                        Case{4, kTwo + kStages, "tp, and differs between ranks 2 and 3"},
                        Case{4, kTwo, "dp_replicate, and differs between ranks 1 and 3"}})
    // Rows of keys and of values: here, and in the whole.
    for (const auto& [row, place] : {std::pair<int64_t, int>{13, 24}, {20, 30}})
      expect_said<SharedHeads>(
          c.ranks, c.sets, c.ranks - 1,
          [&, row = row](trireme::Run& run) {
            tensor_of(run.gradients->parameters(), weight)[row].add_(1);
          },
          fmt::format("the part of parameter '{}' from [{}, 0] on should be equal on the ranks of "
                      "axis {} after step 3",
                      weight, place, c.axis));
}

TEST(train_check_replicas, a_shared_head_in_shards_is_compared_too) {
  const std::string weight = std::string(kQkv) + ".weight";
  const auto plant = [&](trireme::Run& run) {
    const at::Tensor w = tensor_of(run.gradients->owned(), weight);
    if (w.defined()) w.add_(1);
  };
  // Rank 2 and 3 have the later rows, among them those of keys and values.
  expect_said<SharedHeads>(4, kTwo + zero(3), 3, plant,
                           "the part of parameter '" + weight + "' from [");
}

TEST(train_check_replicas, whole_parameters_are_compared_over_tp_at_stage_3_too) {
  const auto plant = [](trireme::Run& run) {
    const at::Tensor w = tensor_of(run.gradients->owned(), "out.norm.bias");
    if (w.defined() && w.numel() > 0) w.view({-1})[0] += 1;
  };
  int found = 0;
  for (const int at : {1, 3})
    for (const std::string& text : said_by<SharedHeads>(4, kTwo + zero(3), at, plant)) {
      EXPECT_TRUE(text.empty() || has(text,
                                      "parameter 'out.norm.bias' should be equal on the ranks "
                                      "of axis tp"))
          << text;
      found += !text.empty();
    }
  EXPECT_GE(found, 4);
}

TEST(train_check_replicas, shared_heads_that_are_equal_train_on) {
  for (const auto& [ranks, sets] :
       std::vector<std::pair<int, Sets>>{{2, kTwo},
                                         {4, {"parallelism.tp=4"}},
                                         {8, kTwo + kStages + zero(3)},
                                         {8, Sets{"parallelism.tp=4"} + zero(3)}})
    for (const std::string& text : said_by<SharedHeads>(ranks, sets, -1, {})) EXPECT_EQ(text, "");
}

TEST(train_check_replicas, running_statistics_are_equal_over_tp_and_follow_samples_over_dp) {
  const auto plant = [](trireme::Run& run) {
    tensor_of(buffers_in(run), "body.norm.running_var").view({-1})[5] += 1;
  };
  expect_said<MixedProgram>(2, kTwo, 1, plant,
                            "buffer 'body.norm.running_var' should be equal on the ranks of axis "
                            "tp, and differs between ranks 0 and 1 after step 3");
  expect_said<MixedProgram>(4, kTwo + zero(2), 3, plant,
                            "axis tp, and differs between ranks 2 and 3");
  for (const auto& [ranks, sets] : std::vector<std::pair<int, Sets>>{
           {4, kTwo}, {4, kTwo + zero(1)}, {4, kTwo + zero(3)}, {2, {}}})
    for (const std::string& text : said_by<MixedProgram>(ranks, sets, -1, {})) EXPECT_EQ(text, "");
}

TEST(train_check_replicas, a_buffer_that_training_does_not_change_is_equal_on_replicas) {
  const auto plant = [](trireme::Run& run) {
    const at::Tensor mask = tensor_of(buffers_in(run), "last.mask");
    if (mask.defined()) mask[3] = 0.5;
  };
  for (const auto& [ranks, sets, at] : std::vector<std::tuple<int, Sets, int>>{
           {2, {}, 1}, {2, {}, 0}, {4, kStages, 3}, {4, zero(2), 2}, {2, zero(3), 1}})
    expect_said<MaskedProgram>(ranks, sets, at, plant,
                               "buffer 'last.mask' should be equal on the ranks of axis dp_");
  for (const auto& [ranks, sets] :
       std::vector<std::pair<int, Sets>>{{2, {}}, {4, kStages}, {2, zero(3)}})
    for (const std::string& text : said_by<MaskedProgram>(ranks, sets, -1, {})) EXPECT_EQ(text, "");
}

}  // namespace check_replicas_test
