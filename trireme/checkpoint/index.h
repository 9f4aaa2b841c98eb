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
//   {"magic": "trireme.checkpoint", "version", "checksum": "xxh3:<16 hex>", "step", "world",
//   "layout",
//    "files":   {"<file>": {"size", "head": "<xxh3 of all before the data>"}},
//    "tensors": {"<name>": …},
//    "values":  {"<name>": {"int": n} | {"double": x} | {"string": s} | {"hex": s}}}
//
// `checksum` is of the whole text with its own 16 digits replaced by zeros. The tensor `model.<p>`
// bears the name `<p>` in its file; the others keep theirs.
//
// Version 1, of layout "replicated": every rank holds all of it. A tensor is
//   {"file", "dtype", "shape", "offsets", "lengths", "xxh3"},
// whole, in model.safetensors or state.safetensors.
//
// Version 2, of every other layout (its text is the run's): a tensor is
//   {"dtype", "shape", "parts": [{"file", "offsets", "lengths", "xxh3", "ranks": [r, …]}, …]}.
// "ranks" held the part when it was saved, rising. Without it all ranks held it; then it is whole
// and in model.safetensors or state.safetensors. The others lie in the file of the first of their
// ranks (model-rank00003.safetensors, state-rank00003.safetensors) and are whole or ranges of
// one-dim tensors; they rise, touch each other and are together the whole. A value that only some
// ranks have has "ranks", too.
namespace trireme {

using IndexValue = std::variant<int64_t, double, std::string>;

struct IndexFile {
  uint64_t size = 0;
  std::string head;
};

using RankList = std::vector<int64_t>;  // rising; empty: all

struct IndexPart {
  Slice slice;
  std::string file;
  std::string xxh3;
  RankList ranks = {};
};

struct IndexTensor {
  std::string dtype;  // as in the files' headers
  std::vector<IndexPart> parts;
  const std::vector<int64_t>& shape() const { return parts.front().slice.global_shape; }
};

struct CheckpointIndex {
  static constexpr int kVersion = 2;  // the newest that we read
  static constexpr const char* kReplicated = "replicated";
  static constexpr const char* kFileName = "trireme.index.json";
  static constexpr const char* kModelFile = "model.safetensors";
  static constexpr const char* kStateFile = "state.safetensors";

  int64_t step = 0;
  int64_t world = 1;
  std::string layout = kReplicated;
  std::map<std::string, IndexFile> files;
  std::map<std::string, IndexTensor> tensors;
  std::map<std::string, IndexValue> values;
  std::map<std::string, RankList> value_ranks;  // of the values that not all ranks have
};

/// In version 1 where that can say it. UsageError for a name that is not UTF-8.
std::string index_text(const CheckpointIndex& index);

/// Corrupt, naming `path` and what is wrong; UsageError for a version newer than ours, naming both.
CheckpointIndex parse_index(std::string_view text, const std::string& path);

/// The file that holds the tensor of this name when all ranks hold it, and its name in there.
struct TensorPlace {
  std::string file, key;
};
TensorPlace place_of(const std::string& name);
/// … and the file for what rank `rank` writes of it: "model-rank00003.safetensors".
std::string rank_file_of(const std::string& name, int64_t rank);

/// A range of the flat tensor: all of it, or [offset, offset + length) where it has one dim.
bool is_flat_range(const Slice& slice);
/// Its first element in the flat tensor.
int64_t flat_begin(const Slice& flat_range);
/// 0 → n, in rising ranges that touch: "" if `parts` are so, else what is wrong: "elements 3 to 5
/// are in two parts", "… in none".
std::string hole_in(const std::vector<IndexPart>& parts);

/// What a layout may be called, other than "replicated": printable ASCII, 1 to 200.
bool is_layout_text(std::string_view layout);

}  // namespace trireme
