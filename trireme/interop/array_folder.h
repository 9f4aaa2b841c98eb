// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/interop/named_array.h"
#include "trireme/interop/tree.h"

// Folders that hold global tensors in pieces: what Python's torch.distributed.checkpoint (DCP)
// writes, and sharded safetensors as Hugging Face has them.
namespace trireme::interop {

/// A box of a global tensor, and where its elements lie.
struct Box {
  std::vector<int64_t> offsets, lengths;
  NamedArray at;
};

/// A global tensor. Its boxes are inside its shape, do not overlap, and cover it.
struct BoxedArray {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::vector<Box> boxes;
};

struct ArrayFolder {
  std::vector<BoxedArray> arrays;      // by name
  std::map<std::string, Tree> values;  // what is no tensor: step counts, learning rates
};

/// A folder with .metadata (DCP), else with *.safetensors: with DCP_SHARDING_INFO (DCP's Hugging
/// Face writer), with model.safetensors.index.json, or without either. UsageError for another
/// folder, for what we do not read, and for classes that we refuse; Corrupt for files that do not
/// hold together. Nothing is run.
TRIREME_API ArrayFolder read_array_folder(const std::string& folder);
TRIREME_API ArrayFolder read_dcp_folder(const std::string& folder);
TRIREME_API ArrayFolder read_safetensors_folder(const std::string& folder);

}  // namespace trireme::interop
