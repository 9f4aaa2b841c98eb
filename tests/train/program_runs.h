// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/train/programs.h"
#include "tests/train/small_runs.h"
#include "trireme/base/error.h"
#include "trireme/train/program/make_trainer.h"

// Runs of programs on ranks that are threads, and what came of them.
namespace trireme::testing {

inline constexpr const char* kSmallProgram = R"({
  "train_batch_size": 16,
  "gradient_clipping": 0,
  "optimizer": {"type": "SGD", "params": {"lr": 0.05, "momentum": 0.9}},
  "training": {"steps": 6}
})";

template <class P>
Config config_for(const Sets& sets = {}, const std::string& text = kSmallProgram) {
  KeyTable table = KeyTable::built_in_copy();
  P().keys(table);
  return Config::from_text("program.json", text, sets,
                           std::make_shared<const KeyTable>(std::move(table)));
}

inline NamedTensors weights_in(Trainer::Impl& t) {
  NamedTensors all;
  for (auto& part : t.parts)
    for (const auto& [name, w] : weights_of(part->run)) all.emplace_back(name, w);
  if (t.fixed)
    for (const auto& item : t.fixed->named_parameters())
      all.emplace_back(item.key(), item.value().detach().clone());
  return all;
}

struct Ran {
  NamedTensors before, weights;
  std::vector<std::map<std::string, double>> losses;  // by step, by update
};

template <class P>
Ran run_program(const Config& config, Group g, int64_t steps) {
  P program;
  Trainer trainer(make_trainer(program, config, g));
  Trainer::Impl& t = trainer.impl();
  start_data(t.first(), config);
  Ran ran;
  ran.before = weights_in(t);
  for (int64_t i = 0; i < steps; ++i) {
    t.take_step({});
    ran.losses.emplace_back();
    for (const UpdateDone& u : t.done) ran.losses.back()[u.name] = u.report.loss;
  }
  ran.weights = weights_in(t);
  return ran;
}

/// Rank 0's, of n ranks that are threads.
template <class P>
Ran on_threads(int n, const Config& config, int64_t steps = 6) {
  Ran of_rank_0;
  run_threads(
      n,
      [&](Group g) {
        Ran ran = run_program<P>(config, g, steps);
        if (g.rank() == 0) of_rank_0 = std::move(ran);
      },
      std::chrono::seconds(60));
  return of_rank_0;
}

template <class P>
std::string refusal(const Sets& sets, int ranks = 1) {
  std::string text;
  try {
    on_threads<P>(ranks, config_for<P>(sets), 1);
  } catch (const UsageError& e) {
    text = e.what();
  }
  return text;
}

}  // namespace trireme::testing
