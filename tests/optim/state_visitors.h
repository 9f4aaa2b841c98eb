// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "trireme/tensor/state.h"

namespace trireme {

// Keeps copies of what it sees, by name.
struct Collect : StateVisitor {
  using StateVisitor::tensor;
  void tensor(const Slice& slice, at::Tensor local) override {
    tensors[slice.name] = local.clone();
  }
  void value(const std::string& name, int64_t& v) override { values[name] = v; }
  void value(const std::string&, double&) override { FAIL(); }
  void value(const std::string&, std::string&) override { FAIL(); }
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, int64_t> values;
};

// Writes what Collect kept into another optimizer.
struct Restore : StateVisitor {
  explicit Restore(const Collect& from) : from(from) {}
  void tensor(const Slice& slice, at::Tensor local) override {
    local.copy_(from.tensors.at(slice.name));
  }
  void value(const std::string& name, int64_t& v) override { v = from.values.at(name); }
  void value(const std::string&, double&) override { FAIL(); }
  void value(const std::string&, std::string&) override { FAIL(); }
  const Collect& from;
};

}  // namespace trireme
