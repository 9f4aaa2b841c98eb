// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/optim/optimizer.h"
#include "trireme/optim/rows/row_gradients.h"
#include "trireme/optim/rows/row_optimizer.h"
#include "trireme/rpc/server/parameter_server.h"
#include "trireme/rpc/server/protocol.h"
#include "trireme/tensor/state.h"

namespace trireme::rpc::server {

/// What one worker gives for one step, to one server.
struct Gradients {
  double lr = 0;
  int64_t total = -1;                            // how many of them come; -1: not known yet
  int64_t got = 0;                               // of keys
  std::vector<at::Tensor> of_keys;               // by key; undefined: none
  std::map<uint32_t, RowGradients> of_tables{};  // by table
  bool complete() const { return total >= 0 && got == total; }
};
struct Contribution {
  int rank = 0;
  Gradients gradients;
};

/// Parameters and rows of tables with their optimizers: what one server holds. Its caller sees to
/// threads.
class Holdings {
 public:
  /// UsageError for keys and tables that are none, or too large.
  Holdings(const Join& join, const ServerOptions& options);

  size_t keys() const { return keys_.size(); }
  size_t tables() const { return tables_.size(); }

  /// The values with which training begins.
  void set(const std::vector<at::Tensor>& values);
  /// A step of the mean of these, by ascending rank.
  void step(std::vector<Contribution> contributions);
  /// One for each dtype: copies or, with `lends`, what must not change before it has left.
  std::vector<at::Tensor> buffers(bool lends) const;
  /// Rows at this server, in new memory.
  at::Tensor rows(uint32_t table, const at::Tensor& rows) const;
  void state(StateVisitor& visitor);

  /// UsageError: not what belongs there. They look at what never changes.
  void check_gradient(uint32_t key, const at::Tensor& gradient) const;
  void check_rows(uint32_t table, const at::Tensor& rows) const;
  void check_row_gradients(uint32_t table, const at::Tensor& rows,
                           const at::Tensor& gradients) const;

 private:
  struct Table {
    TableKey key;
    at::Tensor rows;  // of this server
    std::unique_ptr<RowOptimizer> optimizer;
  };
  /// Parameters of one dtype.
  struct Buffer {
    at::ScalarType dtype;
    at::Tensor whole;
    NamedTensors trained;
    std::unique_ptr<Optimizer> optimizer;  // none where nothing is trained
  };
  void make_optimizers();
  at::Tensor mean(const std::vector<Contribution>& contributions, size_t key) const;

  const MakeOptimizer make_;
  std::vector<Key> keys_;
  std::vector<at::Tensor> values_;  // by key, in the buffers
  std::vector<Buffer> buffers_;
  std::vector<Table> tables_;
};

/// The dtypes that there are among the keys, ascending, and where each key lies in its buffer.
struct BufferPlan {
  std::vector<at::ScalarType> dtypes;
  std::vector<int64_t> sizes;    // of buffers, in elements
  std::vector<size_t> buffer;    // by key
  std::vector<int64_t> offsets;  // by key
};
BufferPlan plan_buffers(const std::vector<Key>& keys);
int64_t numel_of(const std::vector<int64_t>& sizes);

}  // namespace trireme::rpc::server
