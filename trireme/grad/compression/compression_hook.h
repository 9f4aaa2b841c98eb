// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/grad/compression/codec.h"
#include "trireme/grad/compression/error_feedback.h"
#include "trireme/grad/hooks/stateful_hook.h"
#include "trireme/tensor/parameter_table.h"

namespace trireme {

/// What does not depend on the codec.
struct CompressionCommon {
  bool error_feedback = true;
  int64_t start_step = 2;  // rounds that travel as they are first
};

/// What every compressing hook does alike: adds what was kept, encodes, and takes over what is kept
/// anew once the round is known to be good.
///
/// Buckets are float32, float16 or bfloat16 on the CPU; half buckets are worked on in float32. The
/// result has the same bits on every rank. With one rank nothing is lost, and nothing kept.
///
/// A gradient that is not finite (or so large that a sum over ranks might not be) makes its bucket
/// NaN on all ranks, and nobody's memory changes in that round: a step that loss scaling skips has
/// not been. A NaN or an infinity in the memory is a NumericError that names parameter and rank
/// when it is next used; the other ranks get its words.
///
/// A parameter that no rank used in a round gives what was sent of its memory to nobody.
class TRIREME_API CompressionHook : public StatefulHook {
 public:
  ~CompressionHook() override;
  void state(StateVisitor& visitor) override;
  /// What travels how, for people: "int8, blocks of 256", "bucket 0: int8, bucket 1: none".
  virtual std::string describe() const = 0;
  /// Rounds that have been completed.
  int64_t rounds() const { return rounds_; }
  /// Bytes that this rank sent in the last round (of plain all_reduces: 2(n−1)/n of the buffer).
  int64_t wire_bytes() const { return wire_bytes_; }
  /// Seconds that this rank spent encoding and decoding in the last round, without waiting.
  double seconds() const { return seconds_; }
  /// nullptr: this hook keeps nothing.
  ErrorFeedback* errors() { return errors_.get(); }

 protected:
  CompressionHook(const NamedTensors& parameters, const Group& group, CompressionCommon common);
  /// The codec of a bucket in a round that compresses; the same on every rank. It stays.
  virtual Codec& codec_for(int bucket) = 0;
  /// Whether settled() wants energies: another pass over what is in the cache.
  virtual bool measuring() const { return false; }
  /// After each bucket of a round that compresses, in their order.
  virtual void settled(Group&, const BucketReport&) {}

 private:
  class Compressed;
  class Whole;
  std::unique_ptr<BucketReduction> start(Group& group, GradBucket& bucket, ReduceOp op) final;

  std::vector<std::pair<std::string, int64_t>> parameters_;  // name, elements
  std::unique_ptr<ErrorFeedback> errors_;
  const int64_t start_step_;
  const int ranks_;
  int64_t rounds_ = 0, wire_bytes_ = 0, sent_ = 0;
  double seconds_ = 0, spent_ = 0;
  bool good_ = true;  // this round, as far as is known
  WireMemory memory_;
  std::vector<float> chunk_;
};

/// All buckets through one codec. `parameters`: the reducer's, in its order.
TRIREME_API std::shared_ptr<CompressionHook> one_codec_hook(std::unique_ptr<Codec> codec,
                                                            const NamedTensors& parameters,
                                                            const Group& group,
                                                            CompressionCommon common = {});

}  // namespace trireme
