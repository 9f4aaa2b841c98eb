// SPDX-License-Identifier: Apache-2.0
#include "trireme/interop/pickle/pickle_names.h"

#include "trireme/interop/dtype.h"

namespace trireme::interop {
namespace {

struct KnownName {
  std::string_view module, name;
  Meaning meaning;
};

// DCP's classes were in torch.distributed._shard before torch 2.0, and two of them later still.
constexpr std::string_view kMetadata = "torch.distributed.checkpoint.metadata",
                           kOldMetadata = "torch.distributed._shard.checkpoint.metadata",
                           kTensorMetadata = "torch.distributed._shard.sharded_tensor.metadata";

constexpr KnownName kKnownNames[] = {
    {"collections", "OrderedDict", Meaning::dict},
    {"collections", "Counter", Meaning::dict},
    {"torch._utils", "_rebuild_tensor_v2", Meaning::tensor},
    {"torch._utils", "_rebuild_tensor_v3", Meaning::tensor},
    {"torch._utils", "_rebuild_parameter", Meaning::parameter},
    {"torch._utils", "_rebuild_parameter_with_state", Meaning::parameter},
    {"torch.storage", "UntypedStorage", Meaning::storage},
    {"torch", "Size", Meaning::size},
    {"torch", "device", Meaning::text},
    {"torch.serialization", "_get_layout", Meaning::text},
    {"pathlib", "PosixPath", Meaning::path},
    {"pathlib", "PurePosixPath", Meaning::path},
    {"pathlib._local", "PosixPath", Meaning::path},
    {"builtins", "getattr", Meaning::attribute},
    {"torch.jit._pickle", "build_intlist", Meaning::same},
    {"torch.jit._pickle", "build_doublelist", Meaning::same},
    {"torch.jit._pickle", "build_boollist", Meaning::same},
    {"torch.jit._pickle", "build_tensorlist", Meaning::same},
    {"torch.jit._pickle", "restore_type_tag", Meaning::same},
    {kMetadata, "Metadata", Meaning::data},
    {kMetadata, "TensorStorageMetadata", Meaning::data},
    {kMetadata, "ChunkStorageMetadata", Meaning::data},
    {kMetadata, "BytesStorageMetadata", Meaning::data},
    {kMetadata, "TensorProperties", Meaning::data},
    {kMetadata, "MetadataIndex", Meaning::data},
    {kMetadata, "StorageMeta", Meaning::data},
    {kMetadata, "_MEM_FORMAT_ENCODING", Meaning::choice},
    {kOldMetadata, "Metadata", Meaning::data},
    {kOldMetadata, "TensorStorageMetadata", Meaning::data},
    {kOldMetadata, "ChunkStorageMetadata", Meaning::data},
    {kOldMetadata, "BytesStorageMetadata", Meaning::data},
    {kOldMetadata, "MetadataIndex", Meaning::data},
    {kTensorMetadata, "TensorProperties", Meaning::data},
    {kTensorMetadata, "MEM_FORMAT_ENCODING", Meaning::choice},
    {"torch.distributed.checkpoint.filesystem", "_StorageInfo", Meaning::data},
    {"torch.distributed._shard.checkpoint.filesystem", "_StorageInfo", Meaning::data},
};

}  // namespace

Meaning meaning_of(std::string_view module, std::string_view name) {
  for (const KnownName& known : kKnownNames)
    if (known.module == module && known.name == name) return known.meaning;
  if (module == "torch") {
    // Of any dtype, so that the message about one that we do not read can name its tensor.
    if (name.ends_with("Storage") && name.find('.') == name.npos) return Meaning::storage;
    for (std::string_view kind :
         {"float", "bfloat", "int", "uint", "bool", "complex", "qint", "quint"})
      if (name.starts_with(kind) && name.find('.') == name.npos) return Meaning::dtype;
  }
  if (module == "__torch__" || module.starts_with("__torch__.")) return Meaning::data;
  return Meaning::refused;
}

}  // namespace trireme::interop
