// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/data/source.h"

namespace trireme {

/// The target of a place that has none: LibTorch's losses leave it out.
inline constexpr int64_t kNoTarget = -100;

struct CorpusOptions {
  std::vector<std::string> paths;  // files, folders (recursive), globs: data/sources/file_list.h
  std::vector<std::string> extensions;  // of what folders and globs yield; empty: all
  int64_t context = 256;                // bytes that the model sees
  double validation_fraction = 0.05;    // of the bytes, held out; 0: none
  /// Of open_corpus(): the byte that ends a document. Windows then hold several, and each file is
  /// followed by that byte. What comes behind one is another document's, so it is no target
  /// (kNoTarget) and has no weight; layers/documents.h says where documents start.
  std::optional<uint8_t> end_of_document{};
};

struct Corpus {
  std::shared_ptr<DataSource> train, validation;  // validation: null for a fraction of 0
  /// Of names and sizes of the files, and the options: equal on ranks and machines that read the
  /// same corpus.
  uint64_t identity = 0;
  /// Of what the files hold, read in samples where they are large (data/sources/corpus_text.h).
  uint64_t contents = 0;
};

/// Text as bytes: files in the order of their names, each followed by a newline, read where they
/// are mapped. Sample i is the window of context + 1 bytes from byte i * context: input its first
/// `context` bytes, target the same shifted by one; both [b, context] int64, values 0 … 255;
/// weight: tokens. The order of bytes and the split depend on names and sizes alone, so machines
/// with the same files agree.
///
/// Held-out text is whole files, picked by a hash of their names until the fraction is reached, so
/// it is text that training has not seen; where files are too few or too large for that, it is the
/// last part of the bytes. Files of folders and globs that are empty, or binary (a NUL in the first
/// 4 KiB), are left out; describe() says how many.
///
/// Throws UsageError (missing path, empty corpus, shorter than a window) or ResourceError
/// (unreadable file).
TRIREME_API Corpus open_corpus(const CorpusOptions& options);

}  // namespace trireme
