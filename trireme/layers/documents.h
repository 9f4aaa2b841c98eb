// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trireme/base/export.h"

// Rows that hold several documents, one behind the other. Where each begins is a tensor of int64,
// [batch, time]: for each place, the first place of its document.
namespace trireme {

/// Of rows of tokens in which `end` is a document's last one; ids: [batch, time], int64. A document
/// that goes on from the row before begins with the row.
TRIREME_API at::Tensor document_starts(const at::Tensor& ids, int64_t end);

/// Each place, counted from the beginning of its document: [batch, time].
TRIREME_API at::Tensor positions_in_documents(const at::Tensor& starts);

}  // namespace trireme
