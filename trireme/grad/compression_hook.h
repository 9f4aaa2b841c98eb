// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/grad/codec.h"
#include "trireme/grad/error_feedback.h"
#include "trireme/grad/stateful_hook.h"

namespace trireme {

/// What every compressing hook does alike: adds what was kept, encodes, and takes over what is kept
/// anew when the round is known to be good.
///
/// Buckets are float32, float16 or bfloat16, on the CPU; half buckets are worked on in float32. The
/// result has the same bits on every rank. With one rank nothing is lost.
///
/// A gradient that is not finite (or so large that a sum over ranks might not be) makes its
/// bucket NaN on all ranks, and nobody's memory changes in that round: a step that loss scaling
/// skips has not been. A NaN or an infinity in the memory is a NumericError that names parameter and
/// rank when it is next used, as a hook that throws: the other ranks get its words.
class TRIREME_API CompressionHook : public StatefulHook {
 public:
  ~CompressionHook() override;
  void state(StateVisitor& visitor) override;
  /// What travels how, for people: "int8, blocks of 256", "bucket 0: int8, bucket 1: none".
  virtual std::string describe() const = 0;
  /// Rounds that have been completed.
  int64_t rounds() const { return rounds_; }
  /// Bytes that this rank sent in the last round, by the codecs' own count (two phases: both).
  int64_t wire_bytes() const { return wire_bytes_; }
  /// nullptr: this hook keeps nothing.
  ErrorFeedback* errors() { return errors_.get(); }

 protected:
  /// `errors`: null for none. Rounds before `start_round` travel as they are.
  CompressionHook(std::unique_ptr<ErrorFeedback> errors, int64_t start_round);
  /// The codec of a bucket in a round that compresses. The same on every rank.
  virtual Codec& codec_for(int bucket) = 0;
  /// After each bucket of a round, in order, with what it cost this rank.
  virtual void settled(Group& group, const BucketReport& report);

 private:
  class Bucket;
  std::unique_ptr<BucketReduction> start(Group& group, GradBucket& bucket, ReduceOp op) final;

  std::unique_ptr<ErrorFeedback> errors_;
  std::unique_ptr<Codec> plain_;
  int64_t start_round_, rounds_ = 0, wire_bytes_ = 0;
  bool good_ = true;  // this round, as far as is known
  WireMemory memory_;
};

}  // namespace trireme
