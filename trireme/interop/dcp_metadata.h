// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/export.h"

// The file .metadata of a folder of Python's torch.distributed.checkpoint: the pickle of a
// Metadata.
namespace trireme::interop {

/// A range of a file of the folder, which is a file of torch.save.
struct DcpItem {
  std::string file;  // as the metadata names it: "__0_0.distcp"
  uint64_t offset = 0, length = 0;
};
struct DcpChunk {
  std::vector<int64_t> offsets, lengths;
  DcpItem item;
};
struct DcpTensor {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::vector<DcpChunk> chunks;
};
struct DcpValue {
  std::string name;
  DcpItem item;
};
struct DcpMetadata {
  std::vector<DcpTensor> tensors;
  std::vector<DcpValue> values;
};

/// Of the layouts of PyTorch 1.13 to 2.x. UsageError and Corrupt as read_pickle, and Corrupt where
/// an item of the description has no place in a file.
TRIREME_API DcpMetadata read_dcp_metadata(std::span<const uint8_t> bytes, const std::string& where);

}  // namespace trireme::interop
