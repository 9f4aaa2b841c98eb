// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/checkpoint/steps/index.h"
#include "trireme/checkpoint/steps/part_source.h"
#include "trireme/interop/weights/array_reader.h"
#include "trireme/interop/weights/weight_source.h"

namespace trireme {

/// Weights in Python's files, seen as the parts of a step, so that a load takes from them what it
/// takes from a step. Not for two threads, which may read together what it opens.
class ForeignWeights {
 public:
  explicit ForeignWeights(interop::WeightSource source);

  const interop::WeightSource& source() const { return source_; }
  /// An index of them, with "model." before the names. Its parts' files are paths.
  CheckpointIndex index() const;
  /// What gives the bytes of a part, row-major from byte 0 on, however it is stored; null: it has
  /// none.
  const PartSource* open(const IndexPart& part) const;
  /// Corrupt where the file has a checksum that does not fit.
  void verify(const IndexPart& part) const;
  bool same_values(const IndexTensor& a, const IndexTensor& b) const;
  /// "FILE: tensor 'name' (there 'its name', transposed)".
  std::string described(const std::string& name, const IndexTensor& tensor) const;

 private:
  const interop::SourceArray& array_of(const IndexTensor& tensor) const;
  const interop::NamedArray* box_of(const IndexPart& part) const;  // nullptr: no elements

  interop::WeightSource source_;
  std::map<std::string, std::map<std::vector<int64_t>, const interop::NamedArray*>> boxes_;
  mutable interop::ArrayReader reader_;
  mutable std::map<const interop::NamedArray*, std::unique_ptr<const PartSource>> opened_;
};

}  // namespace trireme
