// SPDX-License-Identifier: Apache-2.0
// Programs whose pieces are the stages of a pipeline: the same training as on one rank that has all
// of them.
#include "trireme/train/program/chain_program.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <set>

#include "tests/support/refusals.h"
#include "tests/train/chain_programs.h"
#include "tests/train/program_runs.h"
#include "tests/train/run_folders.h"

namespace chain_program_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr const char* kDeep = R"({
  "train_batch_size": 16,
  "gradient_clipping": 0.5,
  "optimizer": {"type": "SGD", "params": {"lr": 0.05, "momentum": 0.9}},
  "training": {"steps": 6}
})";

template <class P = DeepProgram>
Config deep(const Sets& sets = {}) {
  return config_for<P>(sets, kDeep);
}

/// What all ranks together came to.
struct Whole {
  std::map<std::string, at::Tensor> weights;
  std::vector<std::map<std::string, std::vector<double>>> reports;  // by rank
  std::vector<std::vector<std::string>> paths;                      // of each rank
  std::vector<std::string> setup;                                   // of rank 0
};

template <class P = DeepProgram>
Whole train_whole(int ranks, const Config& config, const std::string& load = "",
                  const std::string& save = "") {
  Whole whole;
  whole.reports.resize(static_cast<size_t>(ranks));
  whole.paths.resize(static_cast<size_t>(ranks));
  std::mutex mutex;
  run_threads(
      ranks,
      [&](Group g) {
        P program;
        Trainer trainer(make_trainer(program, config, g, {load.empty(), std::nullopt}));
        Trainer::Impl& t = trainer.impl();
        if (!load.empty()) t.load(load, nullptr);
        start_data(t.first(), config);
        std::map<std::string, std::vector<double>> reports;
        while (t.step < trainer.steps()) {
          t.take_step({});
          reports["loss"].push_back(t.done.at(0).report.loss);
          reports["norm"].push_back(t.done.at(0).report.grad_norm);
          for (const auto& [term, mean] : t.done.at(0).terms) reports[term].push_back(mean);
        }
        for (const auto& sum : t.evaluate()) reports[sum.name] = {sum.sum, sum.weight};
        if (!save.empty()) t.save(save, {});
        const NamedTensors mine = weights_in(t);
        std::lock_guard lock(mutex);
        for (const auto& [name, w] : mine) {
          const auto [at, is_new] = whole.weights.emplace(name, w);
          EXPECT_TRUE(is_new || at->second.equal(w)) << name << " differs between replicas";
        }
        whole.reports[static_cast<size_t>(g.rank())] = reports;
        whole.paths[static_cast<size_t>(g.rank())] = trainer.net().paths();
        if (g.rank() == 0) whole.setup = t.first().setup;
      },
      std::chrono::seconds(60));
  return whole;
}

NamedTensors named(const std::map<std::string, at::Tensor>& weights) {
  return {weights.begin(), weights.end()};
}

Sets operator+(Sets a, const Sets& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Sets pipeline(int pp, const std::string& schedule = "1f1b", int micro = 2) {
  return {"parallelism.pp=" + std::to_string(pp), "parallelism.schedule=" + schedule,
          "train_micro_batch_size_per_gpu=" + std::to_string(micro)};
}

Sets zero(int stage) { return {"zero_optimization.stage=" + std::to_string(stage)}; }

}  // namespace

TEST(train_chain_program, a_pipeline_trains_what_one_rank_trains) {
  const Whole one = train_whole(1, deep());
  struct Row {
    int ranks;
    Sets sets;
    double tolerance = 2e-6;
  };
  for (const Row& row : std::vector<Row>{
           {1, {"train_micro_batch_size_per_gpu=4"}},
           {2, pipeline(2)},
           {4, pipeline(4)},
           {4, pipeline(2)},
           {2, pipeline(2, "gpipe")},
           {2, pipeline(2, "interleaved_1f1b")},
           {2, pipeline(2, "breadth_first") + Sets{"parallelism.virtual_stages=4"}},
           {2, pipeline(2, "zb_h1")},
           {2, pipeline(2, "zb_v")},
           {2, pipeline(2, "dualpipe_v")},
           {2, pipeline(2) + Sets{"parallelism.stages=[3,5]"}},
           {2, pipeline(2) + Sets{"parallelism.partition_method=measured"}},
           {4, pipeline(2) + zero(1)},
           {4, pipeline(2) + zero(2)},
           {4, pipeline(2) + zero(3)},
           {4, pipeline(2, "zb_v") + zero(3)},
           {4, pipeline(2, "interleaved_1f1b") + zero(2)},
           {8, pipeline(2, "1f1b", 1) + zero(3) + Sets{"parallelism.dp_shard=2"}},
           {2, pipeline(2) + Sets{"bf16.enabled=true"}, 0.05},
           {2, pipeline(2) + Sets{"torch_autocast.enabled=true"}, 0.05},
       }) {
    const Whole ran = train_whole(row.ranks, deep(row.sets));
    const std::string what = fmt::format("{} on {}", fmt::join(row.sets, " "), row.ranks);
    EXPECT_LT(relative_distance(named(ran.weights), named(one.weights)), row.tolerance) << what;
    for (const auto& of_rank : ran.reports) {
      EXPECT_EQ(of_rank, ran.reports[0]) << what;
      for (const char* figure : {"loss", "norm"})
        for (size_t i = 0; i < 6; ++i)
          EXPECT_NEAR(of_rank.at(figure)[i] / one.reports[0].at(figure)[i], 1, 1e-5 + row.tolerance)
              << what << " " << figure << " in step " << i + 1;
      EXPECT_NEAR(of_rank.at("held_out_loss")[0], one.reports[0].at("held_out_loss")[0],
                  1e-3 + 50 * row.tolerance)
          << what;
      EXPECT_EQ(of_rank.at("held_out_loss")[1], 50) << what;
    }
  }
}

TEST(train_chain_program, reproducible_mode_gives_the_same_bits_with_any_stages) {
  const Sets same = {"training.reproducible=true", "training.leaves=8"};
  const Whole one = train_whole(1, deep(same));
  for (const auto& [ranks, sets] : std::vector<std::pair<int, Sets>>{
           {2, pipeline(2)},
           {4, pipeline(4)},
           {4, pipeline(2)},
           {2, pipeline(2, "zb_h1")},
           {2, pipeline(2, "zb_v")},
           {4, pipeline(2, "interleaved_1f1b") + zero(2)},
           {4, pipeline(2) + zero(3)},
           {2, pipeline(2) + Sets{"parallelism.partition_method=measured"}}}) {
    const Whole ran = train_whole(ranks, deep(same + sets));
    EXPECT_EQ(first_difference(named(ran.weights), named(one.weights)), "")
        << fmt::format("{} on {}", fmt::join(sets, " "), ranks);
  }
}

TEST(train_chain_program, terms_are_means_over_all_ranks_and_every_rank_knows_them) {
  const Whole one = train_whole<DeepTerms>(1, deep<DeepTerms>());
  for (const auto& [ranks, sets] :
       std::vector<std::pair<int, Sets>>{{2, pipeline(2)}, {4, pipeline(2)}, {4, pipeline(4)}}) {
    const Whole ran = train_whole<DeepTerms>(ranks, deep<DeepTerms>(sets));
    EXPECT_LT(relative_distance(named(ran.weights), named(one.weights)), 2e-6);
    for (const auto& of_rank : ran.reports)
      for (const char* term : {"all", "even"}) {
        ASSERT_EQ(of_rank.count(term), 1u) << term;
        for (size_t i = 0; i < 6; ++i)
          EXPECT_NEAR(of_rank.at(term)[i], one.reports[0].at(term)[i], 1e-5) << term;
      }
  }
}

TEST(train_chain_program, ranks_have_the_pieces_of_their_stages_alone) {
  const auto paths = [](const Sets& sets, int ranks) {
    return train_whole(ranks, deep(sets + Sets{"training.steps=1"})).paths;
  };
  const std::vector<std::string> front{"stem", "blocks.0", "blocks.1", "blocks.2"},
      back{"blocks.3", "blocks.4", "blocks.5", "top"};
  EXPECT_EQ(paths(pipeline(2), 2), (std::vector{front, back}));
  EXPECT_EQ(paths(pipeline(2, "zb_v"), 2), (std::vector<std::vector<std::string>>{
                                               {"stem", "blocks.0", "blocks.5", "top"},
                                               {"blocks.1", "blocks.2", "blocks.3", "blocks.4"}}));
  EXPECT_EQ(paths(pipeline(2) + Sets{"parallelism.stages=[7,1]"}, 2)[1],
            std::vector<std::string>{"top"});
}

TEST(train_chain_program, stages_have_equal_sums_of_costs) {
  struct Heavy : DeepProgram {
    Pieces make(const Config& c) override {
      Pieces all = DeepProgram::make(c);
      all.back().cost = 7;
      return all;
    }
  };
  EXPECT_EQ(train_whole<Heavy>(2, deep<Heavy>(pipeline(2))).paths[1],
            std::vector<std::string>{"top"});
  struct Wrong : DeepProgram {
    Pieces make(const Config& c) override {
      Pieces all = DeepProgram::make(c);
      all[2].cost = -1;
      return all;
    }
  };
  EXPECT_TRUE(has(refusal<Wrong>({}), "piece 'blocks.1' costs -1"));
}

TEST(train_chain_program, a_measured_division_is_that_of_the_slow_piece) {
  struct SlowImpl : torch::nn::Module {
    SlowImpl() : net(register_module("net", SmallNet(kDeepWidth, kDeepWidth, 20000))) {}
    at::Tensor forward(const at::Tensor& x) { return x + net(x); }
    SmallNet net;
  };
  struct Uneven : NormedProgram {
    Pieces make(const Config& c) override {
      Pieces all = NormedProgram::make(c);
      all.insert(all.begin() + 1, piece("slow", [] { return std::make_shared<SlowImpl>(); }));
      return all;
    }
  };
  const Whole ran = train_whole<Uneven>(
      2, deep<Uneven>(pipeline(2) + Sets{"parallelism.partition_method=measured"}));
  // The slow piece takes more than all others: it is the last of its stage or the first.
  EXPECT_EQ(ran.paths[0], (std::vector<std::string>{"stem", "slow"}));
  EXPECT_TRUE(std::any_of(ran.setup.begin(), ran.setup.end(), [](const std::string& line) {
    return has(line, "stages of 2, 3 pieces, which take ");
  })) << fmt::format("{}", fmt::join(ran.setup, "\n"));
}

TEST(train_chain_program, a_step_of_a_pipeline_loads_into_any_other_layout) {
  const PrivateFolder folder;
  const Sets saved = pipeline(2) + zero(3);
  train_whole(4, deep(saved + Sets{"training.steps=3"}), "", folder / "a");
  const Whole calm = train_whole(1, deep());
  for (const auto& [ranks, sets] : std::vector<std::pair<int, Sets>>{
           {1, {}}, {2, zero(2)}, {2, pipeline(2)}, {4, pipeline(4)}, {4, saved}}) {
    const Whole ran = train_whole(ranks, deep(sets), folder / "a");
    EXPECT_EQ(ran.reports[0].at("loss").size(), 3u);
    EXPECT_LT(relative_distance(named(ran.weights), named(calm.weights)), 2e-6)
        << fmt::format("{}", fmt::join(sets, " "));
  }
  train_whole(1, deep({"training.steps=3"}), "", folder / "b");
  const Whole ran = train_whole(2, deep(pipeline(2)), folder / "b");
  EXPECT_LT(relative_distance(named(ran.weights), named(calm.weights)), 2e-6);
}

TEST(train_chain_program, buffers_of_every_stage_are_saved_and_loaded) {
  const PrivateFolder folder;
  const auto buffers = [&](int ranks, const Sets& sets, const std::string& load,
                           const std::string& save) {
    std::map<std::string, at::Tensor> all;
    std::mutex mutex;
    const Config config = deep<NormedProgram>(sets);
    run_threads(ranks, [&](Group g) {
      NormedProgram program;
      Trainer trainer(make_trainer(program, config, g, {load.empty(), std::nullopt}));
      Trainer::Impl& t = trainer.impl();
      if (!load.empty()) t.load(load, nullptr);
      start_data(t.first(), config);
      for (int i = 0; load.empty() && i < 3; ++i) t.take_step({});
      if (!save.empty()) t.save(save, {});
      std::lock_guard lock(mutex);
      for (const auto& b : t.first().model->named_buffers())
        if (t.first().data_parallel().rank() == 0) all[b.key()] = b.value().clone();
    });
    return named(all);
  };
  const NamedTensors there = buffers(4, pipeline(2), "", folder / "a");
  EXPECT_EQ(there.size(), 6u) << "a mean, a variance and a count of each of two pieces";
  EXPECT_GT(there[1].second.abs().sum().item<double>(), 0);
  EXPECT_EQ(first_difference(buffers(1, {}, folder / "a", ""), there), "");
  EXPECT_EQ(first_difference(buffers(4, pipeline(4), folder / "a", ""), there), "");
}

TEST(train_chain_program, all_ranks_of_one_copy_draw_the_same_noise) {
  struct Noisy : DeepProgram {
    std::vector<double> drawn;
    void step(Trainer& t) override {
      Batch batch = t.next_batch();
      for (MicroBatch& b : batch) {
        b.input = b.input + 0.1 * torch::randn(b.input.sizes(), t.generator());
        drawn.push_back(b.input.sum().item<double>());
      }
      t.update("all", batch);
    }
  };
  std::vector<std::vector<double>> drawn(4);
  const Config config = deep<Noisy>(pipeline(2));
  run_threads(4, [&](Group g) {
    Noisy program;
    Trainer trainer(make_trainer(program, config, g));
    start_data(trainer.impl().first(), config);
    for (int i = 0; i < 2; ++i) trainer.impl().take_step({});
    drawn[static_cast<size_t>(g.rank())] = program.drawn;
  });
  EXPECT_EQ(drawn[0], drawn[2]);
  EXPECT_EQ(drawn[1], drawn[3]);
  EXPECT_NE(drawn[0], drawn[1]) << "two replicas";
}

TEST(train_chain_program, what_a_pipeline_cannot_have_is_said_in_a_sentence) {
  EXPECT_TRUE(has(refusal<DigitsProgram>(pipeline(2), 2),
                  "parallelism.pp 2 (--set): nothing says that the pieces of this program follow "
                  "each other. Derive it from trireme::ChainProgram"));
  EXPECT_TRUE(has(refusal<DeepProgram>(pipeline(9, "1f1b", 1), 9),
                  "the pieces of the program are the blocks and gradient_accumulation_steps are "
                  "the micro-batches: 9 stages, and the model has 8 blocks"));
  EXPECT_TRUE(
      has(refusal<DeepProgram>({"parallelism.tp=2"}, 2),
          "parallelism.tp 2 (--set): every rank would hold the pieces of this program whole"));
  struct Half : DeepProgram {
    std::vector<Update> updates(const Config&) override { return {{"top", {"top"}}}; }
  };
  EXPECT_TRUE(has(refusal<Half>(pipeline(2), 2), "one update of all pieces"));
  struct Own : DeepProgram {
    void step(Trainer& t) override {
      t.update("all", t.next_batch(), [](Network&, const MicroBatch&) -> LossTerms { return {}; });
    }
  };
  EXPECT_TRUE(has(refusal<Own>(pipeline(2), 2), "the loss of a pipeline is ChainProgram::loss_of"));
  struct Elsewhere : DeepProgram {
    void step(Trainer& t) override {
      at::NoGradGuard no_grad;
      t.net().run_list("stem", {t.next_batch()[0].input});
      t.net().run_list("top", {});
    }
  };
  const std::string text = refusal<Elsewhere>(pipeline(2), 2);
  EXPECT_TRUE(has(text, "on this rank: it has ")) << text;
  struct Fewer : DeepProgram {
    void step(Trainer& t) override { t.update("all", {t.next_batch()[0]}); }
  };
  EXPECT_TRUE(
      has(refusal<Fewer>(pipeline(2), 2), "a step of 1 micro-batches, and the pipeline is for 8"));
  struct NoData : DeepProgram {
    Sources data(const Config&) override { return {}; }
  };
  EXPECT_TRUE(has(refusal<NoData>(pipeline(2) + Sets{"parallelism.partition_method=measured"}, 2),
                  "parallelism.partition_method measures the pieces on training data"));
  struct Divided : DeepProgram {
    std::vector<Update> updates(const Config& c) override {
      std::vector<std::string> all;
      for (const Piece& p : make(c)) all.push_back(p.path);
      return {{"all", all, {"parallelism.pp=2"}}};
    }
  };
  EXPECT_TRUE(has(refusal<Divided>({"train_micro_batch_size_per_gpu=2"}, 2),
                  "'all' sets parallelism.pp, which all updates have in common"));
}

TEST(train_chain_program, a_rank_without_parameters_is_refused_and_a_stage_is_not) {
  struct Flat : torch::nn::Module {
    at::Tensor forward(const at::Tensor& x) { return x.flatten(1) * 2; }
  };
  struct Bare : DeepProgram {
    Pieces make(const Config& c) override {
      Pieces all = DeepProgram::make(c);
      all.insert(all.begin(), piece("flat", [] { return std::make_shared<Flat>(); }));
      return all;
    }
  };
  const Whole one = train_whole<Bare>(1, deep<Bare>({"train_micro_batch_size_per_gpu=2"}));
  const Sets alone = pipeline(2) + Sets{"parallelism.stages=[1,8]"};
  EXPECT_TRUE(has(refusal<Bare>(alone, 2), "has nothing to train but flat, without parameters"))
      << refusal<Bare>(alone, 2);
  for (const int stage : {0, 2, 3}) {
    const Whole two =
        train_whole<Bare>(4, deep<Bare>(pipeline(2, "interleaved_1f1b") + zero(stage) +
                                        Sets{"parallelism.stages=[1,3,3,2]"}));
    EXPECT_LT(relative_distance(named(two.weights), named(one.weights)), 2e-6) << stage;
  }
}

TEST(train_chain_program, an_exception_in_a_stage_ends_all_ranks_with_its_words) {
  struct Thrower : DeepProgram {
    Tensors run_piece(Network& net, const std::string& path, const Tensors& inputs,
                      const MicroBatch& b) override {
      if (path == "blocks.4") throw std::runtime_error("the fourth block is tired");
      return DeepProgram::run_piece(net, path, inputs, b);
    }
  };
  std::vector<std::string> said(4);
  const Config config = deep<Thrower>(pipeline(2));
  try {
    run_threads(4, [&](Group g) {
      try {
        run_program<Thrower>(config, g, 1);
      } catch (const std::exception& e) {
        said[static_cast<size_t>(g.rank())] = e.what();
        throw;
      }
    });
  } catch (const std::exception&) {
  }
  for (const std::string& text : said) EXPECT_TRUE(has(text, "the fourth block is tired")) << text;
}

}  // namespace chain_program_test
