// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "trireme/grad/rounds/gradient_round.h"

namespace trireme {

/// A round in front of another one, which must outlive it: what a decorator does not override goes
/// to the inner round.
template <class Inner>
class RoundDecorator : public GradientRound {
 public:
  explicit RoundDecorator(Inner& inner) : inner_(inner) {}

  size_t size() const override { return inner_.size(); }
  const at::Tensor& parameter(size_t i) const override { return inner_.parameter(i); }
  const std::string& name(size_t i) const override { return inner_.name(i); }
  void open() override { inner_.open(); }
  bool is_open() const override { return inner_.is_open(); }
  GradientPlace offer(size_t i) override { return inner_.offer(i); }
  void ready(size_t i) override { inner_.ready(i); }
  void accumulated_outside(size_t i) override { inner_.accumulated_outside(i); }
  void close() override { inner_.close(); }
  void reset() override { inner_.reset(); }

 protected:
  Inner& inner_;
};

}  // namespace trireme
