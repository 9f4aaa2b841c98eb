// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <vector>

#include "trireme/comm/group.h"

namespace trireme::pipeline {

/// Lists of tensors between two ranks, whose shapes, dtypes and number the receiver learns from the
/// message: they may differ between micro-batches. A message is a line of numbers (magic and
/// version, then each tensor's dtype, whether it requires a gradient, and sizes) and the tensors.
/// Limits: 8 tensors of 8 dims.
class TensorMessages {
 public:
  /// Tensors that are received are on `device`.
  TensorMessages(Group group, at::Device device);

  /// Returns at once. The tensors must not change until finish().
  void send(const std::vector<at::Tensor>& tensors, int to, int tag);
  /// Waits. Tensors whose originals require a gradient are leaves that require one. Corrupt for
  /// what no send() wrote.
  std::vector<at::Tensor> recv(int from, int tag);

  /// Tensors of which both ranks know what they are, without the line of numbers: gradients.
  void send_known(const std::vector<at::Tensor>& tensors, int to, int tag);
  /// Gradients of `like`: contiguous, of their sizes and dtypes.
  std::vector<at::Tensor> recv_like(const std::vector<at::Tensor>& like, int from, int tag);

  /// Lets go of what has been sent, without waiting.
  void progress();
  /// Waits until everything has been sent.
  void finish();

 private:
  struct Sent {
    at::Tensor tensor;
    Work work;
  };
  at::Tensor readable(const at::Tensor& tensor) const;
  void post(at::Tensor tensor, int to, int tag);

  Group group_;
  at::Device device_;
  std::deque<Sent> sent_;
};

}  // namespace trireme::pipeline
