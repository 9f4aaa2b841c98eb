// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/checksum.h"

#define XXH_INLINE_ALL
#include <fmt/core.h>
#include <xxhash.h>

namespace trireme {

struct Checksum::State {
  XXH3_state_t xxh3;
};

Checksum::Checksum() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->xxh3); }
Checksum::~Checksum() = default;

void Checksum::add(const void* bytes, size_t size) {
  XXH3_64bits_update(&state_->xxh3, bytes, size);
}
std::string Checksum::hex() const { return hex_of(number()); }
uint64_t Checksum::number() const { return XXH3_64bits_digest(&state_->xxh3); }

std::string Checksum::of(const void* bytes, size_t size) { return hex_of(number_of(bytes, size)); }
std::string Checksum::hex_of(uint64_t number) { return fmt::format("{:016x}", number); }
uint64_t Checksum::number_of(const void* bytes, size_t size) { return XXH3_64bits(bytes, size); }

}  // namespace trireme
