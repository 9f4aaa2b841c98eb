// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/rendezvous/etcd/messages.h"

// Answers at the address that should be etcd's.
namespace trireme::fuzz {

inline void etcd_answer(std::string_view bytes) {
  const std::string json(bytes);
  const auto read = [&](auto reader) {
    try {
      reader(json);
    } catch (const Corrupt&) {
    }
  };
  read(etcd::read_value);
  read(etcd::read_put_if_absent);
  read(etcd::read_grant);
  read(etcd::read_keep_alive);
  etcd::read_refusal(json);
}

}  // namespace trireme::fuzz
