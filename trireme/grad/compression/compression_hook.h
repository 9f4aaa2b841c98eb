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
#include "trireme/tensor/device.h"
#include "trireme/tensor/parameter_table.h"

namespace trireme {

/// Options that apply to every codec.
struct CompressionCommon {
  bool error_feedback = true;
  int64_t start_step = 2;  // number of first rounds that are sent uncompressed
};

/// What every compressing hook has in common: it adds the error feedback, encodes, and stores the
/// new error feedback once the round is known to have succeeded.
///
/// Buckets are float32, float16 or bfloat16; half-precision buckets are processed in float32. The
/// result has the same bits on every rank. With one rank nothing is lost and nothing is kept.
///
/// On any device, and the gradient hook never blocks. Codecs encode and decode on the device, in
/// the order of the stream that is current in the gradient hook; their calls begin while backward
/// still runs, and error feedback is on the device. Of several codecs (auto) all compute in host
/// memory: a bucket is copied to pinned memory in the order of that stream, encoded when the round
/// closes, all buckets in order, and the result is copied back in the order of the stream that is
/// current then; error feedback is in host memory.
///
/// A gradient that is not finite (or so large that a sum over ranks might not be) makes its bucket
/// NaN on all ranks, and no rank's error feedback changes in that round, so a step that loss
/// scaling skips leaves no trace. A NaN or an infinity in the error feedback is a NumericError that
/// names the parameter and the rank when it is next used; the others get it by their next call.
///
/// If no rank used a parameter in a round, what was sent of its error feedback is lost.
class TRIREME_API CompressionHook : public StatefulHook {
 public:
  ~CompressionHook() override;
  void state(StateVisitor& visitor) override;
  /// A description of what is used: "int8, blocks of 256", "bucket 0: int8, bucket 1: none".
  virtual std::string describe() const = 0;
  /// The number of completed rounds.
  int64_t rounds() const { return rounds_; }
  /// Bytes that this rank sent in the last round (a plain all_reduce counts as 2(n−1)/n of the
  /// buffer).
  int64_t wire_bytes() const { return wire_bytes_; }
  /// Seconds that this rank spent encoding and decoding in the last round, without waiting. On a
  /// device: 0, for the host spends none.
  double seconds() const { return seconds_; }
  /// The error feedback; nullptr if this hook has none.
  ErrorFeedback* errors() { return errors_.get(); }

 protected:
  /// `works_on_device`: codec_for() gives codecs that encode where the gradients are.
  CompressionHook(const NamedTensors& parameters, const Group& group, CompressionCommon common,
                  bool works_on_device = false);
  /// The codec for a bucket in a round that compresses; the same on every rank. The hook keeps
  /// ownership.
  virtual Codec& codec_for(int bucket) = 0;
  /// Whether settled() needs energies, which take another pass over data that is in the cache.
  virtual bool measuring() const { return false; }
  /// Called after each bucket of a round that compresses, in bucket order.
  virtual void settled(Group&, const BucketReport&) {}
  /// Where the gradients are.
  at::Device device() const { return device_; }

 private:
  class Compressed;
  class CompressedOnDevice;
  class Whole;
  /// What `ranks` such summands cannot overflow, nor their factors.
  static float largest_allowed(at::ScalarType type, int ranks, ReduceOp op);
  std::unique_ptr<BucketReduction> start_on_device(Group& group, GradBucket& bucket, ReduceOp op);
  std::unique_ptr<BucketReduction> start(Group& group, GradBucket& bucket, ReduceOp op) final;

  std::vector<std::pair<std::string, int64_t>> parameters_;  // name, elements
  std::unique_ptr<ErrorFeedback> errors_;
  const int64_t start_step_;
  const int ranks_;
  at::Device device_ = at::kCPU;
  bool on_device_ = false;  // where it encodes, and keeps the error feedback
  int64_t rounds_ = 0, wire_bytes_ = 0, sent_ = 0;
  double seconds_ = 0, spent_ = 0;
  bool good_ = true;  // this round has succeeded so far
  WireMemory memory_;
  std::vector<DeviceEvent> returned_;  // by bucket: its result was copied to its device
  DeviceEvent settled_;                // on_device_: what the last round wrote is there
  std::vector<float> chunk_;
};

/// All buckets through one codec. `parameters`: the reducer's, in its order.
TRIREME_API std::shared_ptr<CompressionHook> one_codec_hook(std::unique_ptr<Codec> codec,
                                                            const NamedTensors& parameters,
                                                            const Group& group,
                                                            CompressionCommon common = {});

}  // namespace trireme
