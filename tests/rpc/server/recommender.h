// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "tests/rpc/server/task.h"
#include "trireme/base/philox.h"
#include "trireme/optim/optimizer.h"
#include "trireme/rpc/server/parameter_client.h"

// A recommender: who likes what.
namespace trireme::rpc_server_test {

inline constexpr int64_t kUsers = 60, kItems = 90, kWidth = 6;

struct Ratings {
  at::Tensor users, items, stars;  // ids of one table: items behind users
};
inline Ratings ratings_of(int64_t number, int64_t samples = 32) {
  at::Tensor u = torch::empty({samples}), i = torch::empty({samples}),
             noise = torch::empty({samples});
  uniform_(u, 5'000'000 + static_cast<uint64_t>(number), 0, 1);
  uniform_(i, 6'000'000 + static_cast<uint64_t>(number), 0, 1);
  normal_(noise, 7'000'000 + static_cast<uint64_t>(number), 0, 0.5);
  at::Tensor liking = torch::empty({kUsers, 3}), kind = torch::empty({kItems, 3});
  normal_(liking, 1, 0, 0.7);
  normal_(kind, 2, 0, 0.7);
  // Some are popular.
  const at::Tensor users = (u * kUsers).to(at::kLong).clamp(0, kUsers - 1);
  const at::Tensor items = (i * i * kItems).to(at::kLong).clamp(0, kItems - 1);
  const at::Tensor stars =
      (liking.index_select(0, users) * kind.index_select(0, items)).sum(1) + noise;
  return {users, items + kUsers, stars};
}
/// `rows`: of users and of items, [n, kWidth] each.
inline at::Tensor stars_of(Net& net, const at::Tensor& users, const at::Tensor& items) {
  return net->forward(at::cat({users * items, users + items}, 1)) + (users * items).sum(1);
}

inline constexpr double kStd = 0.3;
inline constexpr uint64_t kSeed = 11;

inline rpc::TableOptions likes() {
  return {"likes", kUsers + kItems, kWidth, at::kFloat, kStd, kSeed};
}
inline at::Tensor rows_at_first() {
  at::Tensor rows = torch::empty({kUsers + kItems, kWidth});
  normal_(rows, stable_hash({kSeed, stable_hash("likes")}), 0, kStd);
  return rows;
}

template <class Rows>
at::Tensor loss_of_ratings(Net& net, const Ratings& r, const Rows& rows) {
  return (stars_of(net, rows(r.users), rows(r.items)) - r.stars).pow(2).mean();
}
template <class Rows>
double held_out_ratings(Net& net, const Rows& rows) {
  torch::NoGradGuard no_grad;
  return loss_of_ratings(net, ratings_of(-3, 4096), rows).template item<double>();
}
inline Net dense_part() { return net_of(3, 2 * kWidth); }

inline constexpr double kLr = 0.02, kRowLr = 0.4;

/// What one process learns from these batches, and before.
inline std::pair<double, double> ratings_learnt_alone(int64_t steps, int64_t batches_a_step) {
  Net net = dense_part();
  at::Tensor table = rows_at_first().set_requires_grad(true);
  const auto rows = [&](const at::Tensor& ids) { return at::embedding(table, ids); };
  const double before = held_out_ratings(net, rows);
  auto optimizer = make_sgd(named_parameters(*net)), of_rows = make_sgd({{"likes", table}});
  for (int64_t step = 0; step < steps; ++step) {
    optimizer->zero_grad();
    of_rows->zero_grad();
    for (int64_t b = 0; b < batches_a_step; ++b)
      (loss_of_ratings(net, ratings_of(step * batches_a_step + b), rows) /
       static_cast<double>(batches_a_step))
          .backward();
    optimizer->step(kLr);
    of_rows->step(kRowLr);
  }
  return {before, held_out_ratings(net, rows)};
}

}  // namespace trireme::rpc_server_test
