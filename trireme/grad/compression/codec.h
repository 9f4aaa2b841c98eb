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

// A codec: one way for a bucket of float32 to be summed over ranks in fewer bytes. It knows neither
// what is kept of the last round nor dtypes, means or gradients that are not finite: the hook
// around it does (grad/compression/compression_hook.h).
namespace trireme {

/// Memory that goes over the wire, and beside it: taken once, kept for the next round.
class TRIREME_API WireMemory {
 public:
  /// Bytes that peers can reach, by bucket and by what for; contents are what they were.
  at::Tensor bytes(const Group& group, int bucket, int slot, int64_t n);
  at::Tensor floats(const Group& group, int bucket, int slot, int64_t n);

 private:
  std::map<std::pair<int, int>, at::Tensor> kept_;
};

/// A parameter's place in what is encoded.
struct CodecPart {
  size_t parameter = 0;
  int64_t offset = 0, numel = 0;  // elements; offsets are multiples of 8
};

/// One bucket for a codec. The vector of parts and the memory outlive its Encoded.
struct CodecInput {
  const Group& group;
  int bucket;
  at::Tensor x;  // flat float32; the codec's until its last decode. Finite, zeros between the parts
  const std::vector<CodecPart>& parts;
  bool usable;   // false: x was not finite, is zeros now, and all ranks must hear of it
  float factor;  // the result is the sum over ranks times this
  int64_t round;
  WireMemory& memory;
};

/// A bucket on its way, in this order: arrive(), finish(), decode() over all of it, piece after
/// piece, and commit() if the round was good.
class TRIREME_API Encoded {
 public:
  virtual ~Encoded();
  /// Waits for the first call and issues the second, if there is one. False, on all ranks alike:
  /// some rank's part was not usable, the result is nobody's.
  virtual bool arrive() = 0;
  /// Waits for the second call.
  virtual void finish() {}
  /// Writes the result over [begin, end) of x. Where `error` is given, error[0 … end − begin)
  /// becomes what of x did not go into the sum: over ranks, Σ x = result ÷ factor + Σ errors.
  virtual void decode(int64_t begin, int64_t end, float* error) = 0;
  /// Takes over what the codec itself remembers.
  virtual void commit() {}

  int64_t bytes = 0;   // that this rank sends
  double seconds = 0;  // of work inside arrive(), without waiting
};

class TRIREME_API Codec {
 public:
  virtual ~Codec();
  virtual std::unique_ptr<Encoded> start(const CodecInput& input) = 0;
  virtual void state(StateVisitor&) {}
  /// Calls for a bucket.
  virtual int calls() const = 0;
  /// "int8, blocks of 256".
  virtual std::string describe() const = 0;
  /// The short name: "int8".
  virtual std::string name() const = 0;
};

/// All of it, in float32: nothing is left.
TRIREME_API std::unique_ptr<Codec> plain_codec();

/// What a bucket cost this rank in a round.
struct BucketReport {
  int bucket = 0;
  bool is_last = false;
  bool good = true;  // the round, on all ranks alike
  int64_t elements = 0, bytes = 0;
  double seconds = 0;               // of encoding and decoding
  double energy = 0, residual = 0;  // Σ x², and Σ of squares of what was left
};

}  // namespace trireme
