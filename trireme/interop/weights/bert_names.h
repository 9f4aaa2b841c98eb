// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "trireme/base/export.h"
#include "trireme/interop/weights/weight_source.h"

// The names of Hugging Face's BERT, which the parts of models/bert.h have as well. Files differ in
// three ways: those converted from TensorFlow have LayerNorm.gamma and LayerNorm.beta, a BertModel
// that was saved by itself lacks "bert.", and some versions save the numbers of positions.
namespace trireme::interop {

/// Is there an "…encoder.layer.0.attention.self.query.weight"?
TRIREME_API bool has_bert_names(const WeightSource& source);
/// Gives BERT's tensors the names "bert.…" with LayerNorm.weight and LayerNorm.bias, leaves out the
/// numbers of positions, and says so in a note if anything changed. Others, such as the heads that
/// BERT was trained with, keep their names. UsageError for two of one name.
TRIREME_API void take_bert_names(WeightSource& source);

}  // namespace trireme::interop
