// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/base/export.h"
#include "trireme/data/sources/corpus.h"

namespace trireme {

/// The same files as open_corpus(), as sequences of different lengths: a document ends at an empty
/// line, at `context` tokens, or with its file. Sample i is a document of n + 1 bytes: input its
/// first n, target the same shifted by one; rows of a micro-batch are as long as the longest of
/// them, filled with zeros and kNoTarget. Weights are tokens, row_weights says each row's; a mean
/// over them knows nothing of padding.
///
/// Held-out text is whole files, picked as open_corpus() does; where that cannot be, the last
/// documents. Throws as open_corpus().
TRIREME_API Corpus open_documents(const CorpusOptions& options);

}  // namespace trireme
