// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/server/holdings.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <set>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/checkpoint/own_state.h"
#include "trireme/comm/dtypes.h"
#include "trireme/comm/local/host/memory_room.h"
#include "trireme/comm/local/reduce_kernels.h"
#include "trireme/rpc/server/plan/placement.h"
#include "trireme/tensor/host_data.h"
#include "trireme/tensor/random/random_boxes.h"

namespace trireme::rpc::server {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 40;
constexpr size_t kMostDims = 64;

// What a worker describes is allocated before its values have come.
void check_room(double bytes) {
  const local::Room room = local::memory_room();
  check<ResourceError>(bytes <= static_cast<double>(room.bytes),
                       "a worker brings parameters and tables of {:.3g} GB, and there are {:.3g} "
                       "GB of memory ({}): use more servers",
                       bytes / 1e9, static_cast<double>(room.bytes) / 1e9, room.limit);
}

std::string shown(at::IntArrayRef sizes) {
  std::string text = "[";
  for (size_t i = 0; i < sizes.size(); ++i) text += (i ? ", " : "") + std::to_string(sizes[i]);
  return text + "]";
}

std::string shown(const at::Tensor& t) {
  return t.defined() ? c10::toString(t.scalar_type()) + shown(t.sizes()) : "undefined";
}

bool is_float(at::ScalarType dtype) { return at::isFloatingType(dtype); }

at::ScalarType checked_dtype(const std::string& name, int32_t number) {
  const auto dtype = static_cast<at::ScalarType>(number);
  check<UsageError>(number >= 0 && number < static_cast<int32_t>(at::ScalarType::NumOptions) &&
                        trireme::detail::dtype_of(dtype).has_value(),
                    "'{}' has a dtype (number {}) that cannot live at a server", name, number);
  return dtype;
}

at::ScalarType dtype_of(const TableKey& key) { return static_cast<at::ScalarType>(key.dtype); }

void check_table(const TableKey& key) {
  const at::ScalarType dtype = checked_dtype(key.name, key.dtype);
  check<UsageError>(dtype == at::kFloat || dtype == at::kDouble,
                    "the table '{}' is {}: it must be float32 or float64", key.name,
                    c10::toString(dtype));
  check<UsageError>(key.rows >= 1 && key.width >= 1 && key.rows <= kMostElements / key.width,
                    "the table '{}' has {} rows of {} elements", key.name, key.rows, key.width);
  check<UsageError>(key.init_std >= 0 && key.init_std < 1e30,
                    "the table '{}' begins with a standard deviation of {}", key.name,
                    key.init_std);
}

at::Tensor made(const TableKey& key, int server, int servers) {
  const int64_t rows = plan::rows_at(key.rows, servers, server);
  const auto dtype = dtype_of(key);
  if (key.init_std == 0) return at::zeros({rows, key.width}, dtype);
  // Each row's numbers are keyed by where it lies in the whole table, which is drawn in pieces.
  at::Tensor all = at::empty({rows, key.width}, dtype);
  const int64_t piece = std::max<int64_t>(
      servers, (int64_t{1} << 18) / key.width / servers * static_cast<int64_t>(servers));
  const uint64_t stream = stable_hash({key.seed, stable_hash(key.name)});
  for (int64_t first = 0, at = 0; first < key.rows; first += piece) {
    const int64_t n = std::min(piece, key.rows - first);
    const at::Tensor drawn = at::empty({n, key.width}, dtype);
    normal_(drawn, stream, 0, key.init_std,
            {.shape = {key.rows, key.width}, .boxes = {{{first, 0}, {n, key.width}}}, .axes = {}});
    const int64_t mine = plan::rows_at(n, servers, server);  // `first` is a multiple of `servers`
    if (mine > 0) all.narrow(0, at, mine).copy_(drawn.slice(0, server, n, servers));
    at += mine;
  }
  return all;
}

}  // namespace

int64_t numel_of(const std::vector<int64_t>& sizes) {
  check<UsageError>(sizes.size() <= kMostDims, "a parameter has {} dims, and at most {}",
                    sizes.size(), kMostDims);
  int64_t numel = 1, most = 1;  // strides are products of sizes, one of which may be 0
  for (const int64_t size : sizes) {
    check<UsageError>(size >= 0 &&
                          !__builtin_mul_overflow(most, std::max<int64_t>(size, 1), &most) &&
                          most <= kMostElements,
                      "{} are no sizes of a parameter", shown(sizes));
    numel *= size;
  }
  return numel;
}

BufferPlan plan_buffers(const std::vector<Key>& keys) {
  BufferPlan plan;
  std::set<at::ScalarType> dtypes;
  for (const Key& key : keys) dtypes.insert(checked_dtype(key.name, key.dtype));
  plan.dtypes.assign(dtypes.begin(), dtypes.end());
  plan.buffer.resize(keys.size());
  plan.offsets.resize(keys.size());
  for (size_t b = 0; b < plan.dtypes.size(); ++b) {
    std::vector<int64_t> numels;
    std::vector<size_t> of;
    for (size_t k = 0; k < keys.size(); ++k) {
      if (static_cast<at::ScalarType>(keys[k].dtype) != plan.dtypes[b]) continue;
      numels.push_back(numel_of(keys[k].sizes));
      of.push_back(k);
    }
    double elements = 0;
    for (const int64_t numel : numels) elements += static_cast<double>(numel);
    check<UsageError>(elements <= static_cast<double>(kMostElements),
                      "parameters of {:.3g} elements are more than a server holds", elements);
    const plan::Places places = plan::places(numels);
    for (size_t i = 0; i < of.size(); ++i) {
      plan.buffer[of[i]] = b;
      plan.offsets[of[i]] = places.offsets[i];
    }
    plan.sizes.push_back(places.size);
  }
  return plan;
}

Holdings::Holdings(const Join& join, const ServerOptions& options)
    : make_(options.optimizer ? options.optimizer
                              : [](NamedTensors p) { return make_sgd(std::move(p)); }),
      keys_(join.keys) {
  check<UsageError>(join.servers >= 1 && join.server >= 0 && join.server < join.servers,
                    "server {} of {} servers of parameters", join.server, join.servers);
  std::set<std::string> names;
  const auto once = [&](const std::string& name) {
    check<UsageError>(!name.empty() && name.size() <= 4096 && names.insert(name).second,
                      "'{}' names two parameters or tables, or none", name);
  };
  const BufferPlan plan = plan_buffers(keys_);
  double bytes = 0;
  for (const TableKey& key : join.tables) {
    check_table(key);
    bytes += static_cast<double>(plan::rows_at(key.rows, join.servers, join.server)) *
             static_cast<double>(key.width) * static_cast<double>(c10::elementSize(dtype_of(key)));
  }
  for (size_t b = 0; b < plan.dtypes.size(); ++b)
    bytes +=
        static_cast<double>(plan.sizes[b]) * static_cast<double>(c10::elementSize(plan.dtypes[b]));
  check_room(bytes);
  for (size_t b = 0; b < plan.dtypes.size(); ++b)
    buffers_.push_back({plan.dtypes[b], at::zeros({plan.sizes[b]}, plan.dtypes[b]), {}, nullptr});
  for (size_t k = 0; k < keys_.size(); ++k) {
    once(keys_[k].name);
    Buffer& buffer = buffers_[plan.buffer[k]];
    check<UsageError>(!keys_[k].trained || is_float(buffer.dtype),
                      "'{}' is {}: only parameters of floating-point numbers are trained",
                      keys_[k].name, c10::toString(buffer.dtype));
    values_.push_back(
        buffer.whole.narrow(0, plan.offsets[k], numel_of(keys_[k].sizes)).view(keys_[k].sizes));
    if (keys_[k].trained) buffer.trained.emplace_back(keys_[k].name, values_.back());
  }
  for (const TableKey& key : join.tables) {
    once(key.name);
    Table table{key, made(key, join.server, join.servers), nullptr};
    RowTable rows{key.name, table.rows};
    if (table.rows.size(0) > 0)
      table.optimizer = options.row_optimizer ? options.row_optimizer(std::move(rows))
                                              : make_row_sgd(std::move(rows));
    tables_.push_back(std::move(table));
  }
}

// Masters begin with the parameters' values, so not before these are there.
void Holdings::make_optimizers() {
  for (Buffer& buffer : buffers_) {
    if (buffer.trained.empty() || buffer.optimizer) continue;
    const bool half = buffer.dtype == at::kHalf || buffer.dtype == at::kBFloat16;
    buffer.optimizer = half ? with_master_weights(buffer.trained, make_) : make_(buffer.trained);
    check<UsageError>(buffer.optimizer != nullptr, "ServerOptions::optimizer made none");
  }
}

void Holdings::set(const std::vector<at::Tensor>& values) {
  check<UsageError>(values.size() == keys_.size(), "{} values of {} parameters", values.size(),
                    keys_.size());
  c10::AutoGradMode no_grad(false);
  for (size_t k = 0; k < values.size(); ++k) {
    check<UsageError>(values[k].defined() && values[k].sizes() == values_[k].sizes() &&
                          values[k].scalar_type() == values_[k].scalar_type(),
                      "the value of '{}' is {}, and must be {}", keys_[k].name, shown(values[k]),
                      shown(values_[k]));
    values_[k].copy_(values[k]);
  }
  make_optimizers();
}

// In the memory of the first one, which is the server's own.
at::Tensor Holdings::mean(const std::vector<Contribution>& contributions, size_t key) const {
  at::Tensor to, zeros;
  for (const auto& c : contributions)
    if (!to.defined()) to = c.gradients.of_keys[key];
  if (!to.defined() || contributions.size() == 1) return to;
  std::vector<const void*> from;
  for (const auto& c : contributions) {
    const at::Tensor& gradient = c.gradients.of_keys[key];
    if (!gradient.defined() && !zeros.defined()) zeros = at::zeros_like(to);
    from.push_back(host_bits<const void>(gradient.defined() ? gradient : zeros));
  }
  void* out = host_bits<void>(to);
  local::reduce(*trireme::detail::dtype_of(to.scalar_type()), ReduceOp::avg, from.data(),
                static_cast<int>(from.size()), &out, 1, static_cast<size_t>(to.numel()));
  return to;
}

void Holdings::step(std::vector<Contribution> contributions) {
  c10::AutoGradMode no_grad(false);
  const double lr = contributions.front().gradients.lr;
  for (size_t k = 0; k < keys_.size(); ++k)
    if (keys_[k].trained) values_[k].mutable_grad() = mean(contributions, k);
  for (Buffer& buffer : buffers_) {
    if (!buffer.optimizer) continue;
    buffer.optimizer->step(lr);
    for (auto& [name, value] : buffer.trained) value.mutable_grad() = at::Tensor();
  }
  for (uint32_t t = 0; t < tables_.size(); ++t) {
    Table& table = tables_[t];
    if (!table.optimizer) continue;
    std::vector<RowGradients> parts;
    for (auto& c : contributions)
      if (const auto found = c.gradients.of_tables.find(t); found != c.gradients.of_tables.end())
        parts.push_back(std::move(found->second));
    // Steps of a table are counted, those without rows too.
    if (parts.empty())
      parts.push_back(
          {at::empty({0}, at::kLong), at::empty({0, table.key.width}, table.rows.options())});
    const RowGradients merged = parts.size() == 1 ? std::move(parts.front()) : merge_rows(parts);
    table.optimizer->step(merged.rows, merged.gradients, lr,
                          1.0 / static_cast<double>(contributions.size()));
  }
}

std::vector<at::Tensor> Holdings::buffers(bool lends) const {
  c10::AutoGradMode no_grad(false);
  std::vector<at::Tensor> all;
  for (const Buffer& buffer : buffers_) {
    // A tensor of its own, or the codec would copy what somebody else holds too.
    const auto lent = [whole = buffer.whole](void*) mutable { whole = at::Tensor(); };
    all.push_back(lends ? at::from_blob(host_bits<void>(buffer.whole), buffer.whole.sizes(), lent,
                                        buffer.whole.options())
                        : buffer.whole.clone());
  }
  return all;
}

at::Tensor Holdings::rows(uint32_t table, const at::Tensor& rows) const {
  c10::AutoGradMode no_grad(false);
  return tables_.at(table).rows.index_select(0, rows);
}

void Holdings::state(StateVisitor& visitor) {
  make_optimizers();
  for (size_t k = 0; k < keys_.size(); ++k)
    visitor.tensor("model." + keys_[k].name, values_[k].detach());
  size_t kinds = 0;
  for (const Buffer& buffer : buffers_) kinds += buffer.optimizer ? 1 : 0;
  for (Buffer& buffer : buffers_) {
    if (!buffer.optimizer) continue;
    const StateWalk walk = [&](StateVisitor& v) { buffer.optimizer->state(v); };
    kinds == 1 ? walk(visitor) : named(c10::toString(buffer.dtype), walk)(visitor);
  }
  for (Table& table : tables_) {
    if (!table.optimizer) continue;
    visitor.tensor("model." + table.key.name, table.rows);
    table.optimizer->state(visitor);
  }
}

void Holdings::check_gradient(uint32_t key, const at::Tensor& gradient) const {
  check<UsageError>(key < keys_.size() && keys_[key].trained,
                    "a gradient of key {}, which this server does not train", key);
  check<UsageError>(!gradient.defined() || (gradient.sizes() == values_[key].sizes() &&
                                            gradient.scalar_type() == values_[key].scalar_type()),
                    "the gradient of '{}' is {}, and must be {}", keys_[key].name, shown(gradient),
                    shown(values_[key]));
}

void Holdings::check_rows(uint32_t table, const at::Tensor& rows) const {
  check<UsageError>(table < tables_.size(), "there is no table {} here", table);
  const Table& t = tables_[table];
  check<UsageError>(rows.defined() && rows.scalar_type() == at::kLong && rows.dim() == 1,
                    "rows of '{}' are {}, and must be int64 [n]", t.key.name, shown(rows));
  const auto* row = host_data<int64_t>(rows);
  const int64_t all = t.rows.size(0);
  for (int64_t i = 0, before = -1; i < rows.size(0); before = row[i++])
    check<UsageError>(row[i] > before && row[i] < all,
                      "row {} of '{}' follows row {} of {} at this server: rows must be ascending, "
                      "each once",
                      row[i], t.key.name, before, all);
}

void Holdings::check_row_gradients(uint32_t table, const at::Tensor& rows,
                                   const at::Tensor& gradients) const {
  check_rows(table, rows);
  const Table& t = tables_[table];
  check<UsageError>(
      gradients.defined() && gradients.dim() == 2 && gradients.size(0) == rows.size(0) &&
          gradients.size(1) == t.key.width && gradients.scalar_type() == t.rows.scalar_type(),
      "the gradients of {} rows of '{}' are {}", rows.size(0), t.key.name, shown(gradients));
}

}  // namespace trireme::rpc::server
