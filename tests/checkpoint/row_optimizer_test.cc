// SPDX-License-Identifier: Apache-2.0
// A table that ranks hold in parts, and its optimizer: saved by some ranks and loaded by others.
#include "trireme/optim/rows/row_optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/own_state.h"
#include "trireme/comm/start/run.h"

namespace trireme::row_optimizer_checkpoint_test {
namespace {

constexpr int64_t kRows = 29, kWidth = 5;

at::Tensor drawn(int64_t rows, double phase) {
  return at::arange(rows * kWidth, at::kFloat).mul(0.7).add(phase).sin().view({rows, kWidth});
}
/// The rows of a step: some of all parts, or of one.
at::Tensor rows_of(int step) { return at::arange(step, kRows, 2 + step % 3, at::kLong); }

/// Rows [begin, begin + count) of the table with an optimizer.
struct Part {
  Part(int rank, int ranks)
      : begin(kRows * rank / ranks),
        table(drawn(kRows, 0).narrow(0, begin, kRows * (rank + 1) / ranks - begin).clone()),
        optimizer(make_row_adamw({"items", table, begin, kRows}, {.amsgrad = true})) {}
  void step(int number) {
    const at::Tensor rows = rows_of(number), g = drawn(rows.size(0), number);
    const at::Tensor mine =
        rows.ge(begin).logical_and_(rows.lt(begin + table.size(0))).nonzero().view({-1});
    optimizer->step(rows.index_select(0, mine) - begin, g.index_select(0, mine), 0.1);
  }
  StateWalk state() {
    return [this](StateVisitor& visitor) {
      visitor.tensor(Slice{"items", {kRows, kWidth}, {begin, 0}, {table.size(0), kWidth}}, table);
      optimizer->state(visitor);
    };
  }
  int64_t begin;
  at::Tensor table;
  std::unique_ptr<RowOptimizer> optimizer;
};

}  // namespace

TEST(checkpoint_row_optimizer, parts_that_two_ranks_saved_go_on_on_one_rank_and_on_three) {
  Part whole(0, 1);
  for (int step = 0; step < 9; ++step) whole.step(step);
  const PrivateFolder folder;
  run_threads(2, [&](Group group) {
    Part part(group.rank(), 2);
    for (int step = 0; step < 5; ++step) part.step(step);
    save(folder.path(), 5, part.state(), group);
  });
  for (const int ranks : {1, 3})
    run_threads(ranks, [&](Group group) {
      Part part(group.rank(), ranks);
      load(folder.path(), part.state(), group);
      check<Error>(part.optimizer->steps() == 5, "{} steps", part.optimizer->steps());
      for (int step = 5; step < 9; ++step) part.step(step);
      check<Error>(part.table.equal(whole.table.narrow(0, part.begin, part.table.size(0))),
                   "rank {} of {} has other rows", group.rank(), ranks);
    });
}

}  // namespace trireme::row_optimizer_checkpoint_test
