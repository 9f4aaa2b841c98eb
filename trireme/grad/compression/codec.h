// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/tensor/state.h"

// A codec: a way to sum a bucket of float32 over ranks in fewer bytes. Error feedback, dtypes,
// means and non-finite gradients are not its concern; the hook around it handles them
// (grad/compression/compression_hook.h). Every codec encodes in host memory, for gradients on any
// device; with start_on_device() it encodes where the gradients are, and only its bytes cross.
namespace trireme {

/// Buffers for what is sent and received, and for intermediate results: allocated once and kept for
/// the next round.
class TRIREME_API WireMemory {
 public:
  /// Memory that peers can access, for each bucket and slot (purpose); the contents are preserved.
  at::Tensor bytes(const Group& group, int bucket, int slot, int64_t n,
                   at::Device device = at::kCPU);
  at::Tensor floats(const Group& group, int bucket, int slot, int64_t n,
                    at::Device device = at::kCPU);
  /// Host memory for a bucket's copies from and to its device; not accessed by peers.
  at::Tensor staging(int bucket, int slot, int64_t n, at::ScalarType dtype, at::Device device);

 private:
  std::map<std::pair<int, int>, at::Tensor> kept_;
};

/// A parameter's position in the data to encode.
struct CodecPart {
  size_t parameter = 0;
  int64_t offset = 0, numel = 0;  // elements; offsets are multiples of 8
};

/// One bucket for a codec. The vector of parts and the memory outlive the Encoded.
struct CodecInput {
  const Group& group;
  int bucket;
  at::Tensor x;  // flat float32; belongs to the codec until the last decode. Finite, zeros between
                 // the parts
  const std::vector<CodecPart>& parts;
  bool usable;   // false: x was not finite and is zeros now; the codec must inform all ranks
  float factor;  // multiplied into the sum over ranks to give the result
  int64_t round;
  WireMemory& memory;
  at::Device device;  // of the gradients; x is in host memory on all of them (host_calls.h)
};

/// A bucket in transit. Call, in this order: arrive(), finish(), decode() piece by piece over all
/// of it, and commit() if the round succeeded.
class TRIREME_API Encoded {
 public:
  virtual ~Encoded();
  /// Waits for the first call and issues the second, if there is one. False, on all ranks: some
  /// rank's part was not usable, so there is no result.
  virtual bool arrive() = 0;
  /// Waits for the second call.
  virtual void finish() {}
  /// Overwrites [begin, end) of x with the result. If `error` is not null, error[0 … end − begin)
  /// receives the part of x that did not enter the sum: over ranks, Σ x = result ÷ factor + Σ
  /// errors.
  virtual void decode(int64_t begin, int64_t end, float* error) = 0;
  /// Makes the codec's own new state permanent.
  virtual void commit() {}

  int64_t bytes = 0;   // that this rank sends
  double seconds = 0;  // spent working inside arrive(), without waiting
};

/// One bucket for a codec that encodes on the device: CodecInput's, but that nothing of it is known
/// to the host yet.
struct DeviceCodecInput {
  const Group& group;
  int bucket;
  at::Tensor x;  // flat float32 on the device. Finite, zeros between the parts
  const std::vector<CodecPart>& parts;
  at::Tensor unusable;  // one bool of the device: x was not finite and is zeros now
  float factor;
  int64_t round;
  WireMemory& memory;
};

/// Such a bucket in transit; every operation is in the order of the current stream. Call, in this
/// order: arrive(), finish(), decode(), commit(). What is kept between them is in WireMemory, so
/// that they may be called on several streams, each ordered behind the other.
class TRIREME_API DeviceEncoded {
 public:
  virtual ~DeviceEncoded();
  /// Orders the stream behind the first call, issues the second, if there is one, and blocks until
  /// the host knows: false, on all ranks, if some rank's part was not usable.
  virtual bool arrive() = 0;
  /// Orders the stream behind the second call.
  virtual void finish() {}
  /// Overwrites x with the result. Returns the part of x that did not enter the sum, if that is
  /// wanted; else an undefined tensor.
  virtual at::Tensor decode(bool error_wanted) = 0;
  /// Makes the codec's own new state permanent, if the round succeeded.
  virtual void commit() {}

  int64_t bytes = 0;  // that this rank sends
};

class TRIREME_API Codec {
 public:
  virtual ~Codec();
  virtual std::unique_ptr<Encoded> start(const CodecInput& input) = 0;
  /// Whether there is start_on_device().
  virtual bool works_on_device() const { return false; }
  /// Encodes where x is, and issues the first call; blocks neither on a stream nor on a peer.
  virtual std::unique_ptr<DeviceEncoded> start_on_device(const DeviceCodecInput& input);
  virtual void state(StateVisitor&) {}
  /// The number of calls per bucket.
  virtual int calls() const = 0;
  /// A description, such as "int8, blocks of 256".
  virtual std::string describe() const = 0;
  /// The short name, such as "int8".
  virtual std::string name() const = 0;
};

/// Sends everything in float32 and leaves nothing unsent.
TRIREME_API std::unique_ptr<Codec> plain_codec();

/// Costs of a bucket on this rank in one round.
struct BucketReport {
  int bucket = 0;
  bool is_last = false;
  bool good = true;  // whether the round succeeded; equal on all ranks
  int64_t elements = 0, bytes = 0;
  double seconds = 0;               // spent encoding and decoding
  double energy = 0, residual = 0;  // Σ x², and the sum of squares of what was left unsent
};

}  // namespace trireme
