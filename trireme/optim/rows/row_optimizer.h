// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/optim/optimizer.h"
#include "trireme/optim/rows/row_gradients.h"
#include "trireme/tensor/state.h"

// Optimizers of a table of which a step touches a few rows: an embedding, or the part of one that
// this rank holds. What a step costs is the touched rows'; the others are neither read nor written.
//
//   auto optimizer = make_row_adagrad({"items", table});
//   const RowGradients merged = merge_rows({mine, theirs});
//   optimizer->step(merged.rows, merged.gradients, lr);
namespace trireme {

/// A table [rows, …], float32 or float64, contiguous: float16 and bfloat16 lose small updates, and
/// there are no master weights of rows.
struct RowTable {
  std::string name;  // of its state in checkpoints
  at::Tensor table;
  int64_t first_row = 0;                 // of the whole table, where this rank holds a part
  std::optional<int64_t> all_rows = {};  // of the whole table; unset: it ends with this part
};

/// A touched row gets the bits that the optimizer of optim/optimizer.h gives a parameter, so a step
/// that touches all rows is that optimizer's. A row that is not touched keeps its weights and its
/// state as they are, as under torch.optim.SparseAdam and torch's Adagrad with sparse gradients:
///
/// - Momentum and Adam's moments do not decay in steps that pass a row over, and it does not move.
///   When it is touched again it goes on with what its own last step left. (torch.optim.SGD goes on
///   moving rows by their old momentum.)
/// - Weight decay is of touched rows, in the steps that touch them.
/// - There is one count of steps, not one for each row, and a step without rows counts. So the bias
///   corrections of AdamW and Adagrad's lr_decay are those of the table's age: a row's first step
///   late in training is not corrected as a first step is.
/// - eps is added to the corrected root, as in AdamW. SparseAdam adds its own to the uncorrected
///   one, where this one's would count as eps times sqrt(1 - beta2^t).
///
/// State is made whole, at once: for each element of the table, another for SGD with momentum and
/// for Adagrad, two for AdamW, three with amsgrad, none for SGD. 10 M rows of 32 float32 are 1.28
/// GB, and AdamW's state 2.56 GB. It is part of a checkpoint like any other, and a part of a table
/// is a box of the whole: a run may resume with other parts.
///
/// The optimizer keeps a handle to the table and owns its state. One thread at a time. No rank
/// communicates; ranks that hold parts of one table step equally often, if need be without rows.
class TRIREME_API RowOptimizer {
 public:
  virtual ~RowOptimizer();
  RowOptimizer(const RowOptimizer&) = delete;

  /// One step of these rows of the table, in place. `rows`: [n] int64, ascending, each once, from 0
  /// in `table` (merge_rows() makes them so); on the CPU, or where the table is, which waits for
  /// the device because they are checked. `gradients`: [n, …] on the table's device and of its
  /// dtype; a float32 table's may be float16 or bfloat16. Each is multiplied by `grad_scale`.
  ///
  /// UsageError (nothing has changed) for others. Like the other optimizers' step, this one does
  /// not look for NaN or infinity, which stay in the elements where they are: all_finite()
  /// (tensor/finite.h) and GradScaler::decide() come before.
  void step(const at::Tensor& rows, const at::Tensor& gradients, double lr, double grad_scale = 1);
  /// "optim.steps.<name>", and "optim.<kind>.<name>" with the shape of the table: kinds are those
  /// of the dense optimizer (momentum; sum; exp_avg, exp_avg_sq, max_exp_avg_sq).
  void state(StateVisitor& visitor);

  const at::Tensor& table() const { return table_.table; }
  /// The number of steps taken.
  int64_t steps() const { return steps_; }

 protected:
  struct Touched;
  /// `who` begins messages: "row SGD".
  RowOptimizer(std::string who, RowTable table);
  /// More state, as large as the table; Touched has them in the order in which they were added.
  void add_state(const std::string& kind, double value = 0);
  /// The step numbered steps_, of at least one element.
  virtual void update(const Touched& touched, double lr, double grad_scale) = 0;

  int64_t steps_ = 0;

 private:
  void check_gradients(const at::Tensor& rows, const at::Tensor& gradients) const;
  at::Tensor checked_rows(const at::Tensor& rows) const;

  const std::string who_;
  const RowTable table_;
  const std::vector<int64_t> shape_;  // of the table as it was given
  const at::ScalarType dtype_;
  std::vector<std::pair<std::string, at::Tensor>> states_;
};

/// UsageError for a table that is not as RowTable says and for options out of range. SGD: dampening
/// is refused, because it treats a first gradient apart, and rows do not count their own. A
/// freeze_step counts the table's steps.
TRIREME_API std::unique_ptr<RowOptimizer> make_row_sgd(RowTable table,
                                                       const SgdOptions& options = {});
TRIREME_API std::unique_ptr<RowOptimizer> make_row_adagrad(RowTable table,
                                                           const AdagradOptions& options = {});
TRIREME_API std::unique_ptr<RowOptimizer> make_row_adamw(RowTable table,
                                                         const AdamWOptions& options = {});

}  // namespace trireme
