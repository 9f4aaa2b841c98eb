// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/interop/dcp_metadata.h"
#include "trireme/interop/flatten.h"
#include "trireme/interop/pickle/pickle_reader.h"
#include "trireme/interop/pickle/pickle_writer.h"
#include "trireme/interop/torch_file.h"
#include "trireme/interop/zip/zip_writer.h"

// Fuzz targets for the files that trireme/interop reads, as those of targets.h.
namespace trireme::fuzz {

inline std::span<const uint8_t> as_bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

/// f(), and whether it neither refused nor found damage.
template <class F>
bool accepted(F&& f) {
  try {
    f();
    return true;
  } catch (const Corrupt&) {
  } catch (const UsageError&) {
  }
  return false;
}

inline void pickle(std::string_view bytes) {
  interop::Tree tree;
  if (!accepted([&] { tree = interop::read_pickle(as_bytes(bytes), "fuzz"); })) return;
  accepted([&] { interop::flatten(tree, "fuzz"); });
  std::string once;
  if (tree.size() > 10000 || !accepted([&] { once = interop::write_pickle(tree); })) return;
  const interop::Tree again = interop::read_pickle(as_bytes(once), "fuzz, written");
  if (interop::write_pickle(again) != once)
    throw std::logic_error("a pickle is written otherwise than it is read");
}

inline void use_torch_file(std::string_view bytes) {
  accepted([&] {
    const interop::TorchFile file(as_bytes(bytes), "fuzz");
    for (const auto& array : file.arrays()) {
      std::vector<uint8_t> elements(array.bytes());
      if (elements.size() > bytes.size())
        throw std::logic_error("an array has more bytes than its file");
      interop::copy_elements(array, file.bytes(), elements);
    }
    file.values();
    file.verify();
  });
}

/// The first byte: 0 for a file as it is, else the values of one, after two bytes that tell their
/// length, and a storage, which get the checksums that chance would never give them.
inline void torch_file(std::string_view bytes) {
  if (bytes.size() < 3) return;
  if (bytes[0] == 0) return use_torch_file(bytes.substr(1));
  const size_t length =
      static_cast<unsigned char>(bytes[1]) + 256u * static_cast<unsigned char>(bytes[2]);
  const std::string_view values = bytes.substr(3).substr(0, length);
  std::string whole;
  interop::ZipWriter zip(
      [&](const void* part, size_t size) { whole.append(static_cast<const char*>(part), size); });
  zip.add("a/data.pkl", as_bytes(values));
  zip.add("a/data/0", as_bytes(bytes.substr(3 + values.size())));
  zip.add("a/version", as_bytes("3\n"));
  zip.finish();
  use_torch_file(whole);
}

inline void dcp_metadata(std::string_view bytes) {
  accepted([&] {
    for (const auto& tensor : interop::read_dcp_metadata(as_bytes(bytes), "fuzz").tensors)
      for (const auto& chunk : tensor.chunks)
        if (chunk.offsets.size() != tensor.shape.size() ||
            chunk.lengths.size() != tensor.shape.size() || chunk.item.file.empty())
          throw std::logic_error("a chunk does not fit its tensor");
  });
}

}  // namespace trireme::fuzz
