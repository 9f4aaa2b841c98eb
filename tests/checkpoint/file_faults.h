// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/checkpoint/test_state.h"
#include "tests/support/captured_log.h"
#include "tests/support/file_log.h"
#include "tests/support/power_cut.h"

// What the tests share that make file calls fail, one after the other.
namespace trireme::test {

/// scripts/soak --files asks for every call.
inline bool every_call() { return std::getenv("TRIREME_SOAK") != nullptr; }

/// Of 1 … count: all, or some `few` that differ with `salt`.
inline std::vector<size_t> sample(size_t count, size_t few, size_t salt) {
  const size_t stride = every_call() ? 1 : (count + few - 1) / few;
  std::vector<size_t> chosen;
  for (size_t n = 1 + salt * 5 % stride; n <= count; n += stride) chosen.push_back(n);
  return chosen;
}

inline bool names_a_path_and(const std::string& text, const std::string& root,
                             const std::string& reason) {
  return text.starts_with("ResourceError: ") && contains(text, root) && contains(text, reason);
}

/// 0: what was synced; 1: all names; then parts by chance.
inline void rebuild(const trireme::testing::DiskModel& disk, const std::string& into,
                    unsigned variant) {
  using trireme::testing::Survives;
  disk.rebuild(into,
               variant == 0   ? Survives::synced
               : variant == 1 ? Survives::names
                              : Survives::some,
               variant);
}

// Most of the time of a save this small is waiting for the disk, whose answers are not asked for
// here.
class OnMemoryDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const char* folder = std::getenv("TMPDIR")) before_ = folder;
    if (::access("/dev/shm", W_OK) == 0) ::setenv("TMPDIR", "/dev/shm", 1);
  }
  void TearDown() override {
    if (before_.empty())
      ::unsetenv("TMPDIR");
    else
      ::setenv("TMPDIR", before_.c_str(), 1);
  }

 private:
  std::string before_;
  trireme::testing::CapturedLog log_;  // of what could not be tidied up
};

}  // namespace trireme::test
