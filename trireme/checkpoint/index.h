// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/base/slice.h"

// trireme.index.json: what a step folder holds, and the checksum of every byte of it. The text, one
// line per tensor:
//
//   {"magic": "trireme.checkpoint", "version": 1, "checksum": "xxh3:<16 hex>", "step", "world",
//   "layout",
//    "files":   {"<file>": {"size", "head": "<xxh3 of all before the data>"}},
//    "tensors": {"<name>": {"file", "dtype", "shape", "offsets", "lengths", "xxh3"}},
//    "values":  {"<name>": {"int": n} | {"double": x} | {"string": s} | {"hex": s}}}
//
// `checksum` is of the whole text with its own 16 digits replaced by zeros. The tensor `model.<p>`
// bears the name `<p>` in model.safetensors; the others keep theirs.
namespace trireme {

using IndexValue = std::variant<int64_t, double, std::string>;

struct IndexFile {
  uint64_t size = 0;
  std::string head;
};

struct IndexTensor {
  Slice slice;
  std::string file;
  std::string dtype;  // as in the file's header
  std::string xxh3;
};

struct CheckpointIndex {
  static constexpr int kVersion = 1;
  static constexpr const char* kFileName = "trireme.index.json";
  static constexpr const char* kModelFile = "model.safetensors";
  static constexpr const char* kStateFile = "state.safetensors";

  int64_t step = 0;
  int64_t world = 1;
  std::string layout = "replicated";  // every rank holds all of it
  std::map<std::string, IndexFile> files;
  std::map<std::string, IndexTensor> tensors;
  std::map<std::string, IndexValue> values;
};

/// UsageError for a name that is not UTF-8.
std::string index_text(const CheckpointIndex& index);

/// Corrupt, naming `path` and what is wrong; UsageError for a version newer than ours, naming both.
CheckpointIndex parse_index(std::string_view text, const std::string& path);

/// The file that holds the tensor of this name, and its name in there.
struct TensorPlace {
  std::string file, key;
};
TensorPlace place_of(const std::string& name);

}  // namespace trireme
