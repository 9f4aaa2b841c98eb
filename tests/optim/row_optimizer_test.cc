// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/rows/row_optimizer.h"

#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tests/optim/row_makers.h"
#include "tests/optim/state_visitors.h"
#include "tests/support/refusals.h"
#include "trireme/optim/optimizer.h"

namespace row_optimizer_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

at::Tensor numbers(std::vector<int64_t> of) { return torch::tensor(of, torch::kLong); }

at::Tensor some_rows(int64_t of, double part) {
  return torch::rand({of}).lt(part).nonzero().view({-1});
}

at::Tensor sparse(const at::Tensor& rows, const at::Tensor& gradients, const at::Tensor& like) {
  return torch::sparse_coo_tensor(rows.unsqueeze(0), gradients, like.sizes());
}

/// A state with the slices that it was shown in.
struct Slices : Collect {
  using Collect::tensor;
  void tensor(const Slice& slice, at::Tensor local) override {
    slices[slice.name] = slice;
    Collect::tensor(slice, local);
  }
  std::map<std::string, Slice> slices;
};

}  // namespace

TEST(optim_row_optimizer, a_step_of_all_rows_has_the_bits_of_the_dense_optimizer) {
  for (const auto type : {torch::kFloat, torch::kDouble})
    for (const RowMaker& m : row_makers()) {
      torch::manual_seed(5);
      const at::Tensor start = torch::randn({9, 2, 7}, type);
      const at::Tensor table = start.clone(), dense = start.clone().requires_grad_();
      auto rows = m.make({"w", table});
      auto all = m.dense({{"w", dense}});
      for (int step = 0; step < 7; ++step) {
        const at::Tensor g = torch::randn_like(table);
        dense.mutable_grad() = g.clone();
        all->step(0.01, 0.5);
        rows->step(torch::arange(9, torch::kLong), g, 0.01, 0.5);
        ASSERT_TRUE(table.equal(dense.detach())) << m.name << " step " << step;
      }
      Collect ours, theirs;
      rows->state(ours);
      all->state(theirs);
      EXPECT_EQ(ours.tensors.size(), theirs.tensors.size()) << m.name;
      for (const auto& [key, t] : theirs.tensors)
        EXPECT_TRUE(ours.tensors.at(key).equal(t)) << m.name << " " << key;
      EXPECT_EQ(ours.values.at("optim.steps.w"), 7) << m.name;
    }
}

TEST(optim_row_optimizer, rows_that_are_passed_over_keep_their_weights_and_their_state) {
  for (const RowMaker& m : row_makers()) {
    torch::manual_seed(5);
    const at::Tensor table = torch::randn({20, 5});
    auto optimizer = m.make({"w", table});
    for (int step = 0; step < 12; ++step) {
      Collect before, after;
      const at::Tensor was = table.clone(), rows = some_rows(20, 0.3);
      optimizer->state(before);
      optimizer->step(rows, torch::randn({rows.size(0), 5}), 0.1);
      optimizer->state(after);
      at::Tensor others = torch::ones({20}, torch::kBool);
      others.index_fill_(0, rows, false);
      const auto kept = [&](const at::Tensor& a, const at::Tensor& b) {
        return a.index({others}).equal(b.index({others}));
      };
      EXPECT_TRUE(kept(table, was)) << m.name;
      for (const auto& [key, t] : before.tensors)
        EXPECT_TRUE(kept(after.tensors.at(key), t)) << m.name << " " << key;
      EXPECT_EQ(table.equal(was), rows.size(0) == 0) << m.name;
    }
    EXPECT_EQ(optimizer->steps(), 12);
  }
}

TEST(optim_row_optimizer, adagrad_and_plain_sgd_are_torchs_with_sparse_gradients) {
  torch::manual_seed(9);
  const at::Tensor start = torch::randn({40, 6});
  const at::Tensor ours = start.clone(), theirs = start.clone().requires_grad_();
  const at::Tensor plain = start.clone(), torchs = start.clone().requires_grad_();
  auto adagrad = make_row_adagrad({"w", ours}, {.lr_decay = 0.1, .initial_accumulator_value = 0.2});
  torch::optim::Adagrad reference(
      {theirs}, torch::optim::AdagradOptions(0.05).lr_decay(0.1).initial_accumulator_value(0.2));
  auto sgd = make_row_sgd({"w", plain});
  torch::optim::SGD sgd_reference({torchs}, torch::optim::SGDOptions(0.05));
  for (int step = 0; step < 60; ++step) {
    // As a batch names them: with duplicates, in no order.
    const at::Tensor rows = torch::randint(40, {15}, torch::kLong), g = torch::randn({15, 6});
    const RowGradients merged = merge_rows({{rows, g}});
    theirs.mutable_grad() = sparse(rows, g, start);
    torchs.mutable_grad() = sparse(rows, g, start);
    adagrad->step(merged.rows, merged.gradients, 0.05);
    reference.step();
    sgd->step(merged.rows, merged.gradients, 0.05);
    sgd_reference.step();
  }
  EXPECT_LT((ours - theirs).abs().max().item<double>(), 1e-6);
  EXPECT_LT((plain - torchs).abs().max().item<double>(), 1e-6);
}

TEST(optim_row_optimizer, a_step_without_rows_is_a_step) {
  const at::Tensor one = torch::ones({3, 2}), two = one.clone();
  auto often = make_row_adamw({"w", one}), once = make_row_adamw({"w", two});
  for (int i = 0; i < 4; ++i) often->step(numbers({}), torch::empty({0, 2}), 0.1);
  EXPECT_TRUE(one.equal(torch::ones({3, 2})));
  EXPECT_EQ(often->steps(), 4);
  often->step(numbers({1}), torch::full({1, 2}, 0.5), 0.1);
  once->step(numbers({1}), torch::full({1, 2}, 0.5), 0.1);
  // The fifth step's corrections: m is 0.05 of 1 - 0.9^5, v is 0.00025 of 1 - 0.999^5.
  const double m = 0.05 / (1 - std::pow(0.9, 5)), v = 0.00025 / (1 - std::pow(0.999, 5));
  EXPECT_NEAR(one[1][0].item<double>(), 1 - 0.1 * 0.01 - 0.1 * m / (std::sqrt(v) + 1e-8), 1e-6);
  EXPECT_NEAR(two[1][0].item<double>(), 1 - 0.1 * 0.01 - 0.1, 1e-6);
  // A part of a table without a row, and rows without an element.
  at::Tensor none = torch::empty({0, 4}), narrow = torch::empty({4, 0});
  make_row_sgd({"w", none, 7, 7})->step(numbers({}), torch::empty({0, 4}), 0.1);
  make_row_sgd({"w", narrow})->step(numbers({2}), torch::empty({1, 0}), 0.1);
}

TEST(optim_row_optimizer, state_is_boxes_of_the_whole_table_and_goes_on_in_other_parts) {
  for (const RowMaker& m : row_makers()) {
    torch::manual_seed(2);
    const at::Tensor whole = torch::randn({10, 3});
    auto optimizer = m.make({"w", whole});
    for (int i = 0; i < 3; ++i) optimizer->step(numbers({1, 4, 8}), torch::randn({3, 3}), 0.1);
    Slices saved;
    optimizer->state(saved);
    // Rows 0 to 3 and 4 to 9 on two ranks, which load what the one has saved.
    std::vector<at::Tensor> tables;
    std::vector<std::unique_ptr<RowOptimizer>> parts;
    for (const auto& [begin, count] : {std::pair<int64_t, int64_t>{0, 4}, {4, 6}}) {
      tables.push_back(whole.narrow(0, begin, count).clone());
      parts.push_back(m.make({"w", tables.back(), begin, 10}));
      struct Load : Slices {
        explicit Load(const Slices& from) : from(from) {}
        using Slices::tensor;
        void tensor(const Slice& slice, at::Tensor local) override {
          EXPECT_EQ(slice.global_shape, from.slices.at(slice.name).global_shape);
          EXPECT_EQ(fault_of(slice), "");
          local.copy_(from.tensors.at(slice.name).narrow(0, slice.offsets[0], slice.lengths[0]));
        }
        void value(const std::string& name, int64_t& v) override { v = from.values.at(name); }
        const Slices& from;
      } load(saved);
      parts.back()->state(load);
      EXPECT_EQ(parts.back()->steps(), 3);
    }
    const at::Tensor g = torch::randn({3, 3});
    optimizer->step(numbers({1, 4, 9}), g, 0.1);
    parts[0]->step(numbers({1}), g.narrow(0, 0, 1), 0.1);
    parts[1]->step(numbers({0, 5}), g.narrow(0, 1, 2), 0.1);
    EXPECT_TRUE(torch::cat(tables).equal(whole)) << m.name;
  }
}

TEST(optim_row_optimizer, threads_change_no_bit) {
  const int before = at::get_num_threads();
  for (const RowMaker& m : row_makers()) {
    std::vector<at::Tensor> results;
    for (const int threads : {1, 3}) {
      at::set_num_threads(threads);
      torch::manual_seed(5);
      results.push_back(torch::randn({4000, 40}));
      auto optimizer = m.make({"w", results.back()});
      for (int step = 0; step < 3; ++step) {
        const at::Tensor rows = some_rows(4000, 0.7);
        optimizer->step(rows, torch::randn({rows.size(0), 40}), 0.01);
      }
    }
    EXPECT_TRUE(results[0].equal(results[1])) << m.name;
  }
  at::set_num_threads(before);
}

TEST(optim_row_optimizer, half_gradients_step_as_what_they_are_in_float32) {
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    const at::Tensor one = torch::ones({5, 3}), two = torch::ones({5, 3});
    const at::Tensor g = torch::randn({2, 3}).to(type);
    make_row_adamw({"w", one})->step(numbers({0, 3}), g, 0.1);
    make_row_adamw({"w", two})->step(numbers({0, 3}), g.to(at::kFloat), 0.1);
    EXPECT_TRUE(one.equal(two));
  }
}

TEST(optim_row_optimizer, what_is_not_finite_stays_in_its_elements) {
  for (const RowMaker& m : row_makers()) {
    const at::Tensor table = torch::ones({6, 9}), clean = torch::ones({6, 9});
    const at::Tensor good = torch::full({2, 9}, 0.25);
    at::Tensor g = good.clone();
    g[0][4] = std::nan("");
    g[1][8] = INFINITY;
    auto optimizer = m.make({"w", table}), other = m.make({"w", clean});
    optimizer->step(numbers({2, 5}), g, 0.1);
    other->step(numbers({2, 5}), good, 0.1);
    at::Tensor differs = table.ne(clean);
    EXPECT_EQ(differs.sum().item<int64_t>(), 2) << m.name;
    EXPECT_TRUE(differs[2][4].item<bool>() && differs[5][8].item<bool>()) << m.name;
  }
}

TEST(optim_row_optimizer, a_graph_that_has_saved_the_table_notices_the_step) {
  at::Tensor table = torch::ones({4, 2}).requires_grad_();
  const at::Tensor loss = (table * table).sum();
  make_row_sgd({"w", table})->step(numbers({1}), torch::ones({1, 2}), 0.1);
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(optim_row_optimizer, what_does_not_fit_is_refused_by_name_and_nothing_changes) {
  const at::Tensor table = torch::ones({6, 3});
  auto optimizer = make_row_adamw({"items", table});
  const auto says = [&](const at::Tensor& rows, const at::Tensor& g, const std::string& part) {
    const std::string text = refusal([&] { optimizer->step(rows, g, 0.1); });
    EXPECT_TRUE(has(text, part)) << text;
  };
  const at::Tensor two = torch::ones({2, 3});
  says(numbers({1, 6}), two, "row AdamW: there is no row 6 of 'items' (at 1 of 2): it has 6");
  says(numbers({-1, 2}), two, "there is no row -1 of 'items' (at 0 of 2)");
  says(numbers({2, 2}), two, "row 2 of 'items' follows row 2 (at 1 of 2): each may be there once");
  says(numbers({3, 2}), two, "row 2 of 'items' follows row 3");
  says(numbers({1, 2}).to(at::kInt), two, "the rows of 'items' are Int [2]");
  says(numbers({1, 2}).view({2, 1}), two, "the rows of 'items' are Long [2, 1]");
  says(numbers({1, 2}), torch::ones({2, 4}),
       "gradients of 2 rows of 'items' are Float [2, 4] on cpu: they must be Float [2, 3] on cpu");
  says(numbers({1}), two, "gradients of 1 rows of 'items' are Float [2, 3]");
  says(numbers({1, 2}), two.to(at::kDouble), "are Double [2, 3]");
  says(at::Tensor(), two, "rows or gradients of 'items' are an undefined tensor");
  EXPECT_TRUE(table.equal(torch::ones({6, 3})));
  EXPECT_EQ(optimizer->steps(), 0);

  const auto made = [&](RowTable t, const std::string& part) {
    const std::string text = refusal([&] { make_row_sgd(std::move(t)); });
    EXPECT_TRUE(has(text, part)) << text;
  };
  made({"", table}, "row SGD: the table has no name");
  made({"w", {}}, "'w' is an undefined tensor");
  made({"w", torch::ones({6})}, "'w' is [6]: it must be [rows, …]");
  made({"w", table.to(at::kBFloat16)}, "'w' is BFloat16: steps over rows take float32 or float64");
  made({"w", table.t()}, "'w' is not contiguous");
  made({"w", table, 5, 10}, "'w' has rows 5 to 11 of a table of 10");
  made({"w", table, -1}, "'w' has rows -1 to 5");
  EXPECT_TRUE(has(refusal([&] {
                    make_row_sgd({"w", table}, {.momentum = 0.9, .dampening = 0.1});
                  }),
                  "row SGD: dampening is 0.1"));
  EXPECT_TRUE(has(refusal([&] { make_row_adagrad({"w", table}, {.eps = -1}); }), "eps is -1"));
  EXPECT_TRUE(has(refusal([&] { make_row_adamw({"w", table}, {.beta1 = 1}); }), "betas are (1,"));
  at::Tensor moved = torch::ones({6, 3});
  auto of_moved = make_row_sgd({"w", moved});
  moved.resize_({5, 3});
  EXPECT_TRUE(has(refusal([&] {
                    of_moved->step(numbers({1, 2}), two, 0.1);
                  }),
                  "the table 'w' changed its dtype, size or layout (now Float [5, 3])"));
}

}  // namespace row_optimizer_test
