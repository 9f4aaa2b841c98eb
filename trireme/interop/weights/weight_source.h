// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/interop/array_folder.h"

// Weights that somebody else's program saved, whatever the file is.
namespace trireme::interop {

/// A tensor under the name that we have for it.
struct SourceArray {
  BoxedArray array;
  std::string there;        // its name in the file
  bool transposed = false;  // the file has rows and columns the other way round
};

struct TRIREME_API WeightSource {
  std::string path;
  std::string kind;                  // "a file of torch.save", … for messages
  std::vector<SourceArray> arrays;   // by name
  std::vector<std::string> notes{};  // a sentence for each choice that was made of names

  const SourceArray* find(const std::string& name) const;  // nullptr: not there
};

/// Is `path` a file, or a folder that holds .metadata, *.safetensors, pytorch_model.bin,
/// pytorch_model.bin.index.json or files that such an index would name, and is neither a step nor a
/// run folder of ours?
TRIREME_API bool is_weight_source(const std::string& path);

/// A file of torch.save, of C++'s torch::save or of torch.jit.save, a .safetensors file, a folder
/// as read_array_folder takes it, or, without any of what that takes, one with pytorch_model.bin
/// or with the files that pytorch_model.bin.index.json names. Of a dict that holds a state_dict
/// under "model", "state_dict", "model_state_dict" or "module", that one is taken, and "module."
/// (of DistributedDataParallel) and "_orig_mod." (of torch.compile) are taken off where all names
/// begin so. Corrupt for a folder without an index in which one of the files is not there that
/// names such as model-00001-of-00002.safetensors say there are; other errors as of those readers;
/// UsageError where there are no tensors. Reads descriptions alone.
TRIREME_API WeightSource open_weights(const std::string& path);

/// "FILE: tensor 'ours' (there 'theirs', transposed)": for messages.
TRIREME_API std::string described(const SourceArray& array);

/// Gives tensors whose names begin with `from` names that begin with `to`. UsageError for none, and
/// for two of one name.
TRIREME_API void rename_prefix(WeightSource& source, const std::string& from,
                               const std::string& to);
/// In the order of names. UsageError for two of one name.
TRIREME_API void sort_by_name(WeightSource& source);

}  // namespace trireme::interop
