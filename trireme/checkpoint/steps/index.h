// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/base/slice.h"

// trireme.index.json: what a step folder holds, and the checksums of every byte of it. The text,
// one line per tensor:
//
//   {"magic": "trireme.checkpoint", "version", "checksum": "xxh3:<16 hex>", "step", "world",
//    "layout", "block",
//    "files":   {"<file>": {"size", "head": "<xxh3 of all before the data>"}},
//    "tensors": {"<name>": {"dtype", "shape", "parts": [{"file", "offsets", "lengths", "xxh3"},
//    …]}}, "values":  {"<name>": {"int": n} | {"double": x} | {"string": s} | {"hex": s}}}
//
// `checksum` is of the whole text with its own 16 digits replaced by zeros. The tensor `model.<p>`
// has the name `<p>` in its files; the others keep theirs. A part is a box of the tensor; the parts
// are disjoint and together the whole, and no two of them are in one file. "xxh3" has 16 digits for
// each "block" bytes of the part. What all ranks held is in model.safetensors and
// state.safetensors, the rest in the file of the first rank that held it
// (model-rank00003.safetensors); further boxes of a name are in model-rank00003-2.safetensors, ….
//
// Versions 1 and 2, which are read: docs/checkpoint_format.md.
namespace trireme {

using IndexValue = std::variant<int64_t, double, std::string>;

struct IndexFile {
  uint64_t size = 0;
  std::string head;
};

struct IndexPart {
  Slice slice;  // a box; in version 2 a range of a tensor of one dim
  std::string file;
  std::vector<uint64_t> blocks = {};  // checksums
  // Of a load:
  int64_t first_block = 0;  // its first block's number in the step (number_blocks())
  uint64_t begin = 0;       // byte in the file, once that is open
};

struct IndexTensor {
  std::string dtype;  // as in the files' headers
  std::vector<IndexPart> parts;
  const std::vector<int64_t>& shape() const { return parts.front().slice.global_shape; }
};

struct CheckpointIndex {
  static constexpr int kVersion = 3;  // the one that is written, and the newest that is read
  static constexpr const char* kFileName = "trireme.index.json";
  static constexpr const char* kModelFile = "model.safetensors";
  static constexpr const char* kStateFile = "state.safetensors";
  static constexpr int64_t kBlock = int64_t{1} << 20;

  int64_t step = 0;
  int64_t world = 1;
  std::string layout = "replicated";  // for people: how the run that saved it was split
  /// Bytes of a part that one checksum is of; versions 1 and 2: 0, all of it.
  int64_t block = kBlock;
  std::map<std::string, IndexFile> files;
  using Tensors = std::map<std::string, IndexTensor>;
  Tensors tensors;
  std::map<std::string, IndexValue> values;
  int64_t version = kVersion;  // of the text that was read
};

/// UsageError for a name that is not UTF-8.
TRIREME_API std::string index_text(const CheckpointIndex& index);

/// Of version 1, 2 or 3. Corrupt, naming `path` and what is wrong; UsageError for a newer version,
/// naming both.
TRIREME_API CheckpointIndex parse_index(std::string_view text, const std::string& path);

/// Where a box of a tensor is written: by rank `rank`'s name (-1: all ranks hold it), and which of
/// the name's boxes in such files it is, from 0.
struct TensorPlace {
  std::string file, key;
};
TRIREME_API TensorPlace place_of(const std::string& name, int64_t rank = -1, size_t box = 0);

/// What a layout may be called: printable ASCII, 1 to 200.
TRIREME_API bool is_layout_text(std::string_view layout);

}  // namespace trireme
