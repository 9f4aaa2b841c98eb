// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/step_reader.h"

#include <cstring>

#include "trireme/base/check.h"
#include "trireme/checkpoint/steps/element_size.h"
#include "trireme/checkpoint/steps/load_plan.h"

namespace trireme {

StepReader::StepReader(std::string folder)
    : folder_(std::move(folder)), index_(read_step_index(folder_)) {}

const StepFile& StepReader::file(const std::string& name) {
  const auto found = files_.find(name);
  if (found != files_.end()) return found->second;
  return files_.try_emplace(name, folder_, name, index_.files.at(name), open_).first->second;
}

std::span<const uint8_t> StepReader::read(const std::string& name, int64_t begin, int64_t count) {
  const IndexTensor& tensor = index_.tensors.at(name);
  const int64_t each = safetensors_item_size(tensor.dtype);
  check<Corrupt>(each > 0, "{}: tensor '{}': dtype '{}' is not one we read", folder_, name,
                 tensor.dtype);
  window_.resize(static_cast<size_t>(count * each));
  for (const Copy& copy : plan_load(tensor, Slice::range(name, tensor.shape(), begin, count))) {
    const IndexPart& part = tensor.parts[copy.part];
    const StepFile& from = file(part.file);
    const interop::SafetensorsEntry& array = from.find(part, tensor.dtype);
    // What lies between the copy's runs in the part lies between them in the tensor as well, so it
    // is no more than the window.
    scratch_.resize(static_cast<size_t>((copy.from_end() - copy.from) * each));
    from.read(array.begin + static_cast<uint64_t>(copy.from * each), scratch_);
    for_each_run(copy, [&](int64_t at, int64_t to, int64_t run) {
      std::memcpy(window_.data() + to * each, scratch_.data() + (at - copy.from) * each,
                  static_cast<size_t>(run * each));
    });
  }
  return window_;
}

}  // namespace trireme
