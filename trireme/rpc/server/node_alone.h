// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/rpc/server/node.h"

namespace trireme::rpc::server {

class Node::Alone {
 public:
  explicit Alone(Node& node) : node_(node) {
    std::unique_lock lock(node_.mutex_);
    node_.settled_.wait(lock, [&] { return !node_.settling_; });
    node_.settling_ = true;
  }
  ~Alone() {
    std::lock_guard lock(node_.mutex_);
    node_.settling_ = false;
    node_.settled_.notify_all();
  }
  Alone(const Alone&) = delete;

 private:
  Node& node_;
};

}  // namespace trireme::rpc::server
