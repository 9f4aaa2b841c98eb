// SPDX-License-Identifier: Apache-2.0
// Programs whose layers are divided over ranks (parallelism.tp): the same training as on one rank
// that has all of them.
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/dropout.h>

#include <map>

#include "tests/support/refusals.h"
#include "tests/train/parallel_programs.h"
#include "tests/train/program_runs.h"
#include "tests/train/run_folders.h"
#include "tests/train/wholes.h"

namespace parallel_program_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr const char* kWordsConfig = R"({
  "train_batch_size": 16,
  "train_micro_batch_size_per_gpu": 2,
  "gradient_clipping": 0.3,
  "optimizer": {"type": "SGD", "params": {"lr": 0.2}},
  "training": {"steps": 20}
})";

Sets operator+(Sets a, const Sets& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const Sets kTwo = {"parallelism.tp=2"}, kFour = {"parallelism.tp=4"},
           kSequence = {"parallelism.sequence_parallel=true"}, kStages = {"parallelism.pp=2"};
Sets zero(int stage) { return {"zero_optimization.stage=" + std::to_string(stage)}; }

template <class P = WordsProgram>
Config words(const Sets& sets = {}) {
  return config_for<P>(sets, kWordsConfig);
}

struct Ran {
  NamedTensors before, weights, buffers;
  std::vector<std::map<std::string, std::vector<double>>> reports;  // by rank
  int64_t parameters = 0;
};

ParameterLayouts layouts_in(Trainer::Impl& t) {
  ParameterLayouts all = t.fixed_layouts;
  for (auto& part : t.parts) all.insert(part->run.layouts.begin(), part->run.layouts.end());
  return all;
}

NamedTensors buffers_in(Trainer::Impl& t) {
  NamedTensors all;
  for (auto& part : t.parts)
    for (const auto& b : part->run.model->named_buffers())
      all.emplace_back(b.key(), b.value().clone());
  return all;
}

template <class P = WordsProgram>
Ran train_on(int ranks, const Config& config, const std::string& load = "",
             const std::string& save = "") {
  Ran ran;
  ran.reports.resize(static_cast<size_t>(ranks));
  Wholes before, after;
  run_threads(
      ranks,
      [&](Group g) {
        P program;
        Trainer trainer(make_trainer(program, config, g, {load.empty(), std::nullopt}));
        Trainer::Impl& t = trainer.impl();
        before.add(weights_in(t), layouts_in(t));
        if (!load.empty()) t.load(load, nullptr);
        start_data(t.first(), config);
        std::map<std::string, std::vector<double>> reports;
        while (t.step < trainer.steps()) {
          t.take_step({});
          for (const UpdateDone& done : t.done) {
            reports[done.name + " loss"].push_back(done.report.loss);
            reports[done.name + " norm"].push_back(done.report.grad_norm);
          }
        }
        for (const auto& sum : t.evaluate()) reports[sum.name] = {sum.sum, sum.weight};
        if (!save.empty()) t.save(save, {});
        after.add(weights_in(t), layouts_in(t));
        ran.reports[static_cast<size_t>(g.rank())] = reports;
        if (g.rank() == ranks - 1) {
          ran.buffers = buffers_in(t);
          ran.parameters = t.first().parameters;
        }
      },
      std::chrono::seconds(90));
  ran.before = before.all();
  ran.weights = after.all();
  return ran;
}

void expect_same_run(const Ran& ran, const Ran& one, double tolerance, const std::string& what) {
  EXPECT_LT(relative_distance(ran.weights, one.weights), tolerance) << what;
  EXPECT_EQ(ran.parameters, one.parameters) << what;
  for (const auto& of_rank : ran.reports) {
    EXPECT_EQ(of_rank, ran.reports[0]) << what;
    for (const auto& [name, values] : one.reports[0]) {
      ASSERT_EQ(of_rank.at(name).size(), values.size()) << what << " " << name;
      for (size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(of_rank.at(name)[i] / values[i], 1, 10 * tolerance)
            << what << " " << name << " " << i;
    }
  }
}

std::string named(int ranks, const Sets& sets) {
  return fmt::format("{} on {}", fmt::join(sets, " "), ranks);
}

/// Each rank's error, "" where there was none.
template <class P>
std::vector<std::string> said_by(int ranks, const Config& config) {
  std::vector<std::string> said(static_cast<size_t>(ranks));
  try {
    run_threads(
        ranks,
        [&](Group g) {
          try {
            run_program<P>(config, g, 2);
          } catch (const std::exception& e) {
            said[static_cast<size_t>(g.rank())] = e.what();
            throw;
          }
        },
        std::chrono::seconds(60));
  } catch (const std::exception&) {
  }
  return said;
}

template <class P>
void expect_said_by_all(int ranks, const Sets& sets, const std::string& part) {
  for (const std::string& text : said_by<P>(ranks, words<P>(sets)))
    EXPECT_TRUE(has(text, part)) << named(ranks, sets) << ": " << text;
}

}  // namespace

TEST(train_parallel_program, twenty_clipped_steps_are_those_of_one_rank) {
  const Ran one = train_on(1, words());
  for (const double norm : one.reports[0].at("all norm")) EXPECT_GT(norm, 0.3) << "clipping bites";
  for (const auto& [ranks, sets] : std::vector<std::pair<int, Sets>>{
           {2, kTwo},
           {2, kTwo + kSequence},
           {4, kFour},
           {4, kFour + kSequence},
           {4, kTwo + zero(0)},
           {4, kTwo + zero(1) + kSequence},
           {4, kTwo + zero(2)},
           {4, kTwo + zero(3)},
           {4, kTwo + zero(3) + kSequence},
           {4, kTwo + kStages},
           {4, kTwo + kStages + kSequence + Sets{"parallelism.schedule=zb_h1"}},
           {4, kTwo + kStages + Sets{"parallelism.schedule=zb_v"}},
           {4, kTwo + kStages + Sets{"parallelism.partition_method=measured"}},
           {8, kTwo + kStages + kSequence + zero(2)},
           {8, kTwo + kStages + zero(3)}})
    expect_same_run(train_on(ranks, words(sets)), one, 1e-5, named(ranks, sets));
}

TEST(train_parallel_program, parameters_begin_with_the_bits_of_one_rank) {
  const Sets none = {"training.steps=1"};
  const NamedTensors one = train_on(1, words(none)).before;
  for (const auto& [name, w] : one) EXPECT_FALSE(w.isnan().any().item<bool>()) << name;
  for (const auto& [ranks, sets] :
       std::vector<std::pair<int, Sets>>{{2, kTwo}, {4, kFour}, {4, kTwo + kStages}, {4, kTwo}})
    EXPECT_EQ(first_difference(train_on(ranks, words(none + sets)).before, one), "")
        << named(ranks, sets);
}

TEST(train_parallel_program, half_precision_trains_about_the_same) {
  const Ran one = train_on(1, words());
  for (const char* key : {"bf16.enabled=true", "torch_autocast.enabled=true"})
    EXPECT_LT(
        relative_distance(train_on(2, words(kTwo + kSequence + Sets{key})).weights, one.weights),
        0.1)
        << key;
}

TEST(train_parallel_program, reproducible_mode_gives_the_same_bits_for_one_number_of_parts) {
  const Sets same =
      kTwo + Sets{"training.reproducible=true", "training.leaves=8", "training.steps=6"};
  const Ran two = train_on(2, words(same));
  for (const auto& [ranks, sets] : std::vector<std::pair<int, Sets>>{
           {4, same}, {4, same + zero(2)}, {8, same + zero(3)}, {4, same + kStages}})
    EXPECT_EQ(first_difference(train_on(ranks, words(sets)).weights, two.weights), "")
        << named(ranks, sets);
}

TEST(train_parallel_program, a_step_of_one_layout_goes_on_under_any_other) {
  const Sets adam = {"optimizer.type=AdamW", "optimizer.params.lr=1e-3", "training.steps=8"};
  const Sets half = adam + Sets{"training.steps=4"};
  const PrivateFolder folder;
  train_on(8, words(half + kTwo + kStages + kSequence + zero(2)), "", folder / "a");
  train_on(1, words(half), "", folder / "b");
  const Ran calm = train_on(1, words(adam));
  for (const auto& [ranks, sets] : std::vector<std::pair<int, Sets>>{{1, {}},
                                                                     {2, kTwo},
                                                                     {4, kFour + kSequence},
                                                                     {4, kTwo + zero(3)},
                                                                     {2, kStages},
                                                                     {2, zero(1)},
                                                                     {4, kTwo + kStages + zero(1)}})
    for (const char* step : {"a", "b"}) {
      const Ran ran = train_on(ranks, words(adam + sets), folder / step);
      EXPECT_EQ(ran.reports[0].at("all loss").size(), 4u);
      EXPECT_LT(relative_distance(ran.weights, calm.weights), 2e-4) << step << named(ranks, sets);
    }
}

TEST(train_parallel_program, libtorchs_own_layers_stand_beside_divided_ones) {
  const Sets few = {"training.steps=6", "train_micro_batch_size_per_gpu=16"};
  const PrivateFolder folder;
  const Config alone = words<MixedProgram>(few);
  const Ran one = train_on<MixedProgram>(1, alone, "", folder / "one");
  for (const auto& [ranks, sets] : std::vector<std::pair<int, Sets>>{{2, kTwo}, {4, kFour}}) {
    const Ran ran = train_on<MixedProgram>(ranks, words<MixedProgram>(few + sets), "",
                                           folder / named(ranks, sets));
    EXPECT_EQ(first_difference(ran.before, one.before), "");
    expect_same_run(ran, one, 2e-5, named(ranks, sets));
    EXPECT_LT(relative_distance(ran.buffers, one.buffers), 2e-5);
    // What is not trained is saved and loaded as parts, too.
    const Ran again = train_on<MixedProgram>(1, alone, folder / named(ranks, sets));
    EXPECT_EQ(first_difference(again.weights, ran.weights), "");
    EXPECT_EQ(first_difference(again.buffers, ran.buffers), "");
    const Ran back = train_on<MixedProgram>(ranks, words<MixedProgram>(few + sets), folder / "one");
    EXPECT_EQ(first_difference(back.weights, one.weights), "");
  }
}

TEST(train_parallel_program, what_every_rank_holds_takes_the_first_ranks_values) {
  struct Shifted : MixedProgram {
    Pieces make_divided(const Config& c, const TensorParallel& tp) override {
      Pieces all = MixedProgram::make_divided(c, tp);
      all.back() = piece("top", [rank = tp.rank()] {
        torch::nn::Linear top(21, 10);
        at::NoGradGuard no_grad;
        top->weight.add_(rank);
        return top;
      });
      return all;
    }
  };
  // Wholes::add() compares what ranks hold alike.
  const Ran ran = train_on<Shifted>(2, words<Shifted>(kTwo + Sets{"training.steps=2"}));
  const Ran one = train_on<Shifted>(1, words<Shifted>({"training.steps=2"}));
  EXPECT_EQ(first_difference(ran.before, one.before), "");
}

TEST(train_parallel_program, replicas_are_compared_and_a_stock_norm_over_positions_is_found) {
  const Sets check = {"training.check_replicas=1", "training.steps=3"};
  train_on(4, words(check + kTwo + kSequence));
  struct Stock : WordsProgram {
    Pieces make_divided(const Config& c, const TensorParallel& tp) override {
      Pieces all = WordsProgram::make_divided(c, tp);
      all.insert(all.begin() + 1, piece("stock", [] {
                   return torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWide}));
                 }));
      return all;
    }
    Tensors run_piece(Network& net, const std::string& path, const Tensors& inputs,
                      const MicroBatch& b) override {
      return path == "stock" ? net.run_list(path, inputs)
                             : WordsProgram::run_piece(net, path, inputs, b);
    }
  };
  expect_said_by_all<Stock>(2, check + kTwo + kSequence,
                            "parameter 'stock.weight' should be equal on the ranks of axis tp");
  EXPECT_EQ(said_by<Stock>(2, words<Stock>(check + kTwo))[0], "");
}

TEST(train_parallel_program, a_program_without_divided_layers_is_refused) {
  expect_said_by_all<DigitsProgram>(
      2, kTwo,
      "parallelism.tp 2 (--set): every rank would hold the pieces of this program whole. Override "
      "Program::make_divided()");
  struct Blind : WordsProgram {
    Pieces make_divided(const Config& c, const TensorParallel&) override {
      return WordsProgram::make_divided(c, TensorParallel::alone());
    }
  };
  expect_said_by_all<Blind>(2, kTwo, "Make its layer with the TensorParallel that");
  struct Stock : DigitsProgram {
    Pieces make_divided(const Config& c, const TensorParallel&) override { return make(c); }
  };
  expect_said_by_all<Stock>(2, kTwo, "no parameter of the model is divided over ranks");
  struct Nothing : Program {
    LossTerms loss(Network&, const MicroBatch&) override { return {}; }
  };
  expect_said_by_all<Nothing>(1, {}, "Program::make(): override it, or make_divided()");
  expect_said_by_all<WordsProgram>(3, {"parallelism.tp=3", "train_batch_size=16"},
                                   "4 query heads do not divide among 3 tensor-parallel ranks");
  for (const char* type : {"Lamb", "Lars"})
    expect_said_by_all<WordsProgram>(2, kTwo + Sets{std::string("optimizer.type=") + type},
                                     "tensor-parallel ranks of this model share key/value heads");
}

TEST(train_parallel_program, one_update_may_have_no_divided_layers) {
  // As a GAN with a small critic.
  struct Critic : MixedProgram {
    std::vector<Update> updates(const Config&) override {
      return {{"generator", {"body", "head"}, {}}, {"critic", {"top"}, {}}};
    }
    void step(Trainer& t) override {
      const Batch batch = t.next_batch();
      t.update("generator", batch);
      t.update("critic", batch);
    }
  };
  const Sets few{"training.steps=4"};
  const Ran one = train_on<Critic>(1, words<Critic>(few));
  for (const auto& [ranks, sets] :
       std::vector<std::pair<int, Sets>>{{2, kTwo}, {4, kTwo + zero(1)}, {4, kTwo + zero(3)}}) {
    const Ran ran = train_on<Critic>(ranks, words<Critic>(few + sets));
    // Running statistics are those of each rank's own samples.
    EXPECT_LT(relative_distance(ran.weights, one.weights), 2e-5) << named(ranks, sets);
  }
  struct OwnStage : Critic {
    std::vector<Update> updates(const Config& c) override {
      auto all = Critic::updates(c);
      all[0].sets = {"zero_optimization.stage=2"};
      return all;
    }
  };
  expect_said_by_all<OwnStage>(4, kTwo,
                               "'generator' shards over 2 ranks and the configuration over 1");
}

TEST(train_parallel_program, batches_that_a_program_makes_itself_are_the_same_on_ranks_of_tp) {
  struct ByRank : WordsProgram {
    void step(Trainer& t) override {
      const int64_t first = 8 * (good ? t.data_parallel().rank() : t.group().rank());
      Batch batch;
      for (int64_t id = first; id < first + 8; id += 2)
        batch.push_back(Sequences(256, 0).get({id, id + 1}));
      t.update("all", batch);
    }
    bool good = false;
  };
  struct ByPlace : ByRank {
    ByPlace() { good = true; }
  };
  const Sets few{"training.steps=2", "train_batch_size=16"};
  expect_said_by_all<ByRank>(4, kTwo + few, "were given different inputs");
  EXPECT_EQ(said_by<ByPlace>(4, words<ByPlace>(kTwo + few))[0], "");
}

TEST(train_parallel_program, a_piece_that_is_torchs_dropout_is_refused) {
  struct Dropping : WordsProgram {
    Pieces make_divided(const Config& c, const TensorParallel& tp) override {
      Pieces all = WordsProgram::make_divided(c, tp);
      all.insert(all.begin() + 1, piece("drop", [] { return torch::nn::Dropout(0.1); }));
      return all;
    }
  };
  expect_said_by_all<Dropping>(2, kTwo, "piece 'drop': it is torch's dropout");
}

TEST(train_parallel_program, other_layers_on_a_rank_are_one_error_on_all) {
  struct Wider : WordsProgram {
    Pieces make_divided(const Config& c, const TensorParallel& tp) override {
      Pieces all = WordsProgram::make_divided(c, tp);
      ParallelBlockOptions options = block();
      if (tp.rank() == 1) options.hidden = 40;
      all[2] = piece("blocks.1", [tp, options] { return ToldBlock(tp, options); });
      return all;
    }
  };
  for (const auto& [ranks, sets] : std::vector<std::pair<int, Sets>>{
           {2, kTwo}, {4, kTwo + zero(3)}, {4, kTwo + kStages}, {4, kTwo + kSequence}})
    expect_said_by_all<Wider>(ranks, sets, "piece 'blocks.1': ranks ");
  struct Thrower : WordsProgram {
    Pieces make_divided(const Config& c, const TensorParallel& tp) override {
      Pieces all = WordsProgram::make_divided(c, tp);
      all[3] = piece("blocks.2", [tp, options = block()] {
        if (tp.rank() == 1) throw std::runtime_error("no timber for this block");
        return ToldBlock(tp, options);
      });
      return all;
    }
  };
  for (const auto& [ranks, sets] :
       std::vector<std::pair<int, Sets>>{{2, kTwo}, {4, kTwo + zero(3)}, {4, kTwo + kStages}})
    expect_said_by_all<Thrower>(ranks, sets, "no timber for this block");
}

TEST(train_parallel_program, parts_that_were_drawn_from_the_same_numbers_are_refused) {
  struct Drawn : MixedProgram {
    Pieces make_divided(const Config& c, const TensorParallel& tp) override {
      Pieces all = MixedProgram::make_divided(c, tp);
      all[2] = piece("head", [tp] {
        auto head = std::make_shared<ParallelGeluMlp>(tp, 21, 10);
        torch::nn::init::xavier_uniform_(head->up->weight);
        return head;
      });
      return all;
    }
  };
  expect_said_by_all<Drawn>(
      2, kTwo,
      "piece 'head': ranks 0 and 1 hold different parts of parameter 'up.weight', and drew the "
      "same numbers for both");
  EXPECT_EQ(said_by<Drawn>(1, words<Drawn>())[0], "");
}

TEST(train_parallel_program, an_exception_in_a_piece_ends_all_ranks_with_its_words) {
  struct Thrower : WordsProgram {
    int64_t calls = 0;
    Tensors run_piece(Network& net, const std::string& path, const Tensors& inputs,
                      const MicroBatch& b) override {
      if (path == "blocks.2" && tp_->rank() == 1 && ++calls == 3)
        throw std::runtime_error("the second block is tired");
      return WordsProgram::run_piece(net, path, inputs, b);
    }
  };
  for (const auto& [ranks, sets] :
       std::vector<std::pair<int, Sets>>{{2, kTwo}, {4, kTwo}, {4, kTwo + kStages}})
    expect_said_by_all<Thrower>(ranks, sets, "the second block is tired");
  // Before the forward, where only replicas wait for each other.
  struct Weigher : WordsProgram {
    int64_t calls = 0;
    TermWeights weights(const MicroBatch&) override {
      if (++calls == 5 && tp_->rank() == 1) throw std::runtime_error("the scales are broken");
      return {};
    }
  };
  for (const auto& [ranks, sets] : std::vector<std::pair<int, Sets>>{
           {2, kTwo}, {4, kTwo}, {4, kTwo + zero(3)}, {4, kTwo + kStages}})
    expect_said_by_all<Weigher>(ranks, sets, "the scales are broken");
}

}  // namespace parallel_program_test
