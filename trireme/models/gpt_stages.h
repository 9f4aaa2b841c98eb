// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/models/model.h"

namespace trireme {

/// The module with the head's copy of the embedding, where has_ends_apart(). No other layout has
/// the name, and so no checkpoint.
inline constexpr const char* kCopyOfEmbedding = "wte_of_head";

/// Which blocks of a decoder this rank has, by stage, and which stage is computed next.
class GptStages {
 public:
  explicit GptStages(const GptOptions& o)
      : stages_(o.stages.empty() ? std::vector<pipeline::StageBlocks>{{0, o.layers, true, true}}
                                 : o.stages) {
    for (const auto& s : stages_) {
      check<UsageError>(0 <= s.begin && s.begin <= s.end && s.end <= o.layers,
                        "gpt: a stage of blocks {} to {}, and there are {}", s.begin, s.end,
                        o.layers);
      starts_.push_back(numbers_.size());
      for (int64_t b = s.begin; b < s.end; ++b) numbers_.push_back(b);
    }
  }

  /// The numbers, in the whole network, of this rank's blocks.
  const std::vector<int64_t>& blocks() const { return numbers_; }
  bool has_first() const { return stages_.front().first; }
  bool has_last() const { return stages_.back().last; }
  bool is_whole() const { return stages_.size() == 1 && has_first() && has_last(); }
  /// Both ends are here, and they are different stages: what they share would get two gradients a
  /// micro-batch, so the last stage has a copy of it.
  bool has_ends_apart() const { return stages_.size() > 1 && has_first() && has_last(); }

  int count() const { return static_cast<int>(stages_.size()); }
  /// Which of this rank's stages a parameter belongs to.
  int stage_of(const std::string& parameter) const {
    if (parameter.starts_with("blocks.")) {
      const int64_t block = std::stoll(parameter.substr(7));
      for (int s = 0; s < count(); ++s)
        if (stages_[static_cast<size_t>(s)].begin <= block &&
            block < stages_[static_cast<size_t>(s)].end)
          return s;
    }
    // A tied head's weight has the embedding's name, also where only the head is here, unless both
    // ends are here (kCopyOfEmbedding).
    const bool embedding = parameter.starts_with("wte.") || parameter.starts_with("wpe.");
    return embedding && has_first() ? 0 : count() - 1;
  }

  void select(size_t stage) {
    check<UsageError>(stage < stages_.size(), "gpt: stage {} of this rank, which has {}", stage,
                      stages_.size());
    selected_ = stage;
  }
  const pipeline::StageBlocks& selected() const { return stages_[selected_]; }
  /// The selected stage's part of blocks().
  size_t begin() const { return starts_[selected_]; }
  size_t end() const { return begin() + static_cast<size_t>(selected().end - selected().begin); }

 private:
  std::vector<pipeline::StageBlocks> stages_;
  std::vector<int64_t> numbers_;
  std::vector<size_t> starts_;
  size_t selected_ = 0;
};

}  // namespace trireme
