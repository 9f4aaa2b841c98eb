// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "trireme/base/export.h"
#include "trireme/pipeline/schedule/schedule.h"

// Tables as torch.distributed.pipelining writes and reads them (_dump_csv and _load_csv of a
// schedule): one line a rank, cells divided by commas, a cell is empty (that time is idle) or
//   STAGE KIND [MICRO-BATCH]    0F1 2B3 1I0 1W0 0SEND_F1 1RECV_F1 1SEND_B0 0RECV_B0
//                               1UNSHARD 1RESHARD 1REDUCE_GRAD
//   (CELL;CELL)OVERLAP_F_B      two of F, I, B that may run at the same time
// A table without messages is "compute_only" there, one with them "compute_comms".
namespace trireme::pipeline {

/// Reads a table; empty cells are dropped, since the order alone counts. `file` is what errors call
/// it. Throws UsageError with row, column and text at the first cell that is not of the grammar, or
/// where a table is larger than schedule.h allows. Does not judge the schedule: check_schedule().
TRIREME_API Schedule read_table(std::string_view text, const std::string& file);

/// Lines end in a newline. Reading the text gives the same lists.
TRIREME_API std::string write_table(const Schedule& schedule);

}  // namespace trireme::pipeline
