// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "trireme/base/check.h"
#include "trireme/base/output_file.h"
#include "trireme/checkpoint/checksum.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/checkpoint/safetensors_dtype.h"
#include "trireme/interop/safetensors_header.h"

namespace trireme {
namespace {

const SafetensorsDtype* dtype_of(at::ScalarType dtype) {
  for (const auto& d : kSafetensorsDtypes)
    if (d.dtype == dtype) return &d;
  return nullptr;
}

// Length and header, padded with spaces so that the data begins 8-aligned.
std::string head_of(const NamedTensors& tensors, const std::map<std::string, std::string>& metadata,
                    const std::string& path) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t at = 0;
  for (const auto& [name, t] : tensors) {
    const uint64_t end = at + static_cast<uint64_t>(t.numel()) * dtype_of(t.scalar_type())->size;
    header[name] = {{"dtype", dtype_of(t.scalar_type())->name},
                    {"shape", t.sizes().vec()},
                    {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    fail<UsageError>("{}: a tensor name or a metadata text is not UTF-8", path);
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  check<UsageError>(text.size() <= interop::kMostSafetensorsHeader,
                    "{}: too many tensors for one file: the header has {} bytes", path,
                    text.size());
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + text;
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
  const std::string head = head_of(tensors, metadata, path);
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
