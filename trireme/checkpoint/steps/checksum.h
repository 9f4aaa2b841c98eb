// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "trireme/base/export.h"

// XXH3 (64 bits) of a run of bytes, as 16 hexadecimal digits. Finds damage, not malice.
namespace trireme {

class TRIREME_API Checksum {
 public:
  Checksum();
  ~Checksum();
  void add(const void* bytes, size_t size);
  std::string hex() const;
  uint64_t number() const;

  static std::string of(const void* bytes, size_t size);
  static uint64_t number_of(const void* bytes, size_t size);
  static std::string hex_of(uint64_t number);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme
