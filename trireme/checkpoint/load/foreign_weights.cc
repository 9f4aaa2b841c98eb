// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/load/foreign_weights.h"

#include <span>

#include "trireme/base/check.h"

namespace trireme {
namespace {

constexpr std::string_view kModel = "model.";

class ForeignPart : public PartSource {
 public:
  ForeignPart(const interop::NamedArray& box, std::span<const uint8_t> file)
      : PartSource(box.file), box_(box), file_(file) {}
  void read(uint64_t at, std::span<uint8_t> to) const override {
    interop::copy_range(box_, file_, at, to);
  }

 private:
  const interop::NamedArray& box_;
  const std::span<const uint8_t> file_;
};

}  // namespace

ForeignWeights::ForeignWeights(interop::WeightSource source) : source_(std::move(source)) {
  for (const interop::SourceArray& a : source_.arrays)
    for (const interop::Box& box : a.array.boxes)
      boxes_[a.array.name].emplace(box.offsets, &box.at);
}

CheckpointIndex ForeignWeights::index() const {
  CheckpointIndex index;
  index.layout = source_.kind;
  for (const interop::SourceArray& a : source_.arrays) {
    const std::string name = std::string(kModel) + a.array.name;
    IndexTensor& tensor = index.tensors[name];
    tensor.dtype = a.array.dtype;
    for (const interop::Box& box : a.array.boxes)
      tensor.parts.push_back({{name, a.array.shape, box.offsets, box.lengths}, box.at.file});
    if (tensor.parts.empty()) tensor.parts.push_back({Slice::whole(name, a.array.shape), ""});
  }
  return index;
}

// Parts keep their names when an index's tensors are renamed.
const interop::NamedArray* ForeignWeights::box_of(const IndexPart& part) const {
  const auto boxes = boxes_.find(part.slice.name.substr(kModel.size()));
  if (boxes == boxes_.end()) return nullptr;
  const auto box = boxes->second.find(part.slice.offsets);
  return box == boxes->second.end() ? nullptr : box->second;
}

const interop::SourceArray& ForeignWeights::array_of(const IndexTensor& tensor) const {
  return *source_.find(tensor.parts.front().slice.name.substr(kModel.size()));
}

const PartSource* ForeignWeights::open(const IndexPart& part) const {
  const interop::NamedArray* box = box_of(part);
  if (!box) return nullptr;
  auto& opened = opened_[box];
  if (!opened) opened = std::make_unique<ForeignPart>(*box, reader_.file_of(*box));
  return opened.get();
}

void ForeignWeights::verify(const IndexPart& part) const {
  if (const interop::NamedArray* box = box_of(part)) reader_.verify(*box);
}

bool ForeignWeights::same_values(const IndexTensor& a, const IndexTensor& b) const {
  return reader_.same(array_of(a).array, array_of(b).array);
}

std::string ForeignWeights::described(const std::string& name, const IndexTensor& tensor) const {
  const interop::SourceArray& a = array_of(tensor);
  return fmt::format("{}: tensor '{}' (there '{}'{})",
                     a.array.boxes.empty() ? source_.path : a.array.boxes[0].at.file, name, a.there,
                     a.transposed ? ", transposed" : "");
}

}  // namespace trireme
