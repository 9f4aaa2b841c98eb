// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/base/mapped_file.h"
#include "trireme/interop/flatten.h"
#include "trireme/interop/named_array.h"
#include "trireme/interop/tree.h"
#include "trireme/interop/zip/zip_reader.h"

namespace trireme::interop {

/// A file of Python's torch.save (1.6 and later), of C++'s torch::save, or of torch.jit.save: its
/// values, and where its tensors lie in the file. Nothing in it is run or trusted: Corrupt for what
/// does not hold together, UsageError for what we do not read, with what to do. Code of TorchScript
/// is not looked at; of a module, parameters, buffers and plain attributes are read.
class TRIREME_API TorchFile {
 public:
  /// The file must not shrink while the object lives.
  explicit TorchFile(const std::string& path);
  /// One archive inside a file: `bytes`, from byte `begin` of `path` on, which outlive the object.
  TorchFile(std::span<const uint8_t> bytes, std::string path, uint64_t begin = 0);

  const Tree& tree() const { return tree_; }
  /// A module or a list of tensors of C++ or TorchScript, not of Python's torch.save.
  bool script() const { return script_; }
  /// Where a tensor of the tree lies.
  NamedArray located(const Array& array, std::string name) const;
  /// All tensors and all other leaves, by the names that flatten gives them.
  std::vector<NamedArray> arrays() const;
  std::vector<NamedNode> values() const;
  /// The archive's bytes: of the whole file, if it was opened by its path.
  std::span<const uint8_t> bytes() const { return bytes_; }
  /// Reads every tensor's bytes and compares their CRC-32: Corrupt where it differs. The values
  /// were compared when the file was opened.
  void verify() const;

 private:
  void read();

  std::optional<MappedFile> file_;
  std::span<const uint8_t> bytes_;
  std::string path_, where_;
  uint64_t begin_ = 0;
  std::optional<ZipReader> zip_;
  Tree tree_;
  std::vector<const ZipRecord*> storages_;
  bool script_ = false;
};

/// Writes `tree` as a file that Python's torch.load opens, with weights_only=True too. For each of
/// the tree's storages, in order, `bytes_of` gives its bytes, which are written before the next
/// call. The file appears under its name when it is complete and on disk, and replaces one that is
/// there. UsageError for what write_pickle does not take; ResourceError of the disk.
TRIREME_API void write_torch_file(
    const std::string& path, const Tree& tree,
    const std::function<std::span<const uint8_t>(size_t storage)>& bytes_of);

}  // namespace trireme::interop
