// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/tensor/parameter_table.h"

// The safetensors format (huggingface.co/docs/safetensors): 8 bytes little-endian header length, a
// JSON header, then the tensors' bytes, row-major and little-endian, without holes. Dtypes: F64 F32
// F16 BF16 I64 I32 I16 I8 U8 BOOL.
namespace trireme {

struct SafetensorsEntry {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes, from the start of the data
};

/// A file mapped for reading. Nothing in it is trusted: whatever does not hold together is Corrupt,
/// naming the file and what is wrong; the header may have 100,000,000 bytes. ResourceError when it
/// cannot be opened. The file must not shrink while the object lives. Threads may read together.
class TRIREME_API SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  SafetensorsFile(SafetensorsFile&&) noexcept;
  ~SafetensorsFile();

  const std::string& path() const;
  /// In the order of their bytes.
  const std::vector<SafetensorsEntry>& entries() const;
  const std::map<std::string, std::string>& metadata() const;
  const SafetensorsEntry* find(const std::string& name) const;  // nullptr: not there
  std::span<const uint8_t> bytes(const SafetensorsEntry& entry) const;
  /// Everything before the data: length and header.
  std::span<const uint8_t> head() const;
  uint64_t size() const;
  /// A copy, in CPU memory. UsageError when there is no such tensor.
  at::Tensor tensor(const std::string& name) const;

 private:
  struct Parsed;
  std::unique_ptr<Parsed> parsed_;
};

/// What was written, with XXH3 checksums (16 hex digits).
struct SafetensorsReceipt {
  uint64_t size = 0;
  std::string head_checksum;
  std::map<std::string, std::string> tensor_checksums;
};

/// Writes a new file and syncs it. Tensors may be on any device and need not be contiguous: each is
/// brought to the CPU when its turn comes, so no second copy of the whole exists. UsageError for a
/// dtype above not named or a name given twice; ResourceError (a part of the file stays behind)
/// when the disk does not take it.
TRIREME_API SafetensorsReceipt
write_safetensors(const std::string& path, NamedTensors tensors,
                  const std::map<std::string, std::string>& metadata = {});

/// "F32" for float32, …; "" for a dtype that the format (as we write it) lacks.
TRIREME_API std::string safetensors_dtype_name(at::ScalarType dtype);

}  // namespace trireme
