// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

// XXH3 (64 bits) of a run of bytes, as 16 hexadecimal digits. Finds damage, not malice.
namespace trireme {

class Checksum {
 public:
  Checksum();
  ~Checksum();
  void add(const void* bytes, size_t size);
  std::string hex() const;

  static std::string of(const void* bytes, size_t size);
  static uint64_t number_of(const void* bytes, size_t size);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme
