// SPDX-License-Identifier: Apache-2.0
// A step of 4,096 rows of a table of 10 M rows of 32 float32 (1.28 GB), beside what reading and
// adding to the same rows costs at least: index_select and index_add_. Each round takes other rows;
// medians, and ratios of the same round.
//   ninja -C build/release rows && build/release/bench/rows [ROWS [TOUCHED [THREADS [ROUNDS]]]]
// Optimizers keep state as large as the table, so one is made after the other: 5.2 GB at most.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "bench/foreign_load.h"
#include "trireme/base/clock.h"
#include "trireme/optim/rows/row_optimizer.h"

using namespace trireme;

namespace {

constexpr int64_t kWidth = 32;

double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + static_cast<long>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

template <class Body>
double seconds_of(const Body& body) {
  const auto begin = Clock::now();
  body();
  return seconds_since(begin);
}

struct Rounds {
  int64_t rows, touched;
  int count;
  at::Tensor table;
  at::Tensor gradients = at::randn({touched, kWidth});

  at::Tensor draw() const { return std::get<0>(at::randint(rows, {touched}, at::kLong).sort()); }
  /// What the same rows cost LibTorch. `rows` may name one twice.
  double bound(const at::Tensor& chosen) {
    return seconds_of([&] {
      const at::Tensor read = table.index_select(0, chosen);
      table.index_add_(0, chosen, gradients, -1e-3);
    });
  }

  void show(const char* what, const std::function<std::unique_ptr<RowOptimizer>(RowTable)>& make) {
    auto optimizer = make({"table", table});
    std::vector<double> ours, bounds, ratios;
    for (int i = 0; i < count + 2; ++i) {
      // Rows that no cache holds for either of them.
      const RowGradients merged = merge_rows({{draw(), gradients}});
      const double step = seconds_of([&] { optimizer->step(merged.rows, merged.gradients, 1e-3); });
      const double least = bound(draw());
      if (i < 2) continue;  // pages of state are made
      ours.push_back(step);
      bounds.push_back(least);
      ratios.push_back(least / step);
    }
    fmt::print("{:24} {:8.3f} ms   index_select + index_add_ {:8.3f} ms   ratio {:.2f}\n", what,
               1e3 * median(ours), 1e3 * median(bounds), median(ratios));
  }
};

int64_t number(int argc, char** argv, int at, int64_t otherwise) {
  return argc > at ? std::atoll(argv[at]) : otherwise;
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t rows = number(argc, argv, 1, 10'000'000), touched = number(argc, argv, 2, 4096);
  at::set_num_threads(static_cast<int>(number(argc, argv, 3, 1)));
  Rounds rounds{rows, touched, static_cast<int>(number(argc, argv, 4, 201)),
                at::full({rows, kWidth}, 0.5)};
  fmt::print("{} of {} rows of {} float32, {} thread(s)\n", touched, rows, kWidth,
             at::get_num_threads());
  const ForeignLoad load;
  rounds.show("SGD", [](RowTable t) { return make_row_sgd(std::move(t)); });
  rounds.show("SGD, momentum",
              [](RowTable t) { return make_row_sgd(std::move(t), {.momentum = 0.9}); });
  rounds.show("Adagrad", [](RowTable t) { return make_row_adagrad(std::move(t)); });
  rounds.show("AdamW", [](RowTable t) { return make_row_adamw(std::move(t)); });
  std::vector<double> merging;
  for (int i = 0; i < rounds.count; ++i) {
    const RowGradients given{at::randint(touched, {touched}, at::kLong), rounds.gradients};
    merging.push_back(seconds_of([&] { merge_rows({given}); }));
  }
  fmt::print("{:24} {:8.3f} ms   of rows that are there 1.6 times each\n", "merge_rows",
             1e3 * median(merging));
  const double foreign = load.part();
  fmt::print("foreign load {:.1f} %{}\n", 100 * foreign, foreign > 0.05 ? ": VOID" : "");
}
