// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "trireme/base/check.h"
#include "trireme/base/output_file.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/checkpoint/safetensors_dtype.h"
#include "trireme/checkpoint/steps/checksum.h"
#include "trireme/checkpoint/steps/safetensors_head.h"

namespace trireme {
namespace {

const SafetensorsDtype* dtype_of(at::ScalarType dtype) {
  for (const auto& d : kSafetensorsDtypes)
    if (d.dtype == dtype) return &d;
  return nullptr;
}

std::string write_tensor(OutputFile& file, const at::Tensor& t) {
  const at::Tensor bytes = t.detach().cpu().contiguous();
  const char* from = static_cast<const char*>(bytes.data_ptr());
  size_t left = bytes.nbytes();
  Checksum checksum;
  constexpr size_t kPiece = size_t{4} << 20;  // still in cache when it is written
  while (left > 0) {
    const size_t n = std::min(left, kPiece);
    checksum.add(from, n);
    file.write(from, n);
    from += n, left -= n;
  }
  return checksum.hex();
}

}  // namespace

std::string safetensors_dtype_name(at::ScalarType dtype) {
  const auto* d = dtype_of(dtype);
  return d ? d->name : "";
}

SafetensorsReceipt write_safetensors(const std::string& path, NamedTensors tensors,
                                     const std::map<std::string, std::string>& metadata) {
  std::set<std::string> seen;
  for (const auto& [name, t] : tensors) {
    check<UsageError>(name != "__metadata__" && seen.insert(name).second,
                      "{}: tensor name '{}' is given twice or reserved by the format", path, name);
    check<UsageError>(
        t.defined() && t.layout() == at::kStrided && dtype_of(t.scalar_type()),
        "{}: tensor '{}' is undefined, sparse or of a dtype that safetensors files do not hold",
        path, name);
  }
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    const auto *x = dtype_of(a.second.scalar_type()), *y = dtype_of(b.second.scalar_type());
    return x != y ? x < y : a.first < b.first;
  });
  std::vector<SafetensorsTensor> described;
  for (const auto& [name, t] : tensors)
    described.push_back({name, dtype_of(t.scalar_type())->name, t.sizes().vec()});
  const std::string head = safetensors_head(described, metadata, path);
  SafetensorsReceipt receipt;
  receipt.head_checksum = Checksum::of(head.data(), head.size());
  OutputFile file(path);
  file.write(head.data(), head.size());
  for (const auto& [name, t] : tensors) receipt.tensor_checksums[name] = write_tensor(file, t);
  file.finish();
  receipt.size = file.written();
  return receipt;
}

}  // namespace trireme
