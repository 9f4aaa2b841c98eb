// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/interop/weights/weight_source.h"

// The names that Hugging Face's GPT2LMHeadModel has for the parameters of our `gpt`. Its linear
// layers inside of the blocks are Conv1D: [in, out], the transposed of ours.
namespace trireme::interop {

struct Gpt2Name {
  std::string name;
  bool transposed = false;
};

/// transformer.h.0.attn.c_attn.weight (transposed) for blocks.0.attn.qkv.weight, lm_head.weight for
/// head.weight, …; nothing for a name that no GPT-2 has.
TRIREME_API std::optional<Gpt2Name> gpt2_name(const std::string& ours);
/// The other way round; `theirs` may lack "transformer.".
TRIREME_API std::optional<Gpt2Name> name_of_gpt2(const std::string& theirs);

/// Are its names those of a GPT-2: is there an "…h.0.attn.c_attn.weight"?
TRIREME_API bool has_gpt2_names(const WeightSource& source);

/// What a head that is tied to the token embedding becomes.
enum class TiedHead {
  dropped,  // the model computes with wte.weight
  copied,   // the model has a head.weight of its own
};
/// Gives GPT-2's tensors our names and our layout, without reading one, and says so in a note. The
/// masks that some versions save are dropped; other tensors keep their names. UsageError for a
/// linear layer that is no matrix. A head is tied if there is none, or if it has the embedding's
/// very bytes (`same`).
TRIREME_API void take_gpt2_names(
    WeightSource& source, TiedHead tied,
    const std::function<bool(const BoxedArray&, const BoxedArray&)>& same);

/// What a config.json says of a model with these shapes, and of what they do not tell.
struct Gpt2Config {
  int64_t layers = 0, width = 0, heads = 0, context = 0, vocab = 0;
  bool tied_head = false;
};
TRIREME_API std::string gpt2_config_json(const Gpt2Config& config);

}  // namespace trireme::interop
