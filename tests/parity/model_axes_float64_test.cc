// SPDX-License-Identifier: Apache-2.0
// Divided models in float64 against one process, on micro-batches whose lengths and weights differ:
// each gradient of the first step, then losses, norms and weights of 20 clipped steps. What float32
// would call rounding shows here.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <mutex>

#include "tests/parity/model_axes_rows.h"
#include "trireme/base/check.h"
#include "trireme/models/gpt_stages.h"
#include "trireme/tensor/parameter_layout.h"
#include "trireme/train/build/run_parts.h"
#include "trireme/train/model_axes/owned_places.h"
#include "trireme/train/setup/compute.h"

namespace model_axes_float64_test {

using namespace trireme;
using namespace trireme::testing;
using namespace trireme::testing::model_axes;

namespace {

constexpr double kNear = 1e-10;
using Whole = std::map<std::string, at::Tensor>;

/// The parts of a run whose parameters are in float64 before ranks share or shard them.
RunParts in_float64(const Config& config) {
  RunParts parts = built_in_parts(config);
  parts.make_model = [make = parts.make_model](const DeviceMesh& mesh, const UnitMade& made) {
    UnitMade wide;
    if (made)
      wide = [made](int64_t unit, const std::string& path, torch::nn::Module& module) {
        cast_parameters(module, at::kDouble);
        made(unit, path, module);
      };
    auto model = make(mesh, wide);
    cast_parameters(*model, at::kDouble);
    return model;
  };
  return parts;
}

struct Result {
  Whole gradients, weights;  // of one process; the gradients are those of the first step
  std::vector<double> losses, norms;
};

/// The mean gradients of the step that was just done, or what this rank owns of them (ZeRO): flat,
/// with the place in this rank's part of the parameter at which each begins.
std::map<std::string, std::pair<int64_t, at::Tensor>> gradients_here(trireme::Run& run,
                                                                     int64_t weight) {
  std::map<std::string, std::pair<int64_t, at::Tensor>> all;
  const auto begins = owned_places(*run.gradients);
  for (const auto& [name, p] : run.gradients->owned())
    if (p.numel() > 0)
      all[name] = {begins.at(name), p.grad().reshape({-1}) / static_cast<double>(weight)};
  return all;
}

at::Tensor part_here(const trireme::Run& run, const std::string& name, const at::Tensor& whole) {
  const auto layout = run.layouts.find(name);
  return layout == run.layouts.end() ? whole : part_of(whole, layout->second);
}

/// What one process calls it: a rank that has both ends of a tied head holds it twice.
std::string in_one_process(const std::string& name) {
  return name == std::string(kCopyOfEmbedding) + ".weight" ? "wte.weight" : name;
}

void expect_tensor_near(const at::Tensor& got, const at::Tensor& want, const std::string& what) {
  trireme::check<Error>(got.scalar_type() == at::kDouble && got.sizes() == want.sizes(),
                        "{} is not in float64, or has other sizes", what);
  const double off = (got - want).norm().item<double>(), of = want.norm().item<double>();
  trireme::check<Error>(off <= kNear * of, "{} is off by {} of {}", what, off, of);
}

/// Trains; `want`: what one process came to, with which each rank compares what it holds.
Result train(int ranks, const Config& config, const Result* want) {
  Result result;
  run_threads(
      ranks,
      [&](Group g) {
        trireme::Run run = build_run(config, g, in_float64(config));
        start_data(run, config);
        for (int64_t i = 0; i < kSteps; ++i) {
          const StepReport r = train_step(run);
          if (i == 0) {
            const auto here = gradients_here(run, r.weight);
            trireme::check<Error>(!here.empty(), "rank {} owns no gradient", g.rank());
            for (const auto& [name, flat] : here) {
              const auto& [begin, gradient] = flat;
              if (want)
                expect_tensor_near(gradient,
                                   part_here(run, name, want->gradients.at(in_one_process(name)))
                                       .reshape({-1})
                                       .narrow(0, begin, gradient.numel()),
                                   fmt::format("rank {}: the gradient of {} from element {}",
                                               g.rank(), name, begin));
              else
                result.gradients[name] =
                    gradient.reshape(run.model->named_parameters()[name].sizes());
            }
          }
          if (g.rank() > 0) continue;
          result.losses.push_back(r.loss);
          result.norms.push_back(r.grad_norm);
        }
        for (const auto& [name, weight] : weights_of(run)) {
          if (want)
            expect_tensor_near(weight, part_here(run, name, want->weights.at(in_one_process(name))),
                               fmt::format("rank {}: {}", g.rank(), name));
          else
            result.weights[name] = weight;
        }
      },
      std::chrono::seconds(60));
  return result;
}

std::vector<Row> rows() {
  const std::string zero = "zero_optimization.stage=", schedule = "parallelism.schedule=";
  const std::string whole_units = "zero_optimization.stage3_param_persistence_threshold=0";
  const std::string sequence = "parallelism.sequence_parallel=true";
  const std::string again = "training.recompute_every=1", tied = "model.tied_head=true";
  std::vector<Row> rows = {
      {2, 1, 1, {zero + "3", whole_units}},
      {1, 2, 1, {again}, {tied}},
      {1, 3, 1, {sequence}},
      {2, 2, 1, {zero + "1", sequence}},
      {2, 2, 1, {zero + "2"}, {tied}},
      {2, 2, 1, {zero + "3", whole_units, sequence, again}, {tied}},
      {1, 1, 2, {schedule + "gpipe"}},
      {1, 1, 4, {again}},
      {1, 1, 2, {schedule + "interleaved_1f1b"}, {tied}},
      {1, 1, 2, {schedule + "breadth_first", "parallelism.virtual_stages=2"}},
      {1, 1, 2, {schedule + "zb_h1"}, {tied}},
      {1, 1, 2, {schedule + "zb_v", again}},
      // Both ends of a tied head on one rank.
      {1, 1, 2, {schedule + "zb_v"}, {tied}},
      {2, 1, 2, {zero + "2", schedule + "dualpipe_v"}, {tied}},
      {2, 2, 2, {zero + "3", whole_units, sequence, schedule + "zb_v"}, {tied}},
      {2, 1, 2, {zero + "1"}, {tied}},
      {2, 1, 2, {zero + "2", schedule + "zb_h1"}},
      {2, 1, 2, {zero + "3", whole_units, schedule + "interleaved_1f1b"}},
      {2, 2, 2, {schedule + "interleaved_1f1b", sequence, again}, {tied}},
      {2, 2, 2, {zero + "3", whole_units, sequence, schedule + "zb_h1"}, {tied}},
  };
  for (Row& row : rows) row.of_both.push_back("data.type=documents");
  return rows;
}

/// Ranks that have parts of the positions: tokens that count lie on some of them more than on
/// others, and on some not at all.
std::vector<Row> context_rows() {
  const std::string zero = "zero_optimization.stage=", schedule = "parallelism.schedule=";
  const std::string whole_units = "zero_optimization.stage3_param_persistence_threshold=0";
  const std::string sequence = "parallelism.sequence_parallel=true";
  const std::string again = "training.recompute_every=1", tied = "model.tied_head=true";
  const std::string gather = "parallelism.cp_method=all_gather",
                    heads = "parallelism.cp_method=all_to_all",
                    in_order = "parallelism.cp_balance=none", alike = "training.check_replicas=1";
  const auto row = [](int dp, int tp, int pp, int cp, Sets sets, Sets of_both = {}) {
    Row r{dp, tp, pp, std::move(sets), std::move(of_both)};
    r.of_both.push_back("data.type=documents");
    r.cp = cp;
    return r;
  };
  const std::string packed = "data.end_of_document=10";
  std::vector<Row> rows = {
      row(1, 1, 1, 2, {}),
      row(1, 1, 1, 2, {gather, in_order, again}, {tied}),
      row(1, 1, 1, 3, {in_order}),
      row(1, 1, 1, 4, {heads, alike}),
      row(2, 1, 1, 2, {heads, zero + "1"}, {tied}),
      row(2, 1, 1, 2, {zero + "2", alike, again}),
      row(1, 1, 1, 2, {zero + "3", whole_units, gather}),
      row(2, 1, 1, 2, {zero + "3", whole_units, "parallelism.dp_shard=1", alike}),
      row(1, 2, 1, 2, {sequence, again}, {tied}),
      row(1, 2, 1, 2, {gather}),
      row(1, 2, 1, 2, {heads, sequence, zero + "1"}),
      row(2, 2, 1, 2, {zero + "3", whole_units, sequence}, {tied}),
      row(1, 1, 2, 2, {alike}, {tied}),
      row(1, 1, 2, 2, {schedule + "zb_h1", heads, again}),
      row(2, 1, 2, 2, {zero + "2", gather, schedule + "interleaved_1f1b"}, {tied}),
      row(1, 2, 2, 2, {zero + "3", whole_units, sequence, schedule + "zb_v"}, {tied}),
      row(1, 2, 2, 2, {in_order, alike}),
  };
  for (const std::string& method : {std::string("parallelism.cp_method=ring"), gather, heads}) {
    Row r = row(1, 1, 1, 2, {method});
    r.of_both = {packed};  // several documents in a row of the corpus
    rows.push_back(r);
  }
  if (!std::getenv("TRIREME_SOAK")) return rows;
  int number = 0;
  for (int dp = 1; dp <= 8; ++dp)
    for (int tp = 1; dp * tp <= 8; ++tp)
      for (int pp = 1; dp * tp * pp <= 8; ++pp)
        for (int cp = 2; dp * tp * pp * cp <= 8; ++cp)
          for (const std::string& method :
               {std::string("parallelism.cp_method=ring"), gather, heads}) {
            Sets sets = {method, ++number % 2 == 0 ? in_order : "parallelism.cp_balance=head_tail",
                         zero + std::to_string(number % 4)};
            if (tp > 1 && number % 3 > 0) sets.push_back(sequence);
            rows.push_back(row(dp, tp, pp, cp, std::move(sets)));
          }
  return rows;
}

class parity_model_axes_float64 : public ::testing::TestWithParam<Row> {};

TEST_P(parity_model_axes_float64, gradients_and_20_steps_are_those_of_one_process) {
  const Row row = GetParam();
  const Folders folders;
  const Result want = train(1, plain_config(row, folders), nullptr);
  expect_a_reference(want.losses, want.norms);
  const Result got = train(row.ranks(), divided_config(row, folders), &want);
  expect_near(got.losses, want.losses, kNear);
  expect_near(got.norms, want.norms, kNear);
}

INSTANTIATE_TEST_SUITE_P(rows, parity_model_axes_float64, ::testing::ValuesIn(rows()), row_name);
INSTANTIATE_TEST_SUITE_P(context, parity_model_axes_float64, ::testing::ValuesIn(context_rows()),
                         row_name);

}  // namespace
}  // namespace model_axes_float64_test
