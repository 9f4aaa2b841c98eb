// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tests/interop/pickles.h"

// A .metadata as PyTorch 2.x lays it out, piece by piece.
namespace trireme::interop::testing {

inline const std::string kDcp = "torch.distributed.checkpoint.metadata";

inline std::string torch_size(std::string_view numbers) {
  return global("torch", "Size") + tuple(tuple(numbers)) + "R";
}
inline std::string properties(const std::string& dtype) {
  return global(kDcp, "TensorProperties") + ")\x81" +
         tuple(global("torch", dtype) + global("torch.serialization", "_get_layout") +
               tuple(text("torch.strided")) + "R\x89" + global(kDcp, "_MEM_FORMAT_ENCODING") +
               tuple(whole(0)) + "R\x89") +
         "b";
}
inline std::string chunk(std::string_view offsets, std::string_view sizes) {
  return object(kDcp, "ChunkStorageMetadata",
                text("offsets") + torch_size(offsets) + text("sizes") + torch_size(sizes));
}
inline std::string described_tensor(const std::string& dtype, std::string_view shape,
                                    std::string_view chunks) {
  return object(kDcp, "TensorStorageMetadata",
                text("properties") + properties(dtype) + text("size") + torch_size(shape) +
                    text("chunks") + "](" + std::string(chunks) + "e");
}
inline std::string index_of(std::string_view name, const std::string& offset) {
  return object(kDcp, "MetadataIndex",
                text("fqn") + text(name) + text("offset") + offset + text("index") + whole(0));
}
inline std::string place_of(std::string_view file, int32_t offset, int32_t length,
                            const std::string& more = "") {
  return object("torch.distributed.checkpoint.filesystem", "_StorageInfo",
                text("relative_path") + text(file) + text("offset") + whole(offset) +
                    text("length") + whole(length) + more);
}
inline std::string metadata(std::string_view described, std::string_view places) {
  const std::string meta = object(kDcp, "StorageMeta",
                                  text("checkpoint_id") + global("pathlib", "PosixPath") +
                                      tuple(text("/") + text("run")) + "R" + text("save_id") +
                                      text("0f") + text("load_id") + "N");
  return pickle(object(kDcp, "Metadata",
                       text("state_dict_metadata") + dict(described) + text("planner_data") +
                           dict(text("a.b") + tuple(text("a") + text("b"))) + text("storage_data") +
                           dict(places) + text("storage_meta") + meta + text("version") +
                           text("1")));
}

}  // namespace trireme::interop::testing
