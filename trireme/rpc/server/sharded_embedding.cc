// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/server/sharded_embedding.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "trireme/base/check.h"
#include "trireme/rpc/server/membership.h"
#include "trireme/tensor/host_data.h"

namespace trireme::rpc {

ShardedEmbedding::ShardedEmbedding(ParameterClient& client, const std::string& table)
    : membership_(client.membership_.get()), table_(membership_->table(table)) {}

at::Tensor ShardedEmbedding::forward(const at::Tensor& ids) const {
  const TableOptions& table = membership_->table_options(table_);
  check<UsageError>(ids.defined() && ids.scalar_type() == at::kLong,
                    "ids of '{}' must be a tensor of int64", table.name);
  const at::Tensor flat = ids.cpu().contiguous();
  const auto* id = host_data<int64_t>(flat);
  for (int64_t i = 0; i < flat.numel(); ++i)
    check<UsageError>(id[i] >= 0 && id[i] < table.rows, "there is no row {} of '{}': it has {}",
                      id[i], table.name, table.rows);
  auto found = plan::distinct_rows(id, flat.numel(), table.rows, membership_->servers());
  auto place = std::make_shared<std::vector<int64_t>>(std::move(found.place));
  at::Tensor rows = membership_->rows(table_, found, c10::GradMode::is_enabled());
  const at::Tensor places = at::from_blob(
      place->data(), flat.sizes(), [place](void*) mutable { place.reset(); }, at::kLong);
  return at::embedding(rows, places);
}

}  // namespace trireme::rpc
