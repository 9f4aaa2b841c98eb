// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/checkpoint/steps/step_reader.h"

// A step's tensors in files for others: safetensors as Hugging Face has them, and .pt files.
namespace trireme {

/// A tensor of a step, and what it is called outside.
struct ExportedTensor {
  std::string name;  // in the step
  std::string out;
  bool transposed = false;   // a matrix whose rows are written as columns
  std::string same_as = "";  // .pt: a further name of the tensor that is called so outside
};

struct ExportPlan {
  std::vector<ExportedTensor> tensors;
  /// .pt: tensors beside the weights, in a dict "state", and values, in a dict "values".
  bool whole_state = false;
  std::map<std::string, std::string> more_files = {};  // of a folder: name → text
};

struct Exported {
  std::vector<std::string> files;  // in the folder; of a file its path
  uint64_t bytes = 0;              // of all tensors
};

/// Compares the checksums of all that the plan reads. Corrupt, naming file, tensor and block.
TRIREME_API void verify_exported(const StepReader& step, const ExportPlan& plan);

/// A folder with model.safetensors, or with model-00001-of-00003.safetensors, … and
/// model.safetensors.index.json where that would be larger than `max_shard` bytes. A tensor is in
/// one file. The folder appears when it is complete and on disk. With `replace` it takes the place
/// of one with nothing but .safetensors and .json files; UsageError for anything else that is
/// there. Takes 4 MiB, or twice as much as the largest tensor that is transposed. ResourceError:
/// nothing is left.
TRIREME_API Exported export_safetensors(StepReader& step, const ExportPlan& plan,
                                        const std::string& folder, uint64_t max_shard,
                                        bool replace);

/// One file that torch.load(weights_only=True) opens: a state_dict, or, of a whole state, a dict of
/// three. Takes as much memory as the largest tensor, three times where that is transposed.
/// Otherwise as above.
TRIREME_API Exported export_torch(StepReader& step, const ExportPlan& plan, const std::string& path,
                                  bool replace);

}  // namespace trireme
